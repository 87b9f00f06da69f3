"""Group commit: single calls of many threads or tasks share one statement and one commit.

    call ──────────── transaction ──── answer      alone: in its own thread or task
    call ─┐                          ┌ answer
    call ─┼─ queue ── transaction ───┼ error       meanwhile: in a background thread or task
    call ─┘                          └ answer

1. There is no timer. A call that finds no transaction of its group under way runs at once, in its
   own thread or task. A call that arrives meanwhile is queued. A background thread or task empties
   the queue, batch by batch. If the last batch had several calls, a task waits while each turn of
   the event loop brings another one.
2. No caller works for others, so an interrupted or cancelled caller affects only itself.
3. A batch that fails runs again item by item: the error of one item goes to its caller only.
4. A batch does not wait long for a key that another transaction holds. The callers of that key wait
   for it apart from the others.
"""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Hashable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from copy import copy
from operator import methodcaller
from queue import Empty, SimpleQueue
from threading import Lock, RLock, Thread, current_thread, get_ident
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import msgspec

from onefold.errors import (
    Closed,
    DatabaseBusy,
    DatabaseUnavailable,
    OnefoldError,
    SchemaOutdated,
    SchemaTooNew,
    ShardsDiffer,
    UsageError,
)
from onefold.operations.statement import Operation, Sql, run, run_async

if TYPE_CHECKING:
    from onefold.databases import Build

FORKED: Final = "A signal handler forked during this call. The parent makes it: end the child."
V = TypeVar("V")
T = TypeVar("T")

LARGEST_BATCH: Final = 1_000
AT_ONCE: Final = 2
"""Transactions of one group: while one waits for the disk, the next is sent."""
QUEUED_CALLS_MAX: Final = 8  # So many do not wait for the transaction under way.
SLOW_AFTER: Final = 0.1
"""Seconds after which a transaction is not waited for: its connection may hang."""
IDLE: Final = 1.0
"""Seconds without work after which a background thread ends."""
HELD_KEYS: Final = 5
"""Held keys that are waited for at a time. The other connections stay free for other calls."""
MOST_GROUPS: Final = 100
"""Groups that are kept: there may be one for each value of `max_wait`."""


class Item(msgspec.Struct, Generic[V, T], frozen=True):
    """One value for a plural operation, which may run together with the values of other callers."""

    many: Callable[[Sql, Sequence[V]], Operation[list[T]]]
    value: V
    group: Hashable
    """Items of one group run together, by the `many` of any of them."""
    key: Hashable
    """What the item may have to wait for."""

    def alone(self, sql: Sql) -> Operation[T]:
        """The operation of this item alone."""
        (answer,) = yield from self.many(sql, [self.value])
        return answer


class KeyHeld(Exception):
    """Another transaction holds what an impatient transaction needs."""


class QueuedCall:
    """A queued call."""

    def __init__(self, item: Item[Any, Any]) -> None:
        self.item = item
        self.is_answered: bool = False
        self.answer: Any = None
        self.error: BaseException | None = None

    @property
    def is_abandoned(self) -> bool:
        """True if the caller was interrupted or cancelled."""
        raise NotImplementedError

    def set(self, answer: object, error: BaseException | None = None) -> None:
        """Store the outcome. The caller does not have it before `wake`."""
        self.answer, self.error = answer, error
        self.is_answered = True

    def wake(self) -> None:
        """Give the outcome to the caller."""
        raise NotImplementedError


class TaskCall(QueuedCall):
    """A queued call of a task, which runs in its event loop."""

    def __init__(self, item: Item[Any, Any]) -> None:
        super().__init__(item)
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def is_abandoned(self) -> bool:
        """True if the task was cancelled."""
        return self.future.done()

    def wake(self) -> None:
        """Resolve the future. Called by its loop, which may run in another thread by now."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.answer)
        else:
            self.future.set_exception(self.error)


class Entry(QueuedCall):
    """A queued call that a thread of ours runs."""

    def __init__(self, item: Item[Any, Any], deadline: float) -> None:
        super().__init__(item)
        self.deadline = deadline
        self.thread: int = get_ident()
        self.context: Context = copy_context()
        self.is_checked = False
        """True after the check whether the caller would wait for itself."""


class Gate:
    """Lets one thread wait until another one opens it.

    An Event has a lock in Python, which a signal may leave locked. This lock has no such moment.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread."""
        with suppress(RuntimeError):  # open already
            self._lock.release()

    def wait(self, seconds: float = -1) -> bool:
        """Wait until it is open, and shut it again; False after so many seconds."""
        return self._lock.acquire(timeout=seconds)


class ThreadEntry(Entry):
    """A queued call of a thread."""

    def __init__(self, item: Item[Any, Any], deadline: float) -> None:
        super().__init__(item, deadline)
        self.gate: Gate = Gate()
        self.abandoned: bool = False

    @property
    def is_abandoned(self) -> bool:
        """True if the thread was interrupted."""
        return self.abandoned

    def wake(self) -> None:
        """Wake the thread."""
        self.gate.set()


class TaskEntry(Entry, TaskCall):
    """A queued call of a task, which a thread of ours runs."""

    def __init__(self, item: Item[Any, Any], deadline: float) -> None:
        super().__init__(item, deadline)
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()

    def wake(self) -> None:
        """Resolve the future, in the thread of its loop."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(super().wake)


E = TypeVar("E", bound=QueuedCall)

_wake: Final = methodcaller("wake")


def together(entries: Sequence[QueuedCall]) -> Build[list[Any]]:
    """The operation of all items of a batch."""
    values = [entry.item.value for entry in entries]
    return lambda sql: entries[0].item.many(sql, values)


def run_entries(
    entries: Sequence[E], done: Callable[[E], object]
) -> Generator[Sequence[E], list[Any], None]:
    """Run a batch in one transaction; if that fails, each entry in its own.

    Yields the entries that are to run in one transaction, and receives their answers. Calls `done`
    with each entry that has its outcome.
    """
    try:
        answers = list(zip(entries, (yield entries), strict=True))
    except Exception as error:  # noqa: BLE001 - which item it belongs to is found out one by one
        if len(entries) == 1 or concerns_all(error):
            fail_all(entries, error, done)
        else:
            yield from _one_by_one(entries, done)
    else:
        for entry, answer in answers:
            entry.set(answer)
            done(entry)


def _one_by_one(
    entries: Sequence[E], done: Callable[[E], object]
) -> Generator[Sequence[E], list[Any], None]:
    held: set[Hashable] = set()
    for place, entry in enumerate(entries):
        if entry.item.key in held:
            fail_all([entry], KeyHeld(), done)
            continue
        try:
            (answer,) = yield [entry]
        except Exception as error:  # noqa: BLE001 - of this item, or of all that follow
            if concerns_all(error):
                fail_all(entries[place:], error, done)
                return
            if isinstance(error, KeyHeld):
                held.add(entry.item.key)
            fail_all([entry], error, done)
        else:
            entry.set(answer)
            done(entry)


def concerns_all(error: Exception) -> bool:
    """True for an error that every item would get, alone or together with others.

    Each would wait again for a server that is away, or for a free connection.
    """
    if isinstance(error, DatabaseBusy):
        return bool(error.waited)
    return isinstance(
        error, DatabaseUnavailable | SchemaOutdated | SchemaTooNew | ShardsDiffer | Closed
    )


def fail_all(entries: Sequence[E], error: BaseException, done: Callable[[E], object]) -> None:
    """Give all entries the same error."""
    for entry in entries:
        # A copy for each caller: an error gets the traceback of the thread that raises it.
        entry.set(None, copy(error) if isinstance(error, OnefoldError) else error)
        done(entry)


Waiter: TypeAlias = Gate | asyncio.Event
"""Wakes a thread or a task."""


class HeldKeys(dict[Waiter, tuple[Hashable, Hashable]]):
    """The callers that wait for held keys, in the order of their arrival, with group and key.

    The first caller of each key waits in the database, for a few keys at a time. It is a dict, so a
    thread is added and removed in one step, which no signal can interrupt.
    """

    def __init__(self, timeout: float, busy: Callable[[], Exception]) -> None:
        """`busy` makes the error for a key that was held for so many seconds."""
        super().__init__()
        self.timeout = timeout
        self.busy = busy

    def waits_for(self, item: Item[Any, Any]) -> bool:
        """Whether a caller waits for the key of an item."""
        return (item.group, item.key) in list(self.values())

    def have_turn(self) -> list[Waiter]:
        """The callers that may wait in the database now."""
        first: dict[Hashable, Waiter] = {}
        for waiter, key in list(self.items()):
            first.setdefault(key, waiter)
        return list(first.values())[:HELD_KEYS]

    def wake(self) -> None:
        """Wake the callers that may wait in the database now."""
        for waiter in self.have_turn():
            waiter.set()


class ThreadQueue(ABC):
    """Calls of threads: one at a time runs inline, the others run in batches of a thread of ours.

    A signal may interrupt a caller at any moment. So the state that callers change is changed by
    single operations on dicts and queues, or under a lock that is written in C.
    """

    largest: ClassVar[int] = LARGEST_BATCH
    at_once: ClassVar[int] = AT_ONCE
    name: ClassVar[str] = "onefold-batch"

    def __init__(self, timeout: Callable[[], float]) -> None:
        self._timeout = timeout
        self._idle = IDLE
        self._queue: SimpleQueue[Entry | None] = SimpleQueue()
        # Reentrant: a signal handler may enqueue in the middle of an enqueue.
        self._lock = RLock()
        self._threads: set[Thread] = set()
        self._running: dict[int, None] = {}
        """The threads that are in a transaction of this queue, callers and ours."""

    def run(self, item: Item[Any, T]) -> T:
        """Run an item, at once or together with others."""
        deadline = time.monotonic() + self._timeout()
        # Not under the lock: one call too many does no harm.
        if len(self._running) < self.at_once and self._queue.empty():
            me = get_ident()
            try:
                self._running[me] = None
                answers = self._run_inline(item)
            finally:
                self._running.pop(me, None)
            if answers is not None:
                return answers[0]
        answer: T = self._run_queued(ThreadEntry(item, deadline))
        return answer

    def _run_queued(self, entry: ThreadEntry) -> Any:
        process = os.getpid()
        try:
            self.put(entry)
            if not entry.gate.wait(SLOW_AFTER):
                self._start_thread(late=True)
                while not entry.gate.wait(IDLE):
                    if process != os.getpid():
                        raise UsageError(FORKED)  # noqa: TRY301 - the entry is abandoned
        except BaseException:
            entry.abandoned = True
            raise
        if entry.error is not None:
            raise entry.error
        return entry.answer

    def put(self, entry: Entry) -> None:
        """Queue a call."""
        self._queue.put(entry)
        self._start_thread()

    def _start_thread(self, *, late: bool = False) -> None:
        """Start a thread of ours if there is none, or one more if calls have to wait."""
        with self._lock:
            running = len(self._threads)
            more = running < self.at_once and (late or self._queue.qsize() >= QUEUED_CALLS_MAX)
            if not running or more:
                thread = Thread(target=self._work, name=self.name, daemon=True)
                thread.start()
                # Last: a thread whose start was interrupted does not count.
                self._threads.add(thread)

    def _work(self) -> None:
        me = get_ident()
        while entries := self._next():
            self._running[me] = None
            try:
                self._run_batch(entries)
            except BaseException as error:  # noqa: BLE001 - the callers receive it
                left = [entry for entry in entries if not entry.is_answered]
                fail_all(left, error, _wake)
            finally:
                self._running.pop(me, None)

    def _next(self) -> list[Entry]:
        """The next batch, as soon as there is one; nothing when it is time to end."""
        while True:
            with suppress(Empty):
                if entries := self._queued(self._queue.get(timeout=self._idle)):
                    return entries
            with self._lock:
                if self._queue.empty():
                    self._threads.discard(current_thread())
                    return []

    def _queued(self, *first: Entry | None) -> list[Entry]:
        """The calls that are queued now, after the first one, without those that were abandoned."""
        found = [*first]
        with suppress(Empty):
            while len(found) < self.largest:
                found.append(self._queue.get_nowait())
        return [entry for entry in found if entry is not None and not entry.is_abandoned]

    @abstractmethod
    def _run_inline(self, item: Item[Any, T]) -> list[T] | None:
        """Run an item in the caller's thread; None if it has to be queued."""

    @abstractmethod
    def _run_batch(self, entries: list[Entry]) -> None:
        """Run a batch, and wake the callers. It may add entries."""


class ThreadGroup(ThreadQueue):
    """The calls of one group among the threads of a process.

    `transact(build, patient=…)` runs an operation. One that is not patient raises `KeyHeld` at a
    held key; a patient one waits for it until its `deadline`.
    """

    def __init__(self, transact: Callable[..., Any], held: HeldKeys) -> None:
        super().__init__(lambda: held.timeout)
        self._transact = transact
        self._held = held

    def run(self, item: Item[Any, T]) -> T:
        """Run an item, at once or together with others; apart from them if its key is held."""
        deadline = time.monotonic() + self._timeout()
        if not self._held or not self._held.waits_for(item):
            with suppress(KeyHeld):
                return super().run(item)
        return self._run_apart(item, deadline)

    def _run_apart(self, item: Item[Any, T], deadline: float) -> T:
        gate = Gate()
        try:
            self._held[gate] = (item.group, item.key)
            while gate not in self._held.have_turn():
                if (left := deadline - time.monotonic()) <= 0:
                    raise self._held.busy()
                # At most so long: the caller before may be interrupted before it wakes this one.
                gate.wait(min(left, SLOW_AFTER))
            answer: T = self._transact(item.alone, patient=True, deadline=deadline)
            return answer
        finally:
            self._held.pop(gate, None)
            self._held.wake()

    def _run_inline(self, item: Item[Any, T]) -> list[T] | None:
        return [self._transact(item.alone, patient=False)]

    def _run_batch(self, entries: list[Entry]) -> None:
        def transact(some: Sequence[Entry]) -> list[Any]:
            return some[0].context.run(self._transact, together(some), patient=False)

        run(run_entries(entries, _wake), transact)


class TaskGroup:
    """The calls of one group among the tasks of an event loop. `transact` is awaited."""

    def __init__(self, transact: Callable[..., Awaitable[Any]], held: HeldKeys) -> None:
        self._transact = transact
        self._held = held
        self._queue: deque[TaskCall] = deque()
        self._shares = False
        """True if the last batch had several calls."""
        self._running: dict[object, float] = {}
        """The transactions under way, and since when: calls that run inline, and tasks of ours.

        A task stays here until all callers of its batch have gone on, so their next calls share the
        next batch.
        """
        self._is_starting = False
        self._is_watched = False

    @property
    def is_idle(self) -> bool:
        """Whether no call is queued or running."""
        return not self._running and not self._queue

    async def run(self, item: Item[Any, T]) -> T:
        """Run an item, at once or together with others; apart from them if its key is held."""
        deadline = time.monotonic() + self._held.timeout
        if not self._held or not self._held.waits_for(item):
            with suppress(KeyHeld):
                if self.is_idle and not self._shares:
                    return await self._run_inline(item)
                call = TaskCall(item)
                self._queue.append(call)
                self._start_task()
                answer: T = await call.future
                return answer
        return await self._run_apart(item, deadline)

    async def _run_inline(self, item: Item[Any, T]) -> T:
        call = object()
        self._running[call] = time.monotonic()
        try:
            answer: T = await self._transact(item.alone, patient=False)
            return answer
        finally:
            del self._running[call]
            self._start_task()

    async def _run_apart(self, item: Item[Any, T], deadline: float) -> T:
        turn = asyncio.Event()
        self._held[turn] = (item.group, item.key)
        try:
            while turn not in self._held.have_turn():
                turn.clear()
                try:
                    async with asyncio.timeout(deadline - time.monotonic()):
                        await turn.wait()
                except TimeoutError:
                    raise self._held.busy() from None
            answer: T = await self._transact(item.alone, patient=True, deadline=deadline)
            return answer
        finally:
            del self._held[turn]
            self._held.wake()

    def _start_task(self) -> None:
        """Start a task for the queued calls, now or when the one under way is late."""
        if not self._queue or self._is_starting:
            return
        if self._may_start():
            self._is_starting = True
            task = asyncio.get_running_loop().create_task(self._work())
            self._running[task] = time.monotonic()
            task.add_done_callback(self._end_task)
        elif not self._is_watched:
            self._is_watched = True
            asyncio.get_running_loop().call_later(SLOW_AFTER, self._look_again)

    def _may_start(self) -> bool:
        """Few calls wait for the transaction under way: for a busy loop, each batch is costly."""
        if not self._running:
            return True
        is_late = time.monotonic() - max(self._running.values()) >= SLOW_AFTER
        return len(self._running) < AT_ONCE and (len(self._queue) >= QUEUED_CALLS_MAX or is_late)

    def _look_again(self) -> None:
        self._is_watched = False
        self._start_task()

    def _end_task(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if task.cancelled():  # perhaps before it began
            self._is_starting = False
        self._queue = deque(call for call in self._queue if not call.is_abandoned)
        self._start_task()

    async def _work(self) -> None:
        queued = 0
        while queued < len(self._queue) < QUEUED_CALLS_MAX:
            queued = len(self._queue)
            await asyncio.sleep(0)
        self._is_starting = False
        calls = self._next()
        self._shares = len(calls) > 1
        try:
            if calls:
                await self._run_calls(calls)
        finally:
            # Cancelled, as when the loop ends: the callers may still wait.
            self._queue.extendleft(call for call in reversed(calls) if not call.is_answered)

    async def _run_calls(self, calls: Sequence[TaskCall]) -> None:
        await run_async(run_entries(calls, _wake), self._run_batch)

    async def _run_batch(self, calls: Sequence[TaskCall]) -> list[Any]:
        answers: list[Any] = await self._transact(together(calls), patient=False)
        return answers

    def _next(self) -> list[TaskCall]:
        calls: list[TaskCall] = []
        while self._queue and len(calls) < LARGEST_BATCH:
            call = self._queue.popleft()
            if not call.is_abandoned:
                calls.append(call)
        return calls


G = TypeVar("G", bound=ThreadGroup | TaskGroup)


class Groups(dict[Hashable, G]):
    """The groups of a process or of an event loop, by name. They share the held keys."""

    def __init__(self, make: Callable[[HeldKeys], G], held: HeldKeys) -> None:
        super().__init__()
        self._make = make
        self._held = held

    def __missing__(self, name: Hashable) -> G:
        if len(self) >= MOST_GROUPS:
            self.clear()  # calls under way go on
        return self.setdefault(name, self._make(self._held))
