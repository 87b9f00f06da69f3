"""Calls that are made at once: all of them wait before the first one is let through.

On SQLite the test holds the file's write lock meanwhile. On PostgreSQL it keeps back what is sent
to the server: a lock would not do, since a flight does not wait long for one.
"""

import asyncio
import struct
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from onefold.databases.gathering import FLIGHTS, Lanes
from onefold.databases.gathering.threads import GatheredThreads, WaitingThread
from onefold.databases.sqlite_writer import ThreadsErrand
from tests.faults.proxy import Proxy
from tests.fixtures.colours import Coloured
from tests.fixtures.place import Place
from tests.race.crew import DEADLINE, Answer
from tests.race.waiting import until

Call: TypeAlias = Callable[[Coloured], Coroutine[Any, Any, Any]]

WAITING = {WaitingThread.wait.__code__, ThreadsErrand.result.__code__}


class Crowd:
    """One Onefold of one colour, and a bar that keeps its calls back."""

    def __init__(self, place: Place, onefold: Coloured, proxy: Proxy | None) -> None:
        self.place = place
        self.onefold = onefold
        self._proxy = proxy

    @property
    def leaders(self) -> int:
        """How many are on their way alone before the others can gather behind them."""
        return FLIGHTS if self.place.on_postgres and self.onefold.colour == "sync" else 0

    @contextmanager
    def bar(self) -> Generator[None]:
        """Nothing is written while this is open."""
        if self._proxy is not None:
            self._proxy.hold()
            try:
                yield
            finally:
                self._proxy.let_go()
        else:
            with closing(self.place.connect()) as connection:
                connection.execute("begin immediate")
                yield

    async def at_once(self, *calls: Call) -> list[Answer[Any]]:
        """What each is answered."""
        return await self.start(*calls)

    async def start(
        self, *calls: Call, meanwhile: Callable[[list[Any]], Awaitable[None]] | None = None
    ) -> list[Answer[Any]]:
        """`at_once`; `meanwhile` is given the callers, before they are let through."""
        if self.onefold.colour == "async":
            return await self._tasks(calls, meanwhile)
        return await self._threads(calls, meanwhile)

    async def _tasks(self, calls: Sequence[Call], meanwhile: Any) -> list[Answer[Any]]:
        with self.bar():
            tasks = [asyncio.create_task(_answer(call(self.onefold))) for call in calls]
            # One turn of the loop: each has asked now.
            await asyncio.wait(tasks, timeout=0)
            if meanwhile is not None:
                await meanwhile(tasks)
        done, _ = await asyncio.wait(tasks, timeout=DEADLINE)
        assert len(done) == len(tasks), "somebody was never answered"
        return [Answer() if task.cancelled() else task.result() for task in tasks]

    async def _threads(self, calls: Sequence[Call], meanwhile: Any) -> list[Answer[Any]]:
        answers: list[Answer[Any]] = [Answer() for _ in calls]

        def work(number: int, call: Call) -> None:
            answers[number] = driven(_answer(call(self.onefold)))

        threads = [
            threading.Thread(target=work, args=(number, call), daemon=True)
            for number, call in enumerate(calls)
        ]
        with self.bar():
            for thread in threads:
                thread.start()
            until(lambda: all(map(_has_asked, threads)), "for all to have asked")
            if meanwhile is not None:
                await meanwhile(threads)
        for thread in threads:
            thread.join(DEADLINE)
            assert not thread.is_alive(), "somebody was never answered"
        return answers


def _has_asked(thread: threading.Thread) -> bool:
    """Whether a thread waits for others to write for it, leads a flight, or was refused."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is not None and frame.f_code in WAITING:
        return True
    while frame is not None and frame.f_code is not GatheredThreads._fly.__code__:
        frame = frame.f_back
    return frame is not None or not thread.is_alive()


async def _answer(call: Coroutine[Any, Any, Any]) -> Answer[Any]:
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
        return await onefold.settle(claim, result)

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


def lanes_of(onefold: Any) -> dict[Any, Any]:
    """Who waits for a flight, in all lanes of an Onefold; SQLite has none."""
    state = onefold._conductor.database._state
    gathered: list[Any] = [*state._tasks.values()]
    if state._threads is not None:
        gathered.append(state._threads)
    found: dict[Any, Any] = {}
    for one in gathered:
        lanes: Lanes = one._lanes
        found.update(lanes._lanes)
    return found
