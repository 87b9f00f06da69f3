"""Racers: processes, threads and tasks that are ready, start together, and answer.

The processes are started once and race many times: what is raced is the database, not the start of
Python. They come from a fork server that has imported everything and opened nothing.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.synchronize import Barrier
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import uuid4

import pytest

from onefold import Onefold
from tests.fixtures.colours import Colour, Coloured
from tests.fixtures.patience import HANG
from tests.fixtures.place import Place

T = TypeVar("T")

SIZE = 4
DEADLINE = HANG
IMPORTED = [
    "__main__", "pytest", "onefold.databases.borrowed.postgres", "tests.race.waiting",
    "tests.crash.enqueueing", "tests.crash.delivering", "tests.crash.operating",
    "tests.crash.claiming", "tests.crash.injector",
    "tests.http.processes.app",
]  # fmt: skip
"""By the server, once, instead of by each of its children."""


def processes() -> ForkServerContext:
    """How processes are started: from a server without threads, connections or files of ours."""
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


class Racer(NamedTuple):
    """What a racer is given: which one it is, its own object, and where the database is."""

    rank: int
    onefold: Onefold
    place: Place
    colour: Colour = "sync"

    @property
    def calls(self) -> Coloured:
        """Its object, for a racer that is written once: a call is awaited in both colours."""
        return Coloured(self.onefold, self.colour)


class Answer(NamedTuple, Generic[T]):
    """What a racer answered: a value, or the error that left its call."""

    value: T | None = None
    error: Exception | None = None

    def get(self) -> T:
        """The value; an error is raised here."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value] # T may be None


class Crew:
    """Processes that wait for work."""

    def __init__(self, size: int = SIZE) -> None:
        context = processes()
        self.size = size
        self._barrier = context.Barrier(size)
        self._members: list[tuple[ForkServerProcess, Connection]] = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            member = context.Process(target=_serve, args=(rank, theirs, self._barrier), daemon=True)
            member.start()
            theirs.close()
            self._members.append((member, ours))

    def race(self, place: Place, work: Callable[..., T], *arguments: object) -> list[Answer[T]]:
        """Let all of them run `work(racer, *arguments)` at once, in processes of their own."""
        for _, pipe in self._members:
            pipe.send((place, work, arguments))
        answers: list[Answer[T]] = []
        for member, pipe in self._members:
            if not pipe.poll(DEADLINE):
                pytest.fail(f"{member.name} did not answer within {DEADLINE:g} seconds")
            answers.append(pipe.recv())
        return answers

    def close(self) -> None:
        """Send them home."""
        for member, pipe in self._members:
            pipe.send(None)
            pipe.close()
            member.join(DEADLINE)


def _serve(rank: int, pipe: Connection, barrier: Barrier) -> None:
    racer: Racer | None = None
    while (order := pipe.recv()) is not None:
        place, work, arguments = order
        if racer is None or place != racer.place:
            if racer is not None:
                racer.onefold.close()
            racer = Racer(rank, place.open(), place)
            warm(racer.onefold)
        barrier.wait(DEADLINE)
        pipe.send(_answer(work, racer, arguments))
    if racer is not None:
        racer.onefold.close()


def warm(onefold: Onefold) -> None:
    """Connect and read the identity, so that the race is for the key and not for the socket."""
    onefold.get(str(uuid4()))


def _answer(work: Callable[..., T], racer: Racer, arguments: tuple[object, ...]) -> Answer[T]:
    try:
        value: Any = work(racer, *arguments)
        return Answer(asyncio.run(value) if inspect.iscoroutine(value) else value)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return Answer(error=error)


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    """The processes of this run, or of this worker of it."""
    members = Crew()
    yield members
    members.close()


def race_threads(
    place: Place, work: Callable[..., T], *arguments: object, size: int = 8
) -> list[Answer[T]]:
    """`Crew.race`, with threads that share one object."""
    barrier = threading.Barrier(size)
    answers: list[Answer[T]] = [Answer() for _ in range(size)]
    with place.open() as onefold:
        warm(onefold)

        def one(rank: int) -> None:
            barrier.wait(DEADLINE)
            answers[rank] = _answer(work, Racer(rank, onefold, place), arguments)

        together(*(lambda rank=rank: one(rank) for rank in range(size)))
    return answers


def together(*work: Callable[[], object]) -> None:
    """Run each in a thread of its own, and wait for all of them."""
    threads = [threading.Thread(target=one, daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        if thread.is_alive():
            pytest.fail(f"a thread did not end within {DEADLINE:g} seconds")


def race_tasks(
    place: Place, work: Callable[..., Any], *arguments: object, size: int = 8
) -> list[Answer[Any]]:
    """`Crew.race`, with asyncio tasks that share one object."""

    async def race() -> list[Answer[Any]]:
        barrier = asyncio.Barrier(size)
        async with place.open() as onefold:
            await onefold.aget(str(uuid4()))

            async def one(rank: int) -> Answer[Any]:
                await barrier.wait()
                try:
                    return Answer(await work(Racer(rank, onefold, place, "async"), *arguments))
                except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
                    return Answer(error=error)

            return await asyncio.gather(*(one(rank) for rank in range(size)))

    return asyncio.run(race())


def race_by(
    racers: str,
    crew: Crew,
    place: Place,
    work: Callable[..., Any],
    *arguments: object,
    size: int = 8,
) -> list[Answer[Any]]:
    """The same race between processes, threads or tasks."""
    if racers == "processes":
        return crew.race(place, work, *arguments)
    race = race_threads if racers == "threads" else race_tasks
    return race(place, work, *arguments, size=size)


def values(answers: list[Answer[T]]) -> list[T]:
    """What everybody answered; nobody may have failed."""
    return [answer.get() for answer in answers]


def errors(answers: list[Answer[Any]]) -> list[Exception]:
    """The errors among the answers."""
    return [answer.error for answer in answers if answer.error is not None]
