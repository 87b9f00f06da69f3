"""Schedules: one job per tick, missed ticks, and changes."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from onefold.errors import ConflictingOptions, ScheduleNotFound
from onefold.model.ids import shard_of
from onefold.model.job import Job
from onefold.model.lifecycle import Retention
from onefold.model.schedule import Schedule, Ticked, tick_name
from onefold_contract.cases.common import (
    DAY,
    HOUR,
    MICROSECOND,
    MINUTE,
    SECOND,
    refused_field,
    stored,
)
from onefold_contract.subject import Subject

__all__ = [
    "TestCatchUp",
    "TestChangedSchedules",
    "TestPausedSchedules",
    "TestRefusedSchedules",
    "TestRunNow",
    "TestScheduledJobs",
    "TestTicks",
]

HOURLY: Final = "0 * * * *"
MIDNIGHT: Final = datetime(2040, 1, 2, tzinfo=UTC)


def moments(ticked: Ticked) -> list[datetime]:
    """The ticks that have got a job."""
    return [tick.at for tick in ticked.ticks]


def the_job(subject: Subject, ticked: Ticked) -> Job:
    """The job of the one tick that was due."""
    (tick,) = ticked.ticks
    return subject.existing_job(tick.enqueued.id)


def the_schedule(subject: Subject) -> Schedule:
    """The only schedule."""
    (schedule,) = subject.schedules.find()
    return schedule


class TestTicks:
    """A tick gets one job when it is due, no matter which worker ticks."""

    def test_a_tick_has_its_job_when_it_is_due_and_not_before(self, subject: Subject) -> None:
        made = subject.schedules.save(
            "hourly", HOURLY, payload={"to": 1}, queue="reports", kind="report"
        )
        assert made.last_tick is None
        subject.clock.advance(HOUR - MICROSECOND)
        ticked = subject.deliveries.tick()
        assert ticked.ticks == ()
        assert ticked.next_at == made.next_tick == subject.clock.now + MICROSECOND
        assert ticked.wait == MICROSECOND
        assert stored(subject) == 0
        subject.clock.advance(MICROSECOND)
        job = the_job(subject, subject.deliveries.tick())
        schedule = the_schedule(subject)
        assert (schedule.last_tick, schedule.next_tick) == (
            subject.clock.now,
            subject.clock.now + HOUR,
        )
        assert (job.kind, job.payload, job.queue) == ("report", {"to": 1}, "reports")
        assert job.tick == job.run_at == made.next_tick
        assert job.metadata == {"schedule": "hourly"}
        assert subject.take_one("reports").id == job.id

    def test_many_schedules_have_their_ticks_at_once(self, subject: Subject) -> None:
        names = [f"number {number:03}" for number in range(120)]
        for name in names:
            subject.schedules.save(name, HOURLY, kind="report")
        subject.clock.advance(HOUR)
        ticked = subject.deliveries.tick()
        assert sorted(tick.schedule for tick in ticked.ticks) == names
        assert subject.deliveries.tick().ticks == ()

    def test_a_claim_stands_for_the_tick(self, subject: Subject) -> None:
        """No other enqueue can use this key, and it is deleted after a week."""
        subject.schedules.save("hourly", HOURLY, kind="report")
        subject.clock.advance(HOUR)
        subject.deliveries.tick()
        subject.schedules.delete("hourly")
        subject.clock.advance(7 * DAY - MICROSECOND)
        assert subject.deliveries.sweep() == 0
        subject.clock.advance(MICROSECOND)
        assert subject.deliveries.sweep() == 1

    def test_zones_are_those_of_the_schedule_and_keys_are_in_utc(self, subject: Subject) -> None:
        assert tick_name(0) == "1970-01-01T00:00:00Z"
        subject.clock.set(datetime(2040, 6, 30, 12, tzinfo=UTC))
        berlin = subject.schedules.save("berlin", "0 0 * * *", tz="Europe/Berlin", kind="report")
        york = subject.schedules.save("york", "0 0 * * *", tz="America/New_York", kind="report")
        assert berlin.next_tick == datetime(2040, 6, 30, 22, tzinfo=UTC)
        assert york.next_tick == datetime(2040, 7, 1, 4, tzinfo=UTC)


class TestCatchUp:
    """Ticks that were missed because no worker ran."""

    def test_latest_makes_up_for_the_newest(self, subject: Subject) -> None:
        made = subject.schedules.save("hourly", HOURLY, kind="report")
        subject.clock.advance(5 * HOUR + MINUTE)
        assert made.next_tick is not None
        assert moments(subject.deliveries.tick()) == [made.next_tick + 4 * HOUR]
        assert made.catch_up == "latest"

    def test_skip_leaves_missed_ticks_out(self, subject: Subject) -> None:
        subject.schedules.save("hourly", HOURLY, catch_up="skip", kind="report")
        subject.clock.advance(5 * HOUR + MINUTE + MICROSECOND)
        ticked = subject.deliveries.tick()
        assert ticked.ticks == ()
        assert ticked.next_at == subject.clock.now + HOUR - MINUTE - MICROSECOND
        assert the_schedule(subject).last_tick is None

    def test_all_makes_up_for_every_one_oldest_first(self, subject: Subject) -> None:
        made = subject.schedules.save("hourly", HOURLY, catch_up="all", kind="report")
        subject.clock.advance(5 * HOUR)
        ticked = subject.deliveries.tick()
        assert made.next_tick is not None
        assert moments(ticked) == [made.next_tick + number * HOUR for number in range(5)]
        assert sorted(tick.enqueued.id for tick in ticked.ticks) == sorted(
            job.id for job in subject.find()
        )
        taken = subject.take(limit=5)
        by_shard: dict[int, list[Any]] = {}
        for job in taken:
            by_shard.setdefault(shard_of(job.id, subject.shards), []).append(job.tick)
        assert len(taken) == 5
        assert all(ticks == sorted(ticks) for ticks in by_shard.values()), "they run in their order"

    def test_all_has_a_bound_and_prefers_the_newest(self, subject: Subject) -> None:
        subject.schedules.save("hourly", HOURLY, catch_up="all", catch_up_most=3, kind="report")
        subject.clock.advance(400 * DAY)
        now = subject.clock.now
        assert moments(subject.deliveries.tick()) == [now - 2 * HOUR, now - HOUR, now]
        assert subject.deliveries.tick().ticks == ()

    def test_a_unique_key_lets_one_job_stand_for_all(self, subject: Subject) -> None:
        subject.schedules.save("hourly", HOURLY, catch_up="all", unique_key="k", kind="report")
        subject.clock.advance(3 * HOUR)
        ticked = subject.deliveries.tick()
        assert [tick.enqueued.duplicate for tick in ticked.ticks] == [False, True, True]
        assert stored(subject) == 1


class TestScheduledJobs:
    """The options of the jobs of a schedule."""

    def test_options_reach_the_job_and_a_delay_counts_from_the_tick(self, subject: Subject) -> None:
        subject.schedules.save(
            "hourly",
            HOURLY,
            priority=-5,
            max_attempts=2,
            timeout=MINUTE,
            group_key="g",
            tags=["a"],
            metadata={"by": "me"},
            store_result=True,
            retention=Retention(completed=DAY),
            delay=MINUTE,
            kind="report",
        )
        subject.clock.advance(HOUR + SECOND)
        job = the_job(subject, subject.deliveries.tick())
        assert job.tick is not None
        assert job.run_at == job.tick + MINUTE
        assert (job.priority, job.max_attempts, job.timeout) == (-5, 2, MINUTE)
        assert (job.group_key, job.tags, job.store_result) == ("g", ("a",), True)
        assert job.metadata == {"by": "me", "schedule": "hourly"}
        assert job.retention == Retention(completed=DAY)

    def test_a_key_that_is_held_lets_the_next_tick_pass(self, subject: Subject) -> None:
        subject.schedules.save("hourly", HOURLY, unique_key="k", kind="report")
        subject.clock.advance(HOUR)
        first = the_job(subject, subject.deliveries.tick())
        subject.clock.advance(HOUR)
        (tick,) = subject.deliveries.tick().ticks
        assert tick.enqueued.duplicate
        assert tick.enqueued.id == first.id
        subject.deliveries.finish([subject.take_one()])
        subject.clock.advance(HOUR)
        assert subject.deliveries.tick().ticks[0].enqueued.inserted

    def test_tenants_have_schedules_of_their_own_until_they_are_erased(
        self, subject: Subject
    ) -> None:
        acme, other = subject.tenant("acme"), subject.tenant("other")
        acme.schedules.save("hourly", HOURLY, kind="report")
        other.schedules.save("hourly", HOURLY, kind="report")
        other.schedules.pause("hourly")
        assert subject.schedules.find() == []
        subject.clock.advance(HOUR)
        (tick,) = subject.deliveries.tick().ticks
        assert (tick.tenant, tick.schedule) == ("acme", "hourly")
        assert acme.existing_job(tick.enqueued.id).tenant == "acme"
        assert subject.get(tick.enqueued.id) is None
        assert subject.keys.erase(tenant="acme").schedules == 1
        assert acme.schedules.find() == []
        assert subject.deliveries.tick().next_at is None


class TestChangedSchedules:
    """One call creates and changes a schedule."""

    def test_what_was_said_is_answered(self, subject: Subject) -> None:
        made = subject.schedules.save(
            "hourly",
            HOURLY,
            payload=[1],
            tz="Europe/Berlin",
            catch_up="all",
            catch_up_most=7,
            kind="report",
        )
        assert (made.name, made.cron, made.tz) == ("hourly", HOURLY, "Europe/Berlin")
        assert (made.kind, made.queue, made.payload) == ("report", "default", [1])
        assert (made.catch_up, made.catch_up_most) == ("all", 7)
        assert (made.paused, made.declared, made.tenant) == (False, False, "")
        assert made.updated_at == subject.clock.now
        assert subject.schedules.find() == [made]
        assert "hourly" in repr(made)

    def test_all_are_found_by_name(self, subject: Subject) -> None:
        names = [f"s{number:02}" for number in range(39)]
        for name in names[::-1]:
            payload = "x" * (1_000_000 if name < "s05" else 1)
            subject.schedules.save(name, HOURLY, payload=payload, kind="report")
        assert [schedule.name for schedule in subject.schedules.find()] == names

    def test_saying_the_same_again_or_other_jobs_forgets_no_tick(self, subject: Subject) -> None:
        made = subject.schedules.save("hourly", HOURLY, kind="report")
        subject.clock.advance(HOUR + MINUTE)
        assert subject.schedules.save("hourly", HOURLY, kind="report") == made
        changed = subject.schedules.save("hourly", HOURLY, kind="other", payload={"to": 2})
        assert changed.next_tick == made.next_tick
        job = the_job(subject, subject.deliveries.tick())
        assert (job.kind, job.payload) == ("other", {"to": 2})

    @pytest.mark.parametrize("change", [{"cron": "30 * * * *"}, {"tz": "Asia/Kolkata"}])
    def test_another_expression_or_zone_counts_from_now(
        self, subject: Subject, change: Any
    ) -> None:
        subject.schedules.save("hourly", HOURLY, kind="report")
        subject.clock.advance(HOUR + MINUTE)
        said: dict[str, Any] = {"cron": HOURLY, **change}
        changed = subject.schedules.save("hourly", **said, kind="report")
        assert changed.next_tick == subject.clock.now + 29 * MINUTE
        assert subject.deliveries.tick().ticks == ()

    def test_one_that_is_removed_has_no_more_ticks(self, subject: Subject) -> None:
        subject.schedules.save("hourly", HOURLY, kind="report")
        subject.clock.advance(HOUR)
        subject.deliveries.tick()
        assert subject.schedules.delete("hourly") is True
        assert subject.schedules.delete("hourly") is False
        subject.clock.advance(HOUR)
        assert subject.deliveries.tick().ticks == ()
        assert stored(subject) == 1, "its jobs stay"


class TestPausedSchedules:
    """A paused schedule has no ticks, and misses none."""

    def test_it_has_no_ticks_and_goes_on_from_when_it_is_resumed(self, subject: Subject) -> None:
        subject.schedules.save("hourly", HOURLY, catch_up="all", kind="report")
        assert subject.schedules.pause("hourly") is True
        assert subject.schedules.pause("hourly") is False
        subject.clock.advance(3 * HOUR + MINUTE)
        ticked = subject.deliveries.tick()
        assert (ticked.ticks, ticked.next_at) == ((), None)
        assert the_schedule(subject).paused
        assert subject.schedules.resume("hourly") is True
        assert subject.schedules.resume("hourly") is False
        assert subject.deliveries.tick().ticks == ()
        subject.clock.advance(HOUR)
        assert moments(subject.deliveries.tick()) == [subject.clock.now - MINUTE]
        subject.schedules.pause("hourly")
        changed = subject.schedules.save("hourly", "30 * * * *", kind="report")
        assert changed.paused, "a change does not wake it"

    @pytest.mark.parametrize("call", ["pause", "resume", "run_now"])
    def test_one_that_is_not_there_is_an_error(self, subject: Subject, call: str) -> None:
        subject.tenant("acme").schedules.save("hourly", HOURLY, kind="report")
        with pytest.raises(ScheduleNotFound) as caught:
            getattr(subject.schedules, call)("hourly")
        assert caught.value.name == "hourly"
        assert caught.value.status == 404


class TestRunNow:
    """`run_now` enqueues a job of the schedule at once."""

    def test_it_is_a_job_like_the_others(self, subject: Subject) -> None:
        subject.schedules.save(
            "hourly", HOURLY, payload={"to": 1}, queue="reports", delay=DAY, kind="report"
        )
        subject.clock.advance(MINUTE)
        answer = subject.schedules.run_now("hourly")
        job = subject.take_one("reports")
        assert (job.id, job.kind, job.payload) == (answer.id, "report", {"to": 1})
        assert job.tick == subject.clock.now
        assert job.metadata == {"schedule": "hourly"}

    def test_it_takes_no_tick_away_and_a_unique_key_counts_here_too(self, subject: Subject) -> None:
        made = subject.schedules.save("hourly", HOURLY, unique_key="k", kind="report")
        subject.clock.advance(HOUR)
        first = subject.schedules.run_now("hourly")
        again = subject.schedules.run_now("hourly")
        assert (again.id, again.duplicate) == (first.id, True)
        assert moments(subject.deliveries.tick()) == [made.next_tick]
        assert stored(subject) == 1


REFUSED: Final[dict[str, list[Any]]] = {
    "cron": [
        "", 5, "* * * *", "0 * * * * *", "60 * * * *", "0 0 1 13 *", "@reboot",
        # Days that never come.
        "0 0 31 2 *", "* * */20 * 1L",
    ],
    "tz": ["Europe/Atlantis", "Europe", "../../etc/passwd", None],
    "catch_up": ["some"],
    "catch_up_most": [0, 1001, 1.5],
    "name": [""],
    "kind": [""],
    "queue": ["a,b"],
    "payload": [object()],
    "priority": [99999],
    # Options of one job.
    "run_at": [MIDNIGHT],
    "idempotency_key": ["k"],
}  # fmt: skip


class TestRefusedSchedules:
    """Invalid input is rejected with the name of the field, and nothing is stored."""

    @pytest.mark.parametrize("field", REFUSED)
    def test_it_is_refused_by_name(self, subject: Subject, field: str) -> None:
        for value in REFUSED[field]:
            given: dict[str, Any] = {"name": "hourly", "cron": HOURLY, "kind": "report"}
            if field == "catch_up_most":
                given["catch_up"] = "all"
            given[field] = value
            assert refused_field(subject.schedules.save, **given) == field, value
        assert subject.schedules.find() == []

    @pytest.mark.parametrize("catch_up", ["skip", "latest"])
    def test_a_bound_needs_something_to_bound(self, subject: Subject, catch_up: Any) -> None:
        with pytest.raises(ConflictingOptions) as caught:
            subject.schedules.save(
                "hourly", HOURLY, catch_up=catch_up, catch_up_most=5, kind="report"
            )
        assert caught.value.field == "catch_up_most"
