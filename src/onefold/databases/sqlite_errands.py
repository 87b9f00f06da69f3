"""Errands: what callers want written to a SQLite file, and how they are told what became of it."""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from onefold.databases.gathering import Shared, Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.databases import Build
    from onefold.operations.statement import Operation, Sql

T = TypeVar("T")


def by_itself(build: Build[T]) -> Shared[None, T]:
    """An operation that cannot be run together with others, though it may share their commit."""

    def many(sql: Sql, items: Sequence[None]) -> Operation[list[T]]:
        del items
        answer = yield from build(sql)
        return [answer]

    return Shared(many, None, object(), None)


class Errand(Waiting):
    """What a caller wants written. It is told after the commit, not before."""

    def __init__(self, shared: Shared[Any, Any], deadline: float) -> None:
        """Made in the caller's thread."""
        super().__init__(shared, deadline)
        self.looked = False
        self.thread: int = threading.get_ident()
        self.context: Context = copy_context()
        self.answer: Any = None
        self.error: BaseException | None = None

    def _tell(self, answer: object, error: BaseException | None) -> None:
        self.answer, self.error = answer, error

    @property
    @abstractmethod
    def is_abandoned(self) -> bool:
        """True where nobody waits for it any more."""


class ThreadsErrand(Errand):
    """The caller is a thread."""

    def __init__(self, shared: Shared[Any, Any], deadline: float) -> None:
        """The gate is shut until it is answered."""
        super().__init__(shared, deadline)
        self._gate = threading.Lock()
        self._gate.acquire()
        self._abandoned = False

    @property
    def is_abandoned(self) -> bool:
        """True where the thread was interrupted."""
        return self._abandoned

    def deliver(self) -> None:
        """Let the caller go on."""
        self._gate.release()

    def result(self) -> Any:
        """Wait for the answer."""
        try:
            self._gate.acquire()
        except BaseException:
            self._abandoned = True
            raise
        if self.error is not None:
            raise self.error
        return self.answer


class TasksErrand(Errand):
    """The caller is a task."""

    def __init__(self, shared: Shared[Any, Any], deadline: float) -> None:
        """Made in the running loop."""
        super().__init__(shared, deadline)
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    @property
    def is_abandoned(self) -> bool:
        """True where the task was cancelled."""
        return self.future.done()

    def resolve(self) -> None:
        """Answer, in the loop's own thread."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.answer)


def deliver(errands: Sequence[Errand]) -> None:
    """Tell the callers; those of one event loop all at once."""
    loops: dict[asyncio.AbstractEventLoop, list[TasksErrand]] = {}
    for errand in errands:
        if isinstance(errand, ThreadsErrand):
            errand.deliver()
        elif isinstance(errand, TasksErrand):
            loops.setdefault(errand.loop, []).append(errand)
    for loop, group in loops.items():
        # A loop that has been closed meanwhile has nobody to tell.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, group)


def _resolve(errands: Sequence[TasksErrand]) -> None:
    for errand in errands:
        errand.resolve()
