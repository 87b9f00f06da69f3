"""Procedures: several transactions, and pauses between them, written once for sync and async.

The same trick as operations, one level up: a generator that yields what it needs done.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec

from onefold.calls.defaults import Defaults
from onefold.calls.hooks import Hooks
from onefold.calls.suppressing import Suppressing
from onefold.databases import Build
from onefold.databases.gathering import Shared
from onefold.operations.run import run, run_async

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.databases import Clock, Database
    from onefold.databases.borrowed import Borrowed

T = TypeVar("T")


class Transaction(msgspec.Struct, Generic[T], frozen=True):
    """Run an operation in a transaction, ours or the caller's; the answer is its result."""

    build: Build[T]
    write: bool = True


class Gather(msgspec.Struct, Generic[T], frozen=True):
    """Run one item of a plural operation, in one commit with those that others ask for now."""

    shared: Shared[Any, T]


class Pause(msgspec.Struct, frozen=True):
    """Wait so many seconds."""

    seconds: float


Step: TypeAlias = Transaction[Any] | Gather[Any] | Pause
Procedure: TypeAlias = Generator[Step, Any, T]


def once_through(build: Build[T], *, write: bool = True) -> Procedure[T]:
    """A procedure of one transaction: what most calls are."""
    result: T = yield Transaction(build, write)
    return result


class Conductor:
    """Carries procedures out: on our own database, or on a connection that was lent to us."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        borrowed: Borrowed | None = None,
        *,
        hooks: Hooks | None = None,
        defaults: Defaults | None = None,
        suppressing: Suppressing | None = None,
    ) -> None:
        """Without `borrowed`, transactions are our own."""
        self._database = database
        self.clock = clock
        self.borrowed = borrowed
        self.hooks: Hooks = Hooks() if hooks is None else hooks
        self.defaults: Defaults = Defaults() if defaults is None else defaults
        if suppressing is None:
            suppressing = Suppressing(lambda: self.database, self.now)
        self.suppressing: Suppressing = suppressing

    @property
    def database(self) -> Database:
        """Where it is carried out, unless a connection was lent to us."""
        return self._database

    def lent(self, borrowed: Borrowed | None) -> Conductor:
        """The same, hooks and defaults included, on a connection that was lent to us."""
        return Conductor(
            self.database,
            self.clock,
            borrowed,
            hooks=self.hooks,
            defaults=self.defaults,
            suppressing=self.suppressing,
        )

    def own(self) -> Conductor:
        """The same on connections of our own."""
        return self if self.borrowed is None else self.lent(None)

    def now(self) -> int:
        """The time here, in microseconds: for what is not compared across machines."""
        given = self.clock()
        return time.time_ns() // 1000 if given is None else given

    def run(self, procedure: Procedure[T]) -> T:
        """Carry out, blocking."""
        return run(procedure, self.perform)

    async def arun(self, procedure: Procedure[T]) -> T:
        """Carry out, awaiting."""
        return await run_async(procedure, self.aperform)

    def perform(self, step: Step) -> Any:
        """Carry one step out, blocking."""
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        if isinstance(step, Gather):
            if self.borrowed is not None:
                return self.borrowed.transact(step.shared.alone)
            return self.database.gather(step.shared)
        if self.borrowed is not None:
            return self.borrowed.transact(step.build, write=step.write)
        return self.database.transact(step.build, write=step.write)

    async def aperform(self, step: Step) -> Any:
        """Carry one step out, awaiting."""
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Gather):
            if self.borrowed is not None:
                return await self.borrowed.atransact(step.shared.alone)
            return await self.database.agather(step.shared)
        if self.borrowed is not None:
            return await self.borrowed.atransact(step.build, write=step.write)
        return await self.database.atransact(step.build, write=step.write)


def waits(wait: timedelta | None, *, longest: float = 0.25) -> Iterator[float]:
    """Pauses of growing, jittered length until `wait` is over: waiters must not march in step."""
    if wait is None:
        return
    deadline = time.monotonic() + wait.total_seconds()
    pause = 0.005
    while (left := deadline - time.monotonic()) > 0:
        yield min(left, pause * (0.5 + random.random()))
        pause = min(pause * 2, longest)
