"""Threads that a signal interrupts: only the interrupted caller is affected."""

import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any

import coverage
import pytest

from onefold import Closed, Onefold, WouldDeadlock
from onefold.databases.batching import KeyHeld, ThreadGroup
from tests.batching.crowd import Crowd, has_asked, is_idle
from tests.fixtures.proof import repetitions
from tests.race.crew import DEADLINE
from tests.race.waiting import until
from tests.unit.test_batching import answered, item, listed, threads_of
from tests.unit.test_batching import is_idle as is_idle_group

SIZE = 6
INTERRUPTS = repetitions(60, soak=2_000)
LOOK = 0.05
"""Seconds after which somebody asks for its turn, come what may.

On Python 3.11 a thread that is traced, as by coverage, goes round and round where a function begins
while a signal waits for the main thread, until another thread asks for its turn. If it has a lock
that all others wait for, none does.
"""


@pytest.fixture
def colour() -> str:
    """Only threads are interrupted."""
    return "sync"


class Others:
    """Threads that enqueue a job each."""

    def __init__(self, onefold: Onefold) -> None:
        self._onefold = onefold
        self._inserted: dict[int, bool] = {}
        self.threads = [
            threading.Thread(target=self._enqueue, args=(number,), daemon=True)
            for number in range(SIZE)
        ]

    def _enqueue(self, number: int) -> None:
        answer = self._onefold.enqueue("mail", number, unique_key=f"k{number}")
        self._inserted[number] = answer.inserted

    def ask(self) -> None:
        for thread in self.threads:
            thread.start()
        until(lambda: all(map(has_asked, self.threads)), "for all to have asked")

    def inserted(self) -> list[bool]:
        for thread in self.threads:
            thread.join(DEADLINE)
        return [self._inserted[number] for number in range(SIZE)]


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_an_interrupted_thread_leaves_the_others_their_answers(
    crowd: Crowd, *, first: bool
) -> None:
    onefold: Onefold = crowd.onefold.target
    others = Others(onefold)
    main = threading.main_thread()

    def interrupt() -> None:
        until(lambda: has_asked(main), "for the main thread to have asked")
        if first:
            others.ask()
        signal.pthread_kill(main.ident or 0, signal.SIGINT)
        if crowd.place.on_postgres:
            # psycopg asks the server to stop, by the same wire.
            crowd.wire.let_go()

    interrupter = threading.Thread(target=interrupt, daemon=True)
    with crowd.bar():
        if not first:
            others.ask()
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            onefold.enqueue("mail", "main", unique_key="main")

    assert others.inserted() == [True] * SIZE
    interrupter.join(DEADLINE)
    until(lambda: is_idle(onefold), "for all calls to end")
    # Whoever was interrupted may ask again.
    onefold.enqueue("mail", "main", unique_key="main")
    assert len(onefold.find()) == SIZE + 1


class Alarm(BaseException):
    """Raised by a signal, wherever the main thread is."""


def is_measured(frame: FrameType | None) -> bool:
    """Whether coverage is at work: an exception there would leave a lock of its own taken."""
    here = str(Path(coverage.__file__).parent)
    return any(each.f_code.co_filename.startswith(here) for each, _ in walk_stack(frame))


@pytest.fixture
def ring() -> Iterator[Callable[[], None]]:
    """Has the main thread interrupted, a moment after it is called."""
    asked, over = threading.Event(), threading.Event()
    dice = random.Random()

    def interrupt(_: int, frame: FrameType | None) -> None:
        if is_measured(frame):
            asked.set()
        else:
            raise Alarm

    def alarm() -> None:
        while not over.is_set():
            if not asked.wait(LOOK) or over.is_set():
                continue
            asked.clear()
            for _ in range(dice.randrange(3_000)):
                pass
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=alarm, daemon=True)
    thread.start()
    yield asked.set
    over.set()
    asked.set()
    thread.join(DEADLINE)
    signal.signal(signal.SIGUSR1, before)


def held_until_patient(build: Any, *, patient: bool, deadline: float | None = None) -> Any:
    """A database in which other transactions hold the key "held" for a short time."""
    del deadline
    answers = answered(build)
    if "held" in listed(answers) and not patient:
        raise KeyHeld
    return answers


def work_until_interrupted(group: ThreadGroup, ring: Callable[[], None]) -> None:
    with suppress(Alarm):
        ring()
        while True:
            group.run(item("main"))
            group.run(item("held"))


def test_a_thread_that_is_interrupted_anywhere_affects_only_itself(
    ring: Callable[[], None],
) -> None:
    group = threads_of(held_until_patient)
    stop, done = threading.Event(), [0, 0, 0, 0]
    wanted = ["held", "held", "a", "b"]

    def work(rank: int) -> None:
        while not stop.is_set():
            assert group.run(item(wanted[rank])) == wanted[rank]
            done[rank] += 1

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(INTERRUPTS):
            work_until_interrupted(group, ring)
            goals = [number + 1 for number in done]
            until(partial(all_reach, done, goals), "for the others to go on")
    finally:
        stop.set()
    for thread in threads:
        thread.join(DEADLINE)

    assert not any(thread.is_alive() for thread in threads)
    until(lambda: is_idle_group(group), "for all calls to end")


def all_reach(numbers: list[int], goals: list[int]) -> bool:
    return all(number >= goal for number, goal in zip(numbers, goals, strict=True))


def test_a_thread_that_is_interrupted_anywhere_leaves_sqlite_to_the_others(
    sqlite_url: str, ring: Callable[[], None]
) -> None:
    with Onefold(sqlite_url) as onefold, ThreadPoolExecutor(1) as other:
        onefold.find()
        for number in range(INTERRUPTS):
            with suppress(Alarm):
                ring()
                while True:
                    onefold.enqueue("mail")
            theirs = other.submit(onefold.enqueue, "mail", unique_key=str(number))
            assert theirs.result(DEADLINE).inserted


class Handler:
    """A clock that does something in the middle of a write, as a signal handler would."""

    def __init__(self, act: Callable[[Onefold], object]) -> None:
        self._act = act
        self.onefold: Onefold | None = None
        self.told: list[object] = []

    def __call__(self) -> datetime:
        # An enqueue without a bucket reads the clock only in its transaction.
        if (onefold := self.onefold) is not None:
            self.onefold = None
            try:
                self.told.append(self._act(onefold))
            except WouldDeadlock as error:
                self.told.append(error)
        return datetime.now(UTC)


def test_an_enqueue_in_the_middle_of_a_write_to_sqlite_is_refused(sqlite_url: str) -> None:
    handler = Handler(lambda onefold: onefold.enqueue("from the handler"))
    with Onefold(sqlite_url, clock=handler) as onefold:
        onefold.find()
        handler.onefold = onefold
        onefold.enqueue("mail")

        assert [type(one) for one in handler.told] == [WouldDeadlock]
        assert [job.kind for job in onefold.find()] == ["mail"]


def test_a_close_in_the_middle_of_a_write_to_sqlite_waits_for_its_end(sqlite_url: str) -> None:
    handler = Handler(lambda onefold: onefold.close())
    onefold = Onefold(sqlite_url, clock=handler)
    onefold.find()
    handler.onefold = onefold
    answer = onefold.enqueue("mail")

    with pytest.raises(Closed):
        onefold.enqueue("mail")
    with Onefold(sqlite_url) as again:
        assert [job.id for job in again.find()] == [answer.id]
