"""SIGKILL before every statement of a look at the schedules, and of every change of them.

Afterwards no tick is lost, none has a second job, and the same call succeeds when it is repeated.
"""

from datetime import UTC, datetime, timedelta

import pytest

from onefold import Job, Onefold, Schedule
from tests.crash.scenario import Scenario
from tests.crash.test_every_statement import die_everywhere
from tests.fixtures.place import Place

START = datetime(2040, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class OfASchedule(Scenario):
    """The tables are this one schedule's alone."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._now = START

    def prepare(self, onefold: Onefold) -> None:
        for schedule in onefold.schedules.find():
            onefold.schedules.delete(schedule.name)
        onefold.schedules.save(self.key, "0 * * * *", kind="crash", queue=self.key, catch_up="all")

    def epilogue(self, onefold: Onefold) -> None:
        """Whatever was done, the next look has nothing to add."""
        before = self.jobs(onefold)
        onefold.deliveries.tick()
        assert self.jobs(onefold) == before

    def jobs(self, onefold: Onefold) -> list[Job]:
        return sorted(onefold.find(queue=self.key), key=lambda job: str(job.tick))

    def schedule(self, onefold: Onefold) -> Schedule:
        (found,) = onefold.schedules.find()
        return found


class Tick(OfASchedule):
    later = HOUR

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.deliveries.tick()

    def check(self, onefold: Onefold) -> None:
        assert [job.tick for job in self.jobs(onefold)] == [START + HOUR]
        assert self.schedule(onefold).last_tick == START + HOUR


class TickThrice(Tick):
    later = 3 * HOUR

    def check(self, onefold: Onefold) -> None:
        assert [job.tick for job in self.jobs(onefold)] == [START + n * HOUR for n in (1, 2, 3)]


class TickLate(Tick):
    """A process dies, and the next one comes an hour later."""

    later = HOUR
    again = HOUR

    def check(self, onefold: Onefold) -> None:
        ticks = [job.tick for job in self.jobs(onefold)]
        assert ticks in ([START + HOUR], [START + HOUR, START + 2 * HOUR])


class TickAHeldKey(Tick):
    def prepare(self, onefold: Onefold) -> None:
        super().prepare(onefold)
        onefold.schedules.save(
            self.key, "0 * * * *", kind="crash", queue=self.key, unique_key=self.key
        )
        self.holder = self.enqueue(onefold)

    def check(self, onefold: Onefold) -> None:
        assert [job.id for job in self.jobs(onefold)] == [self.holder]
        assert self.schedule(onefold).next_tick == START + 2 * HOUR


class Change(OfASchedule):
    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.schedules.save(self.key, "30 * * * *", kind="crash", queue=self.key)

    def check(self, onefold: Onefold) -> None:
        assert self.schedule(onefold).cron == "30 * * * *"
        assert self.schedule(onefold).next_tick == START + HOUR / 2


class Pause(OfASchedule):
    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.schedules.pause(self.key)

    def check(self, onefold: Onefold) -> None:
        assert self.schedule(onefold).paused


LONG: list[type[Scenario]] = [TickThrice, TickLate, TickAHeldKey, Change, Pause]


@pytest.mark.parametrize(
    "kind",
    [Tick, *[pytest.param(kind, marks=pytest.mark.prove) for kind in LONG]],
    ids=lambda kind: kind.__name__,
)
def test_a_death_before_any_statement_loses_no_tick_and_doubles_none(
    place: Place, kind: type[Scenario]
) -> None:
    die_everywhere(kind, place)
