"""A thread is interrupted at one place after another, wherever a signal may come: others go on.

Nothing is left to chance here, neither to the moment of a signal nor to the garbage collector. The
places are those where Python itself looks for signals: where a function begins, where one written
in C has ended, and while a lock is waited for.
"""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from onefold.databases import gathering as package
from onefold.databases.gathering import PATIENT_FLIGHTS, HeldUp
from onefold.databases.gathering.threads import GatheredThreads
from tests.race.crew import DEADLINE
from tests.race.waiting import until
from tests.unit.test_gathering import SETTINGS, answered, pending, shared

OURS = str(Path(package.__file__).parent)
MAIN = "main"
FEWEST_PLACES = 20
"""A test that comes by no more of them does not look where it thinks it does."""


class Alarm(BaseException):
    """What a signal handler raises."""


class Interruption:
    """Raises at the n-th place of our code that the thread comes by."""

    def __init__(self, place: int) -> None:
        self._left = place
        self.kept: Alarm | None = None

    def __enter__(self) -> None:
        sys.setprofile(self._look)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        sys.setprofile(None)
        if isinstance(error, Alarm):
            # With all the frames that it has come through, as somebody's log would keep it.
            self.kept = error
        return self.kept is not None

    def _look(self, frame: FrameType, event: str, function: Any) -> None:
        if not frame.f_code.co_filename.startswith(OURS):
            return
        waits = event == "c_call" and function.__name__ == "acquire"
        if waits or event in {"call", "c_return"}:
            self._left -= 1
            if self._left < 0:
                sys.setprofile(None)
                raise Alarm


class Stage:
    """Threads that ask in an order that is laid down; a flight may be blocked on its way."""

    def __init__(self, held: frozenset[object] = frozenset()) -> None:
        self.gathered = GatheredThreads(self._transact, **SETTINGS)
        self.gates: dict[object, threading.Event] = {}
        self.on_their_way: set[object] = set()
        self.when_main_flies: Callable[[], None] = lambda: None
        self._held = held
        self._threads: dict[object, threading.Thread] = {}
        self.answers: dict[object, object] = {}

    def _transact(self, build: Any, *, patient: bool, deadline: float | None = None) -> Any:
        del deadline
        answers = answered(build)
        if not patient and self._held & set(answers):
            raise HeldUp
        for name in answers:
            self.on_their_way.add(name)
            if name in self.gates:
                self.gates[name].wait()
        if MAIN in answers:
            self.when_main_flies()
        return answers

    def ask(self, *names: object) -> None:
        for name in names:
            self._threads[name] = threading.Thread(target=self._ask, args=(name,), daemon=True)
            self._threads[name].start()

    def _ask(self, name: object) -> None:
        self.answers[name] = self.gathered.run(shared(name))

    def block(self, *names: object) -> None:
        """Have these on their way, and stay there."""
        for name in names:
            self.gates[name] = threading.Event()
            self.ask(name)
            until(partial(self.on_their_way.__contains__, name), f"for {name} to be on its way")

    def go_on(self, *names: object) -> None:
        for name in names:
            self.gates[name].set()

    def has_asked(self, name: object) -> bool:
        return name in self._threads

    def are_answered(self, *names: object) -> bool:
        for name in names:
            self._threads[name].join(DEADLINE)
        return all(self.answers.get(name) == name for name in names)

    def wait(self, number: int) -> None:
        until(lambda: pending(self.gathered) == number, f"for {number} to wait")


@pytest.fixture(autouse=True)
def _without_the_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def main_ends(stage: Stage, interruption: Interruption) -> None:
    with interruption:
        assert stage.gathered.run(shared(MAIN)) == MAIN


def hands_over_from_alone(stage: Stage, interruption: Interruption) -> None:
    """It flies alone; one more has left meanwhile, and two wait for a place."""

    def meanwhile() -> None:
        stage.block("b")
        stage.ask("p", "q")
        stage.wait(2)

    stage.when_main_flies = meanwhile
    main_ends(stage, interruption)
    if not stage.has_asked("p"):
        stage.block("b")
        stage.ask("p", "q")
    # One flight is still on its way: these take the place that the interrupted one had.
    assert stage.are_answered("p", "q")
    stage.go_on("b")
    assert stage.are_answered("b")


def hands_over_as_a_leader(stage: Stage, interruption: Interruption) -> None:
    """It leads itself, as one flight is on its way already; two wait for a place."""

    def meanwhile() -> None:
        stage.ask("p", "q")
        stage.wait(2)

    stage.block("b")
    stage.when_main_flies = meanwhile
    main_ends(stage, interruption)
    if not stage.has_asked("p"):
        stage.ask("p", "q")
    assert stage.are_answered("p", "q")
    stage.go_on("b")
    assert stage.are_answered("b")


def takes_others_along(stage: Stage, interruption: Interruption) -> None:
    """It waits, with two behind it, and is told to take them along."""
    stage.block("b", "c")

    def behind_main() -> None:
        until(lambda: pending(stage.gathered) == 1 or over.is_set(), "for the first to wait")
        stage.ask("p", "q")
        until(lambda: pending(stage.gathered) == 3 or over.is_set(), "for three to wait")
        stage.go_on("b")

    over = threading.Event()
    others = threading.Thread(target=behind_main, daemon=True)
    others.start()
    main_ends(stage, interruption)
    over.set()
    others.join(DEADLINE)
    assert stage.are_answered("b", "p", "q")
    stage.go_on("c")
    assert stage.are_answered("c")


def at_every_place(act: Callable[[Interruption], None]) -> None:
    """Do it again and again, interrupted one place later each time, until nothing interrupts it."""
    for place in count():
        interruption = Interruption(place)
        act(interruption)
        if interruption.kept is None:
            assert place > FEWEST_PLACES
            return


SITUATIONS = [hands_over_from_alone, hands_over_as_a_leader, takes_others_along]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.__name__)
def test_wherever_a_thread_is_interrupted_nobody_waits_for_it(
    situation: Callable[[Stage, Interruption], None],
) -> None:
    def act(interruption: Interruption) -> None:
        stage = Stage()
        situation(stage, interruption)
        # What an interrupted thread may have left behind, the next call tidies up.
        stage.gathered.run(shared("last"))
        assert stage.gathered._lanes._lanes == {}

    at_every_place(act)


def test_wherever_a_patient_thread_is_interrupted_its_place_is_free_again() -> None:
    def act(interruption: Interruption) -> None:
        stage = Stage(held=frozenset({MAIN, "p"}))
        main_ends(stage, interruption)
        assert not stage.gathered._patience._flights
        stage.ask("p")
        assert stage.are_answered("p")

    at_every_place(act)


def test_a_patient_thread_that_is_interrupted_while_it_waits_for_a_place_holds_up_nobody() -> None:
    blocked = [f"b{number}" for number in range(PATIENT_FLIGHTS)]

    def act(interruption: Interruption) -> None:
        stage, over = Stage(held=frozenset({*blocked, MAIN, "p"})), threading.Event()
        stage.block(*blocked)

        def make_room() -> None:
            patience = stage.gathered._patience
            until(lambda: bool(patience._queue) or over.is_set(), "for the main thread to queue")
            stage.go_on(blocked[0])

        helper = threading.Thread(target=make_room, daemon=True)
        helper.start()
        main_ends(stage, interruption)
        over.set()
        helper.join(DEADLINE)
        stage.ask("p")
        assert stage.are_answered(blocked[0], "p")
        assert stage.gathered._patience._queue == []
        stage.go_on(*blocked[1:])
        assert stage.are_answered(*blocked[1:])

    at_every_place(act)
