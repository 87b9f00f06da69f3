"""The runtime: procedures, the commands that they yield, and the two drivers that carry them out.

An operation runs inside a transaction and yields statements. A procedure runs around transactions
and yields commands, so it is written once for blocking and for awaiting callers:

    def add(build: Build[int]) -> Procedure[int]:
        first = yield from transact(build)
        yield Pause(0.1)
        return first + (yield from transact(build))

    runtime.run(add(build))
    await runtime.arun(add(build))

`transact` and `batch` are procedures of one command, for the type of its result. `call` and
`awaited` make the two methods of a procedure.

An error of a command is raised at its `yield`. A driver that is cancelled or interrupted closes the
procedure, which cannot yield any more: the object that holds a transaction ends it in its own
`finally`, and what must not stay half done runs by `arun_to_end`.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Callable, Generator
from functools import partial, wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
)

from msgspec import Struct

from onefold.databases import Build, Store, Transact
from onefold.databases.batching import Item
from onefold.databases.handler_transaction import (
    HandlerTransaction,
    abegin,
    begin,
    current_target,
    is_blocking,
    refuse_thread_bound,
)
from onefold.databases.reach import waiting
from onefold.errors import UsageError
from onefold.operations.statement import run, run_async

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from contextlib import AbstractContextManager
    from datetime import timedelta

__all__ = [
    "Batch",
    "Begin",
    "Call",
    "Calls",
    "Command",
    "End",
    "Execute",
    "FindByKey",
    "Pause",
    "Procedure",
    "RequestRuntime",
    "Runtime",
    "Send",
    "Sender",
    "Transact",
    "acalled",
    "awaited",
    "batch",
    "call",
    "called",
    "in_thread",
    "kept_task",
    "shielded",
    "transact",
    "waits",
]

P = ParamSpec("P")
T = TypeVar("T")


class Batch(Struct, Generic[T], frozen=True):
    """Run one item of a plural operation, committed together with items of other callers."""

    item: Item[Any, T]


class FindByKey(Struct, Generic[T], frozen=True):
    """Read a few rows by their keys, in one statement."""

    build: Build[T]


class Begin(Struct, frozen=True):
    """Begin a transaction that stays open while a handler runs; returns a `HandlerTransaction`."""

    target: object = None
    """An engine, pool, session or connection, or a function that returns one; None: our own."""
    blocking: bool = False
    """True if the handler is a plain function."""
    first: Build[Any] | None = None
    """An operation to run at once; its result is the `answer` of the transaction."""


class Execute(Struct, Generic[T], frozen=True):
    """Run an operation in a transaction that `Begin` has returned."""

    transaction: HandlerTransaction
    build: Build[T]


class End(Struct, frozen=True):
    """Commit that transaction, or roll it back."""

    transaction: HandlerTransaction
    commit: bool
    last: Build[Any] | None = None
    """An operation to run before the commit."""


class Call(Struct, frozen=True):
    """Call a function of the application: a handler, `verify`, `refresh`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


class Send(Struct, frozen=True):
    """Send a request with the sender of the runtime; returns its response."""

    request: Any


class Pause(Struct, frozen=True):
    """Wait."""

    seconds: float


Command: TypeAlias = (
    Transact[Any] | Batch[Any] | FindByKey[Any] | Begin | Execute[Any] | End | Call | Send | Pause
)
Procedure: TypeAlias = Generator[Command, Any, T]


def transact(build: Build[T], *, write: bool = True) -> Procedure[T]:
    """Run an operation in a transaction."""
    result: T = yield Transact(build, write)
    return result


def batch(item: Item[Any, T]) -> Procedure[T]:
    """Run one item of a plural operation, committed together with items of other callers."""
    result: T = yield Batch(item)
    return result


class Sender(Protocol):
    """Sends requests of a client."""

    def send(self, request: Any) -> Any:
        """Send a request and return its response."""
        ...

    async def asend(self, request: Any) -> Any:
        """`send`, awaited."""
        ...


class Runtime:
    """Carries out procedures: on our own database, on a borrowed connection, or over HTTP."""

    def __init__(self, store: Store | None = None, *, sender: Sender | None = None) -> None:
        """A client has no store, and the library no sender: they yield no command that needs it."""
        self.store: Store = cast("Store", store)
        self.sender: Sender = cast("Sender", sender)

    def run(self, procedure: Procedure[T]) -> T:
        """Carry out a procedure, blocking."""
        return run(procedure, self.perform)

    async def arun(self, procedure: Procedure[T]) -> T:
        """Carry out a procedure, awaiting."""
        return await run_async(procedure, self.aperform)

    async def arun_to_end(self, procedure: Procedure[T]) -> T:
        """Carry out a procedure to its end even if the caller is cancelled meanwhile."""
        return await shielded(self.arun(procedure))[1]

    def perform(self, command: Command) -> Any:  # noqa: C901, PLR0911 - a case per command
        """Perform one command, blocking."""
        match command:
            case Batch():
                return self.store.batch(command.item)
            case Transact():
                return self.store.transact(command.build, write=command.write)
            case FindByKey(build):
                return self.store.transact(build, write=False)
            case Execute(transaction, build):
                return transaction.execute(build)
            case End(transaction, commit, last):
                return transaction.end(commit=commit, last=last)
            case Begin(target, _, first):
                return begin(current_target(target), self.store.database, first)
            case Call(function, arguments):
                return called(function, arguments)
            case Send(request):
                return self.sender.send(request)
            case Pause(seconds):
                return time.sleep(seconds)

    async def aperform(self, command: Command) -> Any:  # noqa: C901, PLR0911 - a case per command
        """Perform one command, awaiting."""
        match command:
            case Batch():
                return await self.store.abatch(command.item)
            case Transact():
                return await self.store.atransact(command.build, write=command.write)
            case FindByKey(build):
                return await self.store.alook(build)
            case Execute(transaction) | End(transaction) if transaction.blocking:
                return await in_thread(self.perform, command)
            case Execute(transaction, build):
                return await transaction.aexecute(build)
            case End(transaction, commit, last):
                return await transaction.aend(commit=commit, last=last)
            case Begin(target, blocking, first):
                return await self._abegin(current_target(target), first, blocking=blocking)
            case Call(function, arguments):
                return await acalled(function, arguments)
            case Send(request):
                return await self.sender.asend(request)
            case Pause(seconds):
                return await asyncio.sleep(seconds)

    async def _abegin(
        self, target: object, first: Build[Any] | None, *, blocking: bool
    ) -> HandlerTransaction:
        database = self.store.database
        if not blocking and (target is None or not is_blocking(target)):
            return await abegin(target, database, first)
        refuse_thread_bound(target)
        begun: list[HandlerTransaction] = []
        try:
            await in_thread(lambda: begun.append(begin(target, database, first)))
        except asyncio.CancelledError:
            for transaction in begun:
                await in_thread(lambda: transaction.end(commit=False))  # noqa: B023 - called here
            raise
        # The thread has entered it in a copy of this context.
        begun[0].enter()
        return begun[0]


class RequestRuntime(Runtime):
    """The runtime of a request: it waits for the database for `database_wait`.

    The functions that it calls wait as they do elsewhere.
    """

    def __init__(self, runtime: Runtime) -> None:
        """`runtime` carries out the commands."""
        super().__init__(runtime.store)
        self._runtime = runtime

    def perform(self, command: Command) -> Any:
        """Perform one command, blocking."""
        with self._waiting(command):
            return self._runtime.perform(command)

    async def aperform(self, command: Command) -> Any:
        """Perform one command, awaiting."""
        with self._waiting(command):
            return await self._runtime.aperform(command)

    def _waiting(self, command: Command) -> AbstractContextManager[None]:
        is_call = isinstance(command, Call)
        return waiting(None if is_call else self.store.database.database_wait)


class Calls:
    """An object whose calls are procedures."""

    _runtime: Runtime


CallsT = TypeVar("CallsT", bound=Calls)


def call(
    procedure: Callable[Concatenate[CallsT, P], Procedure[T]],
) -> Callable[Concatenate[CallsT, P], T]:
    """Make the blocking method of a procedure. `awaited` makes the other one of the same.

    class Workers(Calls):
        @call
        def find(self) -> Procedure[tuple[WorkerStatus, ...]]:
            return transact(workers.find)

        afind: Final = awaited(find)
    """
    # Signatures, help and type hints show what a caller receives.
    hints = procedure.__annotations__
    hints["return"] = hints["return"].removeprefix("Procedure[").removesuffix("]")

    @wraps(procedure)
    def blocking(self: CallsT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        runtime = self._runtime  # pyright: ignore[reportPrivateUsage]
        return runtime.run(procedure(self, *args, **kwargs))

    # Since Python 3.14, `wraps` does not copy what has been changed.
    blocking.__annotations__ = hints
    return blocking


def awaited(
    method: Callable[Concatenate[CallsT, P], T],
) -> Callable[Concatenate[CallsT, P], Coroutine[Any, Any, T]]:
    """Make the awaiting method of a procedure, for the name with a leading `a`.

    `Final` is what lets type checkers use the type of the value as that of the name.
    """
    procedure: Callable[Concatenate[CallsT, P], Procedure[T]] = inspect.unwrap(method)

    @wraps(procedure)
    async def awaiting(self: CallsT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        runtime = self._runtime  # pyright: ignore[reportPrivateUsage]
        return await runtime.arun(procedure(self, *args, **kwargs))

    name = procedure.__name__
    awaiting.__name__ = f"a{name}"
    awaiting.__qualname__ = f"{procedure.__qualname__.removesuffix(name)}a{name}"
    awaiting.__doc__ = f"`{name}`, awaited."
    awaiting.__annotations__ = procedure.__annotations__
    return awaiting


_kept: Final[set[asyncio.Task[Any]]] = set()
"""Event loops refer to tasks weakly."""


def kept_task(
    coroutine: Coroutine[Any, Any, T], kept: set[asyncio.Task[Any]] = _kept
) -> asyncio.Task[T]:
    """A task that is not collected before it ends, although its caller has gone."""
    task = asyncio.get_running_loop().create_task(coroutine)
    kept.add(task)
    task.add_done_callback(partial(_let_go, kept))
    return task


def _let_go(kept: set[asyncio.Task[Any]], task: asyncio.Task[Any]) -> None:
    kept.discard(task)
    if not task.cancelled():
        task.exception()  # seen: its caller may have gone


def shielded(
    coroutine: Coroutine[Any, Any, T], kept: set[asyncio.Task[Any]] = _kept
) -> tuple[asyncio.Task[T | None], asyncio.Future[T]]:
    """Run a coroutine in a task. Its caller awaits the future; if cancelled, the task goes on.

    The future gets the result or the `Exception`. The task has the result, too; it has the error
    if the future was cancelled before. Any other error, such as a cancellation of the task, is in
    the task, and cancels the future. Unlike `asyncio.shield`, the task sets the future itself, so
    the caller goes on one turn of the loop earlier.
    """
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    task = kept_task(_settling(coroutine, outcome), kept)
    return task, outcome


async def _settling(coroutine: Coroutine[Any, Any, Any], outcome: asyncio.Future[Any]) -> Any:
    try:
        result = await coroutine
    except BaseException as error:
        if outcome.cancelled() or not isinstance(error, Exception):
            outcome.cancel()
            raise
        outcome.set_exception(error)
        return None
    if not outcome.cancelled():
        outcome.set_result(result)
    return result


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that blocks. A caller that is cancelled meanwhile waits for its end.

    Otherwise the transaction would be ended, and its connection be used by another caller, while
    a handler in the thread still writes.
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


def called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a plain function; `UsageError` for a coroutine function, which cannot be awaited."""
    value = function(*arguments)
    if inspect.iscoroutine(value):
        value.close()
        raise UsageError(
            f"{function!r} is a coroutine function, and nothing awaits here. Give a plain one."
        )
    return value


async def acalled(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Await a coroutine function; call a plain one in a thread, because it may block."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    value = await in_thread(function, *arguments)
    return await value if inspect.isawaitable(value) else value


def waits(wait: timedelta | None, *, longest: float = 0.25) -> Iterator[float]:
    """Pauses of growing length until `wait` is over, jittered so that waiters spread out."""
    if wait is None:
        return
    deadline = time.monotonic() + wait.total_seconds()
    pause = 0.005
    while (left := deadline - time.monotonic()) > 0:
        yield min(left, pause * (0.5 + random.random()))
        pause = min(pause * 2, longest)
