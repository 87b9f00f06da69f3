"""Processes that do everything at once and die anywhere, again and again; then the audit."""

import random
import signal

import pytest

from tests.crash.injector import Watch
from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.race import audit
from tests.race.crew import DEADLINE, Racer, processes
from tests.race.hammer import hammer
from tests.race.test_hammer import drain

LIVES = repetitions(12, soak=2_000)
AT_ONCE = 3


def live_and_die(place: Place, rank: int, seed: str, statements: int) -> None:
    """Hammer until so many statements have been run, and then die on the spot."""
    watch = Watch(None, statements)
    watch.wrap_drivers()
    with place.open() as onefold:
        watch.armed = True
        hammer(Racer(rank, onefold, place), 10_000, seed)


@pytest.mark.prove
def test_processes_that_die_anywhere_break_no_rule(place: Place) -> None:
    audit.install(place)
    context = processes()
    dice = random.Random()
    for life in range(0, LIVES, AT_ONCE):
        children = [
            context.Process(
                target=live_and_die,
                # Requests are numbered by rank: each life has numbers of its own.
                args=(place, rank, f"{dice.random()}", dice.randrange(30, 600)),
            )
            for rank in range(life, life + AT_ONCE)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(DEADLINE)
            assert child.exitcode == -signal.SIGKILL
            child.close()
    drain(place)
    # Nobody is left to say what was answered; what was stored is in the record.
    audit.check(audit.read(place), audit.Books(set(), set(), set()))
    with place.open() as onefold:
        assert not onefold.find(state=["scheduled", "ready", "retrying", "running"])
