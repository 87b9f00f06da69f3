"""A stage: where one request's procedure is carried out, with a transaction that it may hold open.

A request's transaction begins when its handler does and ends when its answer is complete. In
between the handler runs, so no `with` can span it. As everywhere, what happens is a generator that
yields what it needs done; the two stages know sync from async.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec

from onefold.calls.procedure import Gather, Pause, Transaction
from onefold.databases import Build
from onefold.databases.transactions import (
    Begun,
    abegin,
    begin,
    is_blocking,
    refuse_thread_bound,
)
from onefold.operations.run import run, run_async

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

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


class Call(msgspec.Struct, frozen=True):
    """Call a function of the application's; what it gives is awaited where that can be."""

    function: Any
    arguments: tuple[Any, ...] = ()


Step: TypeAlias = Open | Held[Any] | Close | Call | Transaction[Any] | Gather[Any] | Pause
"""`Transaction` is one of our own, and is committed at once."""

Scene: TypeAlias = "Generator[Step, Any, T]"


class _Undone(Exception):
    """Ends a transaction that is not to be committed."""


class Stage:
    """Carries out, blocking."""

    def __init__(self, conductor: Conductor, target: object = None) -> None:
        """`target` is what the transaction is begun on; None is our own database."""
        self._conductor = conductor
        self._target = target
        self._manager: AbstractContextManager[Begun] | None = None
        self._begun: Begun | None = None

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
                return self._begun.write(build)
            case Close(commit):
                return self._close(commit=commit)
            case Call(function, arguments):
                return _blocking(function, arguments)
            case _:
                return self._conductor.perform(step)

    def _open(self) -> None:
        conductor = self._conductor
        manager = begin(_now(self._target), conductor.database, conductor.clock)
        self._begun, self._manager = manager.__enter__(), manager

    def _close(self, *, commit: bool) -> None:
        manager, self._manager = self._manager, None
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.leave()
        if manager is not None:
            manager.__exit__(*_ended(commit=commit))


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
        self._manager: AbstractAsyncContextManager[Begun] | None = None
        self._begun: Begun | None = None
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
                return await self._begun.awrite(build)
            case Close(commit):
                return await self._close(commit=commit)
            case Call(function, arguments):
                return await _awaited(function, arguments)
            case _:
                return await self._conductor.aperform(step)

    async def _open(self) -> None:
        conductor, target = self._conductor, _now(self._target)
        if self._blocks or (target is not None and is_blocking(target)):
            refuse_thread_bound(target)
            self._blocking = Stage(conductor, target)
            await in_thread(self._blocking.perform, Open())
            return self.enter()
        self._blocking = None
        manager = abegin(target, conductor.database, conductor.clock)
        self._begun, self._manager = await manager.__aenter__(), manager
        return None

    async def _close(self, *, commit: bool) -> None:
        manager, self._manager, self._begun = self._manager, None, None
        if manager is not None:
            await manager.__aexit__(*_ended(commit=commit))


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call what blocks. Nothing stops a thread: who is cancelled meanwhile waits for its end.

    Otherwise the transaction would be ended, and its connection given to somebody else, under the
    hands of a handler that still writes.
    """
    running = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return running.result()


def is_target(value: object) -> bool:
    """Whether a transaction can be begun on it."""
    from onefold.errors import WrongConnection

    try:
        is_blocking(value)
    except WrongConnection:
        return False
    return True


def _ended(*, commit: bool) -> tuple[Any, Any, None]:
    """How a block ends, as its manager is told."""
    return (None, None, None) if commit else (_Undone, _Undone(), None)


def _now(target: object) -> object:
    """What to begin on; a function that gives it is asked each time."""
    if target is not None and callable(target) and not is_target(target):
        return target()
    return target


def _blocking(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    value = function(*arguments)
    if inspect.iscoroutine(value):
        value.close()
        from onefold.errors import UsageError

        raise UsageError(
            f"{function!r} is a coroutine function, and nothing awaits here. Give a plain one."
        )
    return value


async def _awaited(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A plain function may block: `verify` asks a third party."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    value = await in_thread(function, *arguments)
    return await value if inspect.isawaitable(value) else value
