"""Taking jobs: which jobs, in which order, and for how long."""

from collections import Counter

from onefold_contract.cases.common import HOUR, MICROSECOND, MINUTE, foremost, stored
from onefold_contract.subject import Subject

__all__ = ["TestTakeOrder", "TestTakes"]


class TestTakes:
    """queued → running: the attempt is charged, the fence grows, the lease begins."""

    def test_a_taken_job_says_all_that_a_worker_needs(self, subject: Subject) -> None:
        answer = subject.tenant("acme").enqueue("email", {"to": 1}, max_attempts=3)
        (job,) = subject.take(worker="alpha", lease=MINUTE)
        assert (job.id, job.tenant, job.kind, job.payload) == (
            answer.id,
            "acme",
            "email",
            {"to": 1},
        )
        assert (job.state, job.attempt, job.max_attempts, job.fence) == ("running", 1, 3, 1)
        assert (job.worker, job.lease_until) == ("alpha", subject.clock.now + MINUTE)
        assert subject.tenant("acme").existing_job(answer.id) == job

    def test_a_job_that_is_scheduled_waits_for_its_time(self, subject: Subject) -> None:
        subject.enqueue("email", delay=HOUR)
        assert subject.find(state="scheduled").jobs[0].run_at == subject.clock.now + HOUR
        subject.clock.advance(HOUR - MICROSECOND)
        assert subject.take() == []
        subject.clock.advance(MICROSECOND)
        assert len(subject.take()) == 1

    def test_a_job_is_taken_once_and_the_limit_bounds_a_take(self, subject: Subject) -> None:
        for _ in range(5):
            subject.enqueue("email")
        assert [len(subject.take(limit=3)) for _ in range(3)] == [3, 2, 0]
        assert stored(subject) == 5


class TestTakeOrder:
    """Priority, lower first; then run_at; then id. Queues in the order given.

    One take returns its jobs in that order, from all shards. Between takes, the order is strict
    within a shard only.
    """

    def test_jobs_of_a_better_priority_that_are_not_due_do_not_stand_in_the_way(
        self, subject: Subject
    ) -> None:
        subject.enqueue("email", {"n": 1}, priority=-5, delay=HOUR)
        subject.enqueue("email", {"n": 2}, priority=-4, delay=HOUR)
        subject.enqueue("email", {"n": 3}, priority=3)
        assert [job.payload["n"] for job in subject.take(limit=3)] == [3]

    def test_queues_are_served_in_the_order_given(self, subject: Subject) -> None:
        made = {
            (queue, n): subject.enqueue("email", queue=queue, priority=n).id
            for queue in ("slow", "fast")
            for n in (1, 0)
        }
        taken = subject.take(["fast", "slow"], limit=3)
        order = [made[place] for place in (("fast", 0), ("fast", 1), ("slow", 0), ("slow", 1))]
        assert len(taken) == 3
        assert [job.id for job in taken] == foremost(subject, order, taken)

    def test_each_queue_gives_no_more_than_its_own_limit(self, subject: Subject) -> None:
        for queue in ("a", "b", "c"):
            for _ in range(4):
                subject.enqueue("email", queue=queue)
        taken = subject.take({"a": 1, "b": 3, "c": 4}, limit=6)
        queues = [job.queue for job in taken]
        given = Counter(queues)
        assert len(taken) == 6
        assert (given["a"] <= 1, given["b"] <= 3, given["c"] <= 4) == (True, True, True)
        assert queues == sorted(queues)
        if subject.shards == 1:
            assert queues == ["a", "b", "b", "b", "c", "c"]
