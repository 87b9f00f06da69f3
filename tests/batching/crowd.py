"""Calls that are made at once: all of them wait before the first one is let through.

On SQLite the test holds the file's write lock meanwhile. On PostgreSQL it keeps back what is sent
to the server: a lock would not do, since a batch does not wait long for one.
"""

import asyncio
import struct
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from onefold.claims import Claim
from onefold.databases.batching import AT_ONCE, Gate, ThreadGroup
from tests.faults.proxy import Proxy
from tests.fixtures.colours import Coloured
from tests.fixtures.patience import LOCK
from tests.fixtures.place import Place
from tests.race.crew import DEADLINE, Answer
from tests.race.waiting import until

Call: TypeAlias = Callable[[Coloured], Coroutine[Any, Any, Any]]

Meanwhile: TypeAlias = Callable[[list[Any]], Awaitable[None]]

INLINE = ThreadGroup._run_inline.__code__
WAITING = Gate.wait.__code__


class Crowd:
    """One Onefold of one colour, and a bar that keeps its calls back."""

    def __init__(self, place: Place, onefold: Coloured, proxy: Proxy | None) -> None:
        self.place = place
        self.onefold = onefold
        self._proxy = proxy
        self._barred = True

    @property
    def leaders(self) -> int:
        """How many calls run alone before the others are queued."""
        if not self.place.on_postgres:
            return 0
        return AT_ONCE if self.onefold.colour == "sync" else 1

    @property
    def most_commits(self) -> int:
        """Of a crowd that makes one call each, all in one group."""
        if not self.place.on_postgres or self.onefold.colour == "async":
            return self.leaders + 1
        # Two threads of ours take what is queued while the crowd arrives, and the rest afterwards.
        return self.leaders + AT_ONCE + 1

    @property
    def wire(self) -> Proxy:
        """Between us and PostgreSQL."""
        assert self._proxy is not None
        return self._proxy

    @contextmanager
    def bar(self) -> Generator[None]:
        """Nothing is written while this is open."""
        if not self._barred:
            yield
        elif self._proxy is not None:
            self._proxy.hold()
            try:
                yield
            finally:
                self._proxy.let_go()
        else:
            with closing(self.place.connect()) as connection:
                connection.execute("begin immediate")
                yield

    async def unbarred(self, *calls: Call) -> list[Answer[Any]]:
        """What each is answered, where something else keeps them back."""
        self._barred = False
        try:
            return await self.at_once(*calls)
        finally:
            self._barred = True

    async def at_once(
        self, *calls: Call, before: Meanwhile | None = None, after: Meanwhile | None = None
    ) -> list[Answer[Any]]:
        """What each is answered.

        `before` is given the callers when all have asked and none has been let through, `after`
        when they have been.
        """
        if self.onefold.colour == "async":
            return await self._tasks(calls, before or _nothing, after or _nothing)
        return await self._threads(calls, before or _nothing, after or _nothing)

    async def _tasks(
        self, calls: Sequence[Call], before: Meanwhile, after: Meanwhile
    ) -> list[Answer[Any]]:
        with self.bar():
            tasks = [asyncio.create_task(answer(call(self.onefold))) for call in calls]
            # One turn of the loop: each has asked now.
            await asyncio.wait(tasks, timeout=0)
            until(self._is_queued, "for the writer to have them all")
            await before(tasks)
        await after(tasks)
        await ended(tasks)
        return [Answer() if task.cancelled() else task.result() for task in tasks]

    async def _threads(
        self, calls: Sequence[Call], before: Meanwhile, after: Meanwhile
    ) -> list[Answer[Any]]:
        answers: list[Answer[Any]] = [Answer() for _ in calls]

        def work(number: int, call: Call) -> None:
            answers[number] = driven(answer(call(self.onefold)))

        threads = [
            threading.Thread(target=work, args=(number, call), daemon=True)
            for number, call in enumerate(calls)
        ]
        with self.bar():
            for thread in threads:
                thread.start()
            until(lambda: all(map(has_asked, threads)), "for all to have asked")
            until(self._is_queued, "for the writer to have them all")
            await before(threads)
        await after(threads)
        await ended(threads)
        return answers

    def _is_queued(self) -> bool:
        """Whether nobody is on the way to SQLite's writer."""
        if self.place.on_postgres:
            return True
        writer = self.onefold.target.context.database._state.writer
        return bool(writer._queue.empty())

    async def claims(self, count: int) -> list[Claim]:
        """Claims of as many keys, which are their numbers."""
        answers = [await self.onefold.claim("crowd", str(n), lease=LOCK) for n in range(count)]
        return [answer.claim for answer in answers]

    async def are_settled(self, numbers: Iterable[int]) -> None:
        """Each of these keys has its number as its result."""
        for number in numbers:
            assert (await self.onefold.claim("crowd", str(number))).result == number

    async def is_idle(self) -> None:
        """Come back when no call is queued, waiting or running."""
        if self.place.on_postgres:
            for groups in self.onefold.target.context.database._state.task_groups.values():
                for group in groups.values():
                    await asyncio.gather(*group._running)
        until(lambda: is_idle(self.onefold.target), "for all calls to end")


async def _nothing(callers: list[Any]) -> None:
    """Nothing is done meanwhile."""


async def ended(callers: Sequence[Any]) -> None:
    """Come back when these threads or tasks have been answered."""
    if isinstance(callers[0], asyncio.Task):
        done, _ = await asyncio.wait(callers, timeout=DEADLINE)
        assert len(done) == len(callers), "somebody was never answered"
    else:
        for thread in callers:
            thread.join(DEADLINE)
            assert not thread.is_alive(), "somebody was never answered"


@contextmanager
def holding(place: Place, *keys: str) -> Generator[Any]:
    """The application's connection, with an open transaction that has these keys."""
    with place.open() as onefold, place.connection() as connection:
        connection.execute(place.begin)
        # SQLite's lock is on the file, whatever is written.
        for key in keys if place.on_postgres else ():
            onefold.within(connection).enqueue("mail", "holder", unique_key=key)
        yield connection


def goes_on(caller: Any) -> bool:
    """Whether a thread or task has not been answered yet."""
    return caller.is_alive() if isinstance(caller, threading.Thread) else not caller.done()


def has_asked(thread: threading.Thread) -> bool:
    """Whether a thread waits for its answer, runs its own transaction, or was refused."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is not None and frame.f_code is WAITING:
        return True
    while frame is not None and frame.f_code is not INLINE:
        frame = frame.f_back
    return frame is not None or not thread.is_alive()


async def answer(call: Coroutine[Any, Any, Any]) -> Answer[Any]:
    """What a call is answered, its error included."""
    try:
        return Answer(await call)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return Answer(error=error)


def driven(call: Coroutine[Any, Any, Any]) -> Any:
    """The answer of a coroutine that never suspends: a blocking call in disguise."""
    try:
        call.send(None)
    except StopIteration as finished:
        return finished.value
    raise AssertionError("it suspended")


def enqueue(kind: str = "mail", payload: Any = None, **options: Any) -> Call:
    """A call, as a crowd takes it."""

    async def call(onefold: Coloured) -> Any:
        return await onefold.enqueue(kind, payload, **options)

    return call


def settle(claim: Any, result: Any = None) -> Call:
    """A call, as a crowd takes it."""

    async def call(onefold: Coloured) -> Any:
        return await onefold.keys.settle(claim, result)

    return call


class Commits:
    """Counts the commits that changed a table, from when it is made."""

    def __init__(self, place: Place, table: str) -> None:
        self._place = place
        self._table = table
        self._before = self._seen()

    def count(self) -> int:
        return len(self._seen() - self._before)

    def _seen(self) -> set[Any]:
        if self._place.on_postgres:
            # Rows of one transaction carry its number.
            return set(self._place.rows(f"select xmin::text from {{{self._table}}}"))
        return set(_commits_in(Path(self._place.url.removeprefix("sqlite:///") + "-wal")))


def _commits_in(wal: Path) -> Iterator[int]:
    """The places of the frames that end a transaction, in the log that SQLite writes ahead."""
    if not wal.exists():
        return
    content = wal.read_bytes()
    if not content:
        return
    page_size, salts = struct.unpack_from(">I", content, 8)[0], content[16:24]
    for place in range(32, len(content), 24 + page_size):
        (pages,) = struct.unpack_from(">I", content, place + 4)
        if content[place + 8 : place + 16] == salts and pages:
            yield place


def is_idle(onefold: Any) -> bool:
    """Whether no call is queued, waiting or running."""
    state = onefold.context.database._state
    if not hasattr(state, "thread_groups"):
        return not state.writer._running
    every = [groups for groups in (*state.task_groups.values(), state.thread_groups) if groups]
    return not any(
        groups._held or any(group._running for group in groups.values()) for groups in every
    )
