"""Holds: a held queue gives no jobs, then one job at a time, until one succeeds."""

from typing import Any

import pytest

from onefold.errors import InvalidInput
from onefold.model.limit import Limit
from onefold_contract.cases.common import HOUR, MICROSECOND, MINUTE, SECOND, WORDS
from onefold_contract.cases.groups import fill
from onefold_contract.subject import Subject

__all__ = ["TestHolds", "TestHoldsByAWorker", "TestProbes"]


class TestHolds:
    """A held queue gives no jobs."""

    def test_a_held_queue_gives_nothing(self, subject: Subject, queue: str) -> None:
        fill(subject, queue, 3)
        fill(subject, queue, 3, "a")
        subject.queues.hold(queue, after=MINUTE, why="backpressure")
        assert subject.take([queue], limit=9) == []
        taken = subject.take_limited(queue, limit=9)
        assert (taken.jobs, taken.wait) == ([], MINUTE // MICROSECOND)

    @pytest.mark.parametrize(
        ("first", "second", "expected"),
        [
            (("deferred", HOUR), ("circuit", MINUTE), ("deferred", HOUR)),
            (("circuit", MINUTE), ("backpressure", HOUR), ("backpressure", HOUR)),
            # An endpoint that fails prolongs a hold, and the receiver's reason stays.
            (("deferred", MINUTE), ("circuit", HOUR), ("deferred", HOUR)),
            (("circuit", HOUR), ("deferred", MINUTE), ("deferred", HOUR)),
        ],
    )
    def test_the_longer_hold_counts_and_the_reason_of_the_receiver(
        self, subject: Subject, queue: str, first: Any, second: Any, expected: Any
    ) -> None:
        for why, after in (first, second):
            subject.queues.hold(queue, after=after, why=why)
        found = subject.existing_queue(queue)
        assert (found.held_why, found.held_until) == (expected[0], subject.clock.now + expected[1])

    def test_a_hold_that_is_not_over_is_shortened_and_opened_by_force_alone(
        self, subject: Subject, queue: str
    ) -> None:
        fill(subject, queue, 3)
        subject.queues.hold(queue, after=HOUR, why="deferred")
        subject.queues.hold(queue, after=MINUTE, why="circuit", force=True)
        assert subject.existing_queue(queue).held_until == subject.clock.now + MINUTE
        assert not subject.queues.end_hold(queue)
        assert subject.take([queue], limit=9) == []
        assert subject.queues.end_hold(queue, force=True)
        assert len(subject.take([queue], limit=9)) == 3

    def test_opening_what_is_open_changes_nothing(self, subject: Subject, queue: str) -> None:
        assert not subject.queues.end_hold(queue, force=True)
        fill(subject, queue, 1)
        subject.queues.pause(queue)
        assert not subject.queues.end_hold(queue)
        assert subject.existing_queue(queue).paused

    def test_limits_that_are_set_or_taken_off_meanwhile_hold_afterwards(
        self, subject: Subject, queue: str
    ) -> None:
        fill(subject, queue, 5)
        subject.queues.hold(queue, after=MINUTE, why="backpressure")
        subject.queues.set_limits(queue, limit=Limit(concurrency=2))
        assert subject.take_limited(queue, limit=9).jobs == []
        subject.queues.end_hold(queue, force=True)
        assert subject.take([queue], limit=9) == []
        assert len(subject.take_limited(queue, limit=9).jobs) == 2
        subject.queues.hold(queue, after=MINUTE, why="backpressure")
        subject.queues.clear_limits(queue)
        assert subject.take([queue], limit=9) == []
        subject.queues.end_hold(queue, force=True)
        assert len(subject.take([queue], limit=9)) == 3

    @pytest.mark.parametrize(
        "limits",
        [
            {"limit": Limit(rate="1/h")},
            {"group_limit": Limit(concurrency=1)},
            {"group_limit": Limit(rate="1/h")},
            {"ordered": True},
        ],
        ids=str,
    )
    def test_an_opened_queue_is_as_limited_as_before(
        self, subject: Subject, queue: str, limits: dict[str, Limit]
    ) -> None:
        fill(subject, queue, 3, "a")
        subject.queues.set_limits(queue, **limits)  # type: ignore[arg-type]
        subject.queues.hold(queue, after=MINUTE, why="backpressure")
        subject.queues.end_hold(queue, force=True)
        assert subject.deliveries.look([queue])[0].controlled
        assert len(subject.take_limited(queue, limit=9).jobs) == 1

    def test_a_pause_outlasts_a_hold(self, subject: Subject, queue: str) -> None:
        fill(subject, queue, 1)
        subject.queues.pause(queue)
        subject.queues.hold(queue, after=MINUTE, why="backpressure")
        subject.queues.end_hold(queue, force=True)
        assert subject.take_limited(queue).jobs == []
        subject.queues.resume(queue)
        assert len(subject.take([queue])) == 1

    def test_failures_are_counted_in_a_row(self, subject: Subject, queue: str) -> None:
        assert [subject.queues.count_failure(queue) for _ in range(3)] == [1, 2, 3]
        assert subject.queues.end_hold(queue)
        assert not subject.queues.end_hold(queue)
        assert subject.queues.count_failure(queue) == 1

    def test_a_hold_says_when_it_ends_in_one_way(self, subject: Subject, queue: str) -> None:
        with pytest.raises(InvalidInput, match="until"):
            subject.queues.hold(queue, why="circuit")
        with pytest.raises(InvalidInput, match="until"):
            subject.queues.hold(queue, why="circuit", after=MINUTE, until=subject.clock.now)
        because: Any = "because"
        with pytest.raises(InvalidInput, match="why"):
            subject.queues.hold(queue, why=because, after=MINUTE)
        until = subject.clock.now + HOUR
        assert subject.queues.hold(queue, why="circuit", until=until) == until


class TestProbes:
    """After a hold, one job is taken as a probe."""

    def held(self, subject: Subject, queue: str, size: int = 9) -> None:
        """A queue whose hold has ended, and that has not been opened."""
        fill(subject, queue, size)
        subject.queues.hold(queue, after=MINUTE, why="backpressure")
        subject.clock.advance(MINUTE)

    def test_after_a_success_the_queue_is_open(self, subject: Subject, queue: str) -> None:
        self.held(subject, queue)
        assert subject.take([queue], limit=9) == []
        (probe,) = subject.take_limited(queue, limit=9).jobs
        assert subject.take_limited(queue, limit=9, worker="other").jobs == []
        subject.deliveries.finish([probe])
        assert subject.queues.end_hold(queue)
        assert len(subject.take([queue], limit=9)) == 8
        assert subject.existing_queue(queue).held_until is None

    def test_jobs_from_before_the_hold_neither_open_it_nor_stand_in_the_way(
        self, subject: Subject, queue: str
    ) -> None:
        fill(subject, queue, 9)
        early, late, parked = subject.take([queue], limit=3, lease=HOUR)
        subject.deliveries.park(parked, ack_timeout=HOUR)
        subject.queues.hold(queue, after=MINUTE, why="backpressure")
        subject.clock.advance(MINUTE)
        (probe,) = subject.take_limited(queue, limit=9).jobs
        assert subject.deliveries.acknowledge(early.id).status == "accepted"
        assert not subject.queues.end_hold(queue, by=late)
        assert subject.take_limited(queue, limit=9).jobs == []
        assert subject.queues.end_hold(queue, by=probe)
        assert len(subject.take([queue], limit=9)) == 5

    def test_a_hold_can_be_opened_for_one_reason_alone(self, subject: Subject, queue: str) -> None:
        subject.queues.hold(queue, after=MINUTE, why="deferred")
        subject.clock.advance(MINUTE)
        assert not subject.queues.end_hold(queue, only="circuit")
        assert subject.queues.end_hold(queue, only="deferred")

    @pytest.mark.parametrize("ending", ["nack", "nack for good", "defer job", "lapse"])
    def test_a_probe_that_is_not_acknowledged_opens_nothing(
        self, subject: Subject, queue: str, ending: str
    ) -> None:
        self.held(subject, queue)
        (probe,) = subject.take_limited(queue, limit=9).jobs
        subject.deliveries.park(probe, ack_timeout=SECOND)
        WORDS[ending](subject, probe)
        (next_probe,) = subject.take_limited(queue, limit=9).jobs
        subject.deliveries.park(next_probe, ack_timeout=5 * MINUTE)
        assert subject.take_limited(queue, limit=9).jobs == []
        subject.deliveries.acknowledge(next_probe.id)
        assert subject.existing_queue(queue).held_until is None
        assert subject.take([queue]), "it is open"

    @pytest.mark.parametrize("ending", ["retry", "hand back", "lapse"])
    def test_after_a_failure_another_one_goes(
        self, subject: Subject, queue: str, ending: str
    ) -> None:
        self.held(subject, queue)
        (probe,) = subject.take_limited(queue, limit=9, lease=SECOND).jobs
        WORDS[ending](subject, probe)
        assert len(subject.take_limited(queue, limit=9).jobs) == 1
        assert subject.take_limited(queue, limit=9).jobs == []

    def test_a_new_hold_stops_the_probes_again(self, subject: Subject, queue: str) -> None:
        self.held(subject, queue)
        subject.take_limited(queue)
        subject.queues.hold(queue, after=MINUTE, why="backpressure")
        assert subject.take_limited(queue).jobs == []
        subject.clock.advance(MINUTE)
        assert len(subject.take_limited(queue, limit=9).jobs) == 1

    def test_a_probe_keeps_to_the_limits_of_its_queue(self, subject: Subject, queue: str) -> None:
        fill(subject, queue, 3)
        subject.queues.set_limits(queue, limit=Limit(concurrency=1))
        (running,) = subject.take_limited(queue, lease=HOUR).jobs
        subject.queues.hold(queue, after=MINUTE, why="backpressure")
        subject.clock.advance(MINUTE)
        assert subject.take_limited(queue).jobs == []
        subject.deliveries.finish([running])
        assert len(subject.take_limited(queue, limit=9).jobs) == 1


class TestHoldsByAWorker:
    """A worker can hold the whole queue with a defer."""

    @pytest.mark.parametrize("is_repeated", [False, True])
    def test_the_queue_is_held_once_and_for_as_long_as_the_job_is_deferred(
        self, subject: Subject, queue: str, *, is_repeated: bool
    ) -> None:
        fill(subject, queue, 3)
        job = subject.take_one(queue)
        subject.deliveries.defer_job(job.id, after=MINUTE, hold_queue=True)
        found = subject.existing_queue(queue)
        assert (found.held_until, found.held_why) == (subject.clock.now + MINUTE, "deferred")
        assert subject.take([queue], limit=9) == []
        if is_repeated:
            subject.queues.end_hold(queue, force=True)
            again = subject.deliveries.defer_job(job.id, after=MINUTE, hold_queue=True)
            assert again.status == "already"
            assert subject.existing_queue(queue).held_until is None
        else:
            subject.clock.advance(MINUTE)
            assert len(subject.take_limited(queue, limit=9).jobs) == 1
