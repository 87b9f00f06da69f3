"""Procedures: several transactions, and pauses between them, written once for sync and async.

The same trick as operations, one level up: a generator that yields what it needs done.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from onefold.calls.defaults import Defaults
from onefold.calls.hooks import Hooks
from onefold.calls.suppressing import Suppressing
from onefold.databases import Build, Transact
from onefold.runtime import Batch, Pause, Procedure, Runtime, waits

if TYPE_CHECKING:
    from onefold.databases import Clock, Database, Store
    from onefold.databases.borrowed import Borrowed

__all__ = ["Conductor", "Gather", "Pause", "Procedure", "Transaction", "once_through", "waits"]

T = TypeVar("T")


Transaction = Transact
Gather = Batch


def once_through(build: Build[T], *, write: bool = True) -> Procedure[T]:
    """A procedure of one transaction: what most calls are."""
    result: T = yield Transaction(build, write)
    return result


class Conductor(Runtime):
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
        super().__init__(database if borrowed is None else borrowed)
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

    @property
    def store(self) -> Store:
        """Where transactions run."""
        return self.database if self.borrowed is None else self.borrowed

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
