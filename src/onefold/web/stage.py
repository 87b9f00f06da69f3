"""A stage: where one request's procedure is carried out, with a transaction that it may hold open.

A request's transaction begins when its handler does and ends when its answer is complete. In
between the handler runs, so no `with` can span it. As everywhere, what happens is a generator that
yields what it needs done; the two stages know sync from async.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec

from onefold.calls.procedure import Gather, Pause, Transaction
from onefold.databases import Build
from onefold.databases.handler_transaction import (
    HandlerTransaction,
    abegin,
    begin,
    current_target,
    is_blocking,
    refuse_thread_bound,
)
from onefold.operations.statement import run, run_async
from onefold.runtime import Call, acalled, called, in_thread

if TYPE_CHECKING:
    from collections.abc import Generator

    from onefold.calls.procedure import Conductor

T = TypeVar("T")


class Open(msgspec.Struct, frozen=True):
    """Begin the transaction that the handler works in."""


class Held(msgspec.Struct, Generic[T], frozen=True):
    """Run an operation in that transaction."""

    build: Build[T]


class Close(msgspec.Struct, frozen=True):
    """End that transaction."""

    commit: bool


Step: TypeAlias = Open | Held[Any] | Close | Call | Transaction[Any] | Gather[Any] | Pause
"""`Transaction` is one of our own, and is committed at once."""

Scene: TypeAlias = "Generator[Step, Any, T]"


class Stage:
    """Carries out, blocking."""

    def __init__(self, conductor: Conductor, target: object = None) -> None:
        """`target` is what the transaction is begun on; None is our own database."""
        self._conductor = conductor
        self._target = target
        self._begun: HandlerTransaction | None = None

    @property
    def connection(self) -> Any:
        """The connection or session of the transaction that is open; None where there is none."""
        return None if self._begun is None else self._begun.connection

    @property
    def is_open(self) -> bool:
        """True between Open and Close."""
        return self._begun is not None

    def enter(self) -> None:
        """What follows in this context is inside of the transaction, if one is open."""
        if self._begun is not None:
            self._begun.enter()

    def run(self, scene: Scene[T]) -> T:
        """Carry a procedure out."""
        return run(scene, self.perform)

    def perform(self, step: Step) -> Any:
        """Carry one step out."""
        match step:
            case Open():
                return self._open()
            case Held(build):
                assert self._begun is not None
                return self._begun.execute(build)
            case Close(commit):
                return self._close(commit=commit)
            case Call(function, arguments):
                return called(function, arguments)
            case _:
                return self._conductor.perform(step)

    def _open(self) -> None:
        self._begun = begin(current_target(self._target), self._conductor.database)

    def _close(self, *, commit: bool) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.end(commit=commit)


class AsyncStage:
    """Carries out in an event loop; what blocks, in threads."""

    def __init__(
        self, conductor: Conductor, target: object = None, *, blocks: bool = False
    ) -> None:
        """`target` is what the transaction is begun on; None is our own database.

        `blocks` is for handlers that are plain functions: they can await nothing of it.
        """
        self._conductor = conductor
        self._target = target
        self._blocks = blocks
        self._begun: HandlerTransaction | None = None
        self._blocking: Stage | None = None

    @property
    def connection(self) -> Any:
        """The connection or session of the transaction that is open; None where there is none."""
        if self._blocking is not None:
            return self._blocking.connection
        return None if self._begun is None else self._begun.connection

    @property
    def is_open(self) -> bool:
        """True between Open and Close."""
        return self.connection is not None

    def enter(self) -> None:
        """What follows in this context is inside of the transaction, if one is open."""
        if self._blocking is not None:
            self._blocking.enter()
        elif self._begun is not None:
            self._begun.enter()

    async def run(self, scene: Scene[T]) -> T:
        """Carry a procedure out."""
        return await run_async(scene, self.perform)

    async def perform(self, step: Step) -> Any:
        """Carry one step out."""
        match step:
            case Open():
                return await self._open()
            case Held() | Close() if self._blocking is not None:
                return await in_thread(self._blocking.perform, step)
            case Held(build):
                assert self._begun is not None
                return await self._begun.aexecute(build)
            case Close(commit):
                return await self._close(commit=commit)
            case Call(function, arguments):
                return await acalled(function, arguments)
            case _:
                return await self._conductor.aperform(step)

    async def _open(self) -> None:
        conductor, target = self._conductor, current_target(self._target)
        if self._blocks or (target is not None and is_blocking(target)):
            refuse_thread_bound(target)
            self._blocking = Stage(conductor, target)
            await in_thread(self._blocking.perform, Open())
            return self.enter()
        self._blocking = None
        self._begun = await abegin(target, conductor.database)
        return None

    async def _close(self, *, commit: bool) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            await begun.aend(commit=commit)
