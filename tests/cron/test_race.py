"""Four processes look at the schedules at once: every tick has one job."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from onefold.testing import Clock
from tests.cron.due import set_next_tick
from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.race.crew import Crew, Racer, race_threads, values

START = datetime(2040, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NAMES = ["one", "two", "three"]
TOGETHER = repetitions(5, soak=200)
ALONE = repetitions(60, soak=2_000)


def tick_at(racer: Racer, moment: datetime) -> list[tuple[str, datetime]]:
    """One look."""
    with racer.place.open(clock=lambda: moment) as onefold:
        return [(tick.schedule, tick.at) for tick in onefold.deliveries.tick().ticks]


def tick_through(racer: Racer, minutes: int) -> list[tuple[str, datetime]]:
    """A look every minute, as fast as this process can: soon their clocks are far apart."""
    clock = Clock(START)
    found: list[tuple[str, datetime]] = []
    with racer.place.open(clock=clock) as onefold:
        for _ in range(minutes):
            clock.advance(MINUTE)
            found += [(tick.schedule, tick.at) for tick in onefold.deliveries.tick().ticks]
    return found


def prepare(place: Place) -> None:
    with place.open(clock=lambda: START) as onefold:
        for name in NAMES:
            onefold.schedules.save(
                name, "* * * * *", kind="race", catch_up="all", catch_up_most=1000
            )


def check(place: Place, ticks: list[tuple[str, datetime]], minutes: int) -> None:
    """Each tick was answered for once, and has one job."""
    wanted = {(name, START + n * MINUTE) for name in NAMES for n in range(1, minutes + 1)}
    assert Counter(ticks) == dict.fromkeys(wanted, 1)
    with place.open() as onefold:
        stored = Counter((job.metadata["schedule"], job.tick) for job in onefold.find(limit=10_000))
    assert stored == dict.fromkeys(wanted, 1)


def test_a_tick_that_all_see_at_once_has_one_job(place: Place, crew: Crew) -> None:
    prepare(place)
    ticks: list[tuple[str, datetime]] = []
    for minute in range(1, TOGETHER + 1):
        for found in values(crew.race(place, tick_at, START + minute * MINUTE)):
            ticks += found

    check(place, ticks, TOGETHER)


@pytest.mark.prove
def test_clocks_may_differ(place: Place, crew: Crew) -> None:
    prepare(place)
    ticks = [tick for found in values(crew.race(place, tick_through, ALONE)) for tick in found]

    check(place, ticks, ALONE)


@pytest.mark.prove
def test_it_is_so_on_several_shards(spread: Place, crew: Crew) -> None:
    prepare(spread)
    ticks = [tick for found in values(crew.race(spread, tick_through, ALONE)) for tick in found]

    check(spread, ticks, ALONE)


def test_threads_of_one_process_share_no_tick_either(place: Place) -> None:
    prepare(place)
    ticks = [tick for found in values(race_threads(place, tick_through, 20)) for tick in found]

    check(place, ticks, 20)


@pytest.mark.prove
def test_ticks_that_have_had_their_job_have_no_other_whoever_sees_them_due(
    place: Place, crew: Crew
) -> None:
    prepare(place)
    end = START + 5 * MINUTE
    ticks = [tick for found in values(crew.race(place, tick_at, end)) for tick in found]
    set_next_tick(place, START + MINUTE)
    ticks += [tick for found in values(crew.race(place, tick_at, end)) for tick in found]

    check(place, ticks, 5)


@pytest.mark.prove
def test_declarations_at_once_make_one_schedule(place: Place, crew: Crew) -> None:
    for found in values(crew.race(place, declare)):
        assert [name for name, _ in found] == ["declared", "other"]
    with place.open() as onefold:
        assert [schedule.name for schedule in onefold.schedules.find()] == ["declared", "other"]


def declare(racer: Racer) -> list[tuple[str, datetime | None]]:
    """As four workers do that start together; half of them with older code."""
    with racer.place.open(clock=lambda: START) as onefold:

        def work() -> None: ...

        job = onefold.job(work)
        for name in ("other", "declared") if racer.rank % 2 else ("declared", "other"):
            onefold.cron("0 3 * * *" if racer.rank % 2 else "0 4 * * *", name=name)(job)
        return [(each.name, each.next_tick) for each in onefold.schedules.store_declared()]
