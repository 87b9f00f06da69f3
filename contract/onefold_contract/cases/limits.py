"""Queues: pauses, limits, look and the list of queues."""

import pytest

from onefold.errors import InvalidInput
from onefold.model.limit import Limit
from onefold.model.queue import QueueCounts
from onefold_contract.cases.common import HOUR, MICROSECOND, MINUTE, SECOND, WORDS
from onefold_contract.cases.groups import fill, groups
from onefold_contract.subject import Subject

__all__ = [
    "TestConcurrency",
    "TestLooks",
    "TestPause",
    "TestQueueSettings",
    "TestRates",
]


class TestPause:
    """A paused queue gives no jobs."""

    def test_a_paused_queue_gives_nothing_and_what_is_running_goes_on(
        self, subject: Subject, queue: str
    ) -> None:
        fill(subject, queue, 3)
        fill(subject, queue, 2, "a")
        job = subject.take_one(queue)
        for _ in range(2):
            subject.queues.pause(queue)
        assert subject.take([queue], limit=9) == []
        assert subject.take_limited(queue, limit=9).jobs == []
        assert not subject.deliveries.heartbeat([job], lease=MINUTE)[0].lost
        assert subject.deliveries.finish([job])[0].status == "accepted"
        for _ in range(2):
            subject.queues.resume(queue)
        assert len(subject.take([queue], limit=9)) == 2


class TestConcurrency:
    """Concurrency: at most so many jobs of a queue or group run at once."""

    def test_a_queue_runs_so_many_at_once(self, subject: Subject, queue: str) -> None:
        fill(subject, queue, 5)
        subject.queues.set_limits(queue, limit=Limit(concurrency=3))
        first = subject.take_limited(queue, limit=2).jobs
        second = subject.take_limited(queue, limit=9).jobs
        assert (len(first), len(second)) == (2, 1)
        assert subject.take_limited(queue, limit=9).jobs == []
        subject.deliveries.finish(first)
        assert len(subject.take_limited(queue, limit=9).jobs) == 2

    def test_jobs_of_all_groups_count_for_the_queue(self, subject: Subject, queue: str) -> None:
        for group in ("a", "b", None):
            fill(subject, queue, 2, group)
        subject.queues.set_limits(queue, limit=Limit(concurrency=4))
        assert len(subject.take_limited(queue, limit=9).jobs) == 4
        assert subject.take_limited(queue, limit=9).jobs == []

    def test_each_group_runs_so_many_at_once(self, subject: Subject, queue: str) -> None:
        for group in ("a", "b"):
            fill(subject, queue, 4, group)
        subject.queues.set_limits(queue, group_limit=Limit(concurrency=2))
        taken = subject.take_limited(queue, limit=9).jobs
        assert groups(taken) == ["a", "a", "b", "b"]
        subject.deliveries.finish([job for job in taken if job.group_key == "b"])
        assert groups(subject.take_limited(queue, limit=9).jobs) == ["b", "b"]

    @pytest.mark.parametrize("ending", ["retry", "bury", "hand back", "lapse", "cancel"])
    def test_a_delivery_that_ends_makes_room_however_it_ends(
        self, subject: Subject, queue: str, ending: str
    ) -> None:
        fill(subject, queue, 2, "a")
        subject.queues.set_limits(
            queue, limit=Limit(concurrency=1), group_limit=Limit(concurrency=1)
        )
        (job,) = subject.take_limited(queue, limit=9, lease=SECOND).jobs
        WORDS[ending](subject, job)
        assert len(subject.take_limited(queue, limit=9).jobs) == 1

    def test_a_limit_is_changed_while_jobs_run(self, subject: Subject, queue: str) -> None:
        fill(subject, queue, 9)
        subject.queues.set_limits(queue, limit=Limit(concurrency=4))
        running = subject.take_limited(queue, limit=9).jobs
        subject.queues.set_limits(queue, limit=Limit(concurrency=2))
        assert subject.take_limited(queue, limit=9).jobs == []
        subject.deliveries.finish(running[:3])
        assert len(subject.take_limited(queue, limit=9).jobs) == 1
        subject.queues.set_limits(queue, limit=Limit(concurrency=5))
        assert len(subject.take_limited(queue, limit=9).jobs) == 3

    def test_what_ran_before_there_was_a_limit_counts_until_it_is_cleared(
        self, subject: Subject, queue: str
    ) -> None:
        fill(subject, queue, 5)
        subject.take([queue], limit=2)
        subject.queues.set_limits(queue, limit=Limit(concurrency=3))
        assert len(subject.take_limited(queue, limit=9).jobs) == 1
        assert subject.take([queue], limit=9) == []
        subject.queues.clear_limits(queue)
        assert len(subject.take([queue], limit=9)) == 2


class TestRates:
    """Rate: at most so many jobs of a queue or group start in a period."""

    def test_a_rate_allows_so_many_at_once_and_then_one_after_the_other(
        self, subject: Subject, queue: str
    ) -> None:
        fill(subject, queue, 9)
        subject.queues.set_limits(queue, limit=Limit(rate="3/m"))
        taken = subject.take_limited(queue, limit=9)
        assert (len(taken.jobs), taken.wait) == (3, 20_000_000)
        subject.clock.advance(20 * SECOND - MICROSECOND)
        taken = subject.take_limited(queue, limit=9)
        assert (taken.jobs, taken.wait) == ([], 1)
        subject.clock.advance(MICROSECOND)
        assert len(subject.take_limited(queue, limit=9).jobs) == 1
        subject.clock.advance(HOUR)
        assert len(subject.take_limited(queue, limit=9).jobs) == 3

    def test_only_what_is_taken_is_charged(self, subject: Subject, queue: str) -> None:
        subject.queues.set_limits(queue, limit=Limit(rate="2/h"))
        for _ in range(5):
            assert subject.take_limited(queue, limit=9).jobs == []
        fill(subject, queue, 3)
        assert len(subject.take_limited(queue, limit=1).jobs) == 1
        assert len(subject.take_limited(queue, limit=9).jobs) == 1

    def test_each_group_has_a_rate_of_its_own(self, subject: Subject, queue: str) -> None:
        for group in ("a", "b"):
            fill(subject, queue, 3, group)
        fill(subject, queue, 3)
        subject.queues.set_limits(queue, group_limit=Limit(rate="1/m"))
        taken = subject.take_limited(queue, limit=9)
        assert groups(taken.jobs) == [None, None, None, "a", "b"]
        assert taken.wait == 60_000_000
        subject.clock.advance(MINUTE)
        assert groups(subject.take_limited(queue, limit=9).jobs) == ["a", "b"]

    def test_a_faster_rate_counts_at_once(self, subject: Subject, queue: str) -> None:
        fill(subject, queue, 9)
        subject.queues.set_limits(queue, limit=Limit(rate="1/d"))
        assert len(subject.take_limited(queue, limit=9).jobs) == 1
        subject.queues.set_limits(queue, limit=Limit(rate="1/s"))
        assert subject.take_limited(queue, limit=9).wait == 1_000_000
        subject.clock.advance(SECOND)
        assert len(subject.take_limited(queue, limit=9).jobs) == 1

    def test_a_rate_and_a_concurrency_both_hold(self, subject: Subject, queue: str) -> None:
        fill(subject, queue, 9)
        subject.queues.set_limits(queue, limit=Limit(concurrency=2, rate="3/h"))
        first = subject.take_limited(queue, limit=9)
        assert (len(first.jobs), first.wait) == (2, None)
        subject.deliveries.finish(first.jobs)
        assert len(subject.take_limited(queue, limit=9).jobs) == 1

    def test_rates_that_nobody_has_used_up_are_forgotten(
        self, subject: Subject, queue: str
    ) -> None:
        fill(subject, queue, 1)
        subject.queues.set_limits(queue, limit=Limit(rate="1/m"))
        subject.take_limited(queue)
        subject.deliveries.sweep()
        fill(subject, queue, 2)
        assert subject.take_limited(queue).jobs == []
        subject.clock.advance(MINUTE)
        subject.deliveries.sweep()
        assert len(subject.take_limited(queue).jobs) == 1


class TestLooks:
    """What `look` returns to an idle worker."""

    @pytest.mark.parametrize("group", [None, "a"])
    def test_what_is_due_and_what_comes_next(
        self, subject: Subject, queue: str, group: str | None
    ) -> None:
        subject.enqueue("email", queue=queue, group_key=group, priority=3, delay=HOUR)
        subject.enqueue("email", queue=queue, group_key=group, priority=9, delay=MINUTE)
        seen = subject.deliveries.look([queue])[0]
        assert (seen.due, seen.due_grouped, seen.wait) == (False, False, 60_000_000)
        subject.clock.advance(MINUTE)
        seen = subject.deliveries.look([queue])[0]
        assert (seen.due, seen.due_grouped) == (group is None, group is not None)
        assert seen.wait == 59 * 60_000_000

    def test_the_sooner_of_both_sorts_comes_next(self, subject: Subject, queue: str) -> None:
        subject.enqueue("email", queue=queue, group_key="a", delay=SECOND)
        subject.enqueue("email", queue=queue, delay=MINUTE)
        assert subject.deliveries.look([queue])[0].wait == 1_000_000
        subject.clock.advance(SECOND)
        assert subject.deliveries.look([queue])[0].wait == 59_000_000

    def test_settings(self, subject: Subject, queue: str) -> None:
        subject.queues.set_limits(queue)
        subject.queues.pause(queue)
        assert subject.deliveries.look([queue])[0].paused
        subject.queues.resume(queue)
        subject.queues.set_limits(queue, group_limit=Limit(rate="1/s"))
        seen = subject.deliveries.look([queue])[0]
        assert (seen.paused, seen.controlled) == (False, True)
        subject.queues.set_limits(queue)
        assert not subject.deliveries.look([queue])[0].controlled


class TestQueueSettings:
    """What an operator sees and may set."""

    def test_a_queue_that_nobody_has_said_anything_about(
        self, subject: Subject, queue: str
    ) -> None:
        fill(subject, queue, 2, "a")
        fill(subject, queue, 3)
        subject.enqueue("email", queue=queue, delay=HOUR)
        subject.take([queue], limit=2)
        found = subject.existing_queue(queue)
        assert found.counts == QueueCounts(ready=3, scheduled=1, running=2, dead=None)
        assert (found.paused, found.ordered, found.limit, found.group_limit) == (
            False,
            False,
            None,
            None,
        )

    def test_what_was_said_is_shown(self, subject: Subject, queue: str) -> None:
        limit, group_limit = Limit(concurrency=5), Limit(concurrency=1, rate="10/30s")
        subject.queues.set_limits(queue, limit=limit, group_limit=group_limit, ordered=True)
        subject.queues.pause(queue)
        found = subject.existing_queue(queue)
        assert (found.limit, found.group_limit, found.ordered) == (limit, group_limit, True)
        assert (found.paused, found.declared) == (True, False)

    def test_a_key_is_the_codes_to_declare(self, subject: Subject, queue: str) -> None:
        with pytest.raises(InvalidInput, match="declare it there"):
            subject.queues.set_limits(queue, group_limit=Limit(key="tenant_id", concurrency=1))
        with pytest.raises(InvalidInput, match="only a group_limit"):
            subject.queues.set_limits(queue, limit=Limit(key="tenant_id", concurrency=1))

    def test_a_name_that_no_queue_can_have_is_refused(self, subject: Subject) -> None:
        for call in (
            subject.queues.pause,
            subject.queues.resume,
            subject.queues.set_limits,
            subject.queues.clear_limits,
        ):
            with pytest.raises(InvalidInput, match="queue"):
                call("a,b")
