"""SIGKILL before every statement of every operation, on both databases.

Afterwards, from a fresh object: nothing of an open transaction is there, nothing that was committed
is lost, no key leaked, no key reopened, and the same call succeeds when it is repeated.
"""

import pytest

from tests.crash import claiming, delivering, enqueueing, operating, remembering
from tests.crash.claiming import OnceLeased
from tests.crash.injector import Death, kill_before
from tests.crash.scenario import Scenario
from tests.fixtures.place import Place
from tests.fixtures.proof import proved, repetitions

USUAL = [
    enqueueing.Publish, enqueueing.WithinATransaction, delivering.FinishAndTake,
    delivering.FinishWithSuccessor, delivering.Rescue, claiming.OnceLeased, claiming.OnceJoined,
]  # fmt: skip
"""Those that `make test` runs: one of each sort of call."""
SCENARIOS = [
    *enqueueing.SCENARIOS, *delivering.SCENARIOS, *operating.SCENARIOS, *claiming.SCENARIOS,
    *remembering.SCENARIOS,
]  # fmt: skip

DEATHS = repetitions(1, soak=2)
"""How often in a row it dies before it comes through: in `make soak` at every two statements."""


@pytest.mark.parametrize(
    "kind",
    [*USUAL, *proved(*(kind for kind in SCENARIOS if kind not in USUAL))],
    ids=lambda kind: kind.__name__,
)
def test_a_death_before_any_statement_loses_nothing_and_leaks_nothing(
    place: Place, kind: type[Scenario]
) -> None:
    with place.transaction() as connection:
        connection.execute(f"create table {place.effects} (name text not null)")
    first = 1
    while True:
        scenario = kind(f"{kind.__name__}-{first}")
        finished = die_and_come_through(scenario, place, [first])
        if finished:
            break
        second = 1
        while DEATHS > 1:
            scenario = kind(f"{kind.__name__}-{first}-{second}")
            if die_and_come_through(scenario, place, [first, second]):
                break
            second += 1
        first += 1
    # What is one statement is committed by itself; all else begins, says something, and commits.
    # A leased `once` is two of the former on PostgreSQL: its claim, and its result.
    assert first == 2 or first > 3 or (kind is OnceLeased and first == 3)


def die_and_come_through(scenario: Scenario, place: Place, deaths: list[int]) -> bool:
    """Die at the given statements, one after the other; True where the last one was not reached."""
    with scenario.open(place) as onefold:
        scenario.prepare(onefold)
    scenario.pass_time(scenario.later)
    death = Death([], finished=False)
    for number in deaths:
        before = place.contents(place.effects)
        death = kill_before(number, scenario, place)
        if not death.committed:
            assert place.contents(place.effects) == before
        scenario.pass_time(scenario.again)
    with scenario.open(place) as onefold:
        if death.finished:
            scenario.check(onefold)
        scenario.act(onefold, place)
        scenario.check(onefold)
        scenario.epilogue(onefold)
    return death.finished


def die_everywhere(kind: type[Scenario], place: Place) -> None:
    """Die once before each statement of an act: it reads, begins, says something, and commits."""
    with place.transaction() as connection:
        connection.execute(f"create table {place.effects} (name text not null)")
    number = 1
    while not die_and_come_through(kind(f"{kind.__name__}-{number}"), place, [number]):
        number += 1
    assert number > 3
