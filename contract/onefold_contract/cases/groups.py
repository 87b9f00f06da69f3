"""Groups of jobs: taken in turn, and in order if the queue is ordered."""

from collections import Counter
from collections.abc import Sequence
from uuid import uuid4

import pytest

from onefold.model.job import Job, NewJob
from onefold.model.limit import Limit
from onefold_contract.cases.common import HOUR, MINUTE, SECOND
from onefold_contract.subject import Subject

__all__ = ["TestGroups", "TestOrder", "queue"]


@pytest.fixture
def queue() -> str:
    """A queue that only this test uses: settings of a queue outlive a reset."""
    return f"queue {uuid4().hex}"


def fill(subject: Subject, queue: str, size: int, group: str | None = None) -> list[str]:
    """Enqueue `size` jobs, with a key each, so that they spread over all shards; return ids."""
    jobs = [
        NewJob("email", queue=queue, group_key=group, unique_key=f"{queue} {group} {uuid4().hex}")
        for _ in range(size)
    ]
    return [answer.id for answer in subject.enqueue_many(jobs)]


def groups(jobs: Sequence[Job]) -> list[str | None]:
    """The groups of jobs, sorted."""
    return sorted((job.group_key for job in jobs), key=str)


class TestGroups:
    """Jobs with a group are taken in order, and no group blocks another."""

    def test_a_plain_take_leaves_jobs_with_a_group_alone(
        self, subject: Subject, queue: str
    ) -> None:
        fill(subject, queue, 2, "a")
        fill(subject, queue, 1)
        assert groups(subject.take([queue], limit=9)) == [None]

    def test_they_are_taken_with_the_others_in_one_order(
        self, subject: Subject, queue: str
    ) -> None:
        now = subject.clock.now
        places = [(-1, 0, "b"), (0, 3, None), (0, 2, "a"), (0, 1, "b"), (5, 9, None), (6, 9, "a")]
        for priority, minutes, group in reversed(places):
            subject.enqueue(
                "email",
                [priority, minutes],
                queue=queue,
                group_key=group,
                priority=priority,
                run_at=now - minutes * MINUTE,
            )
        first = subject.take_limited(queue, limit=4).jobs
        second = subject.take_limited(queue, limit=4).jobs
        taken = [(*job.payload, job.group_key) for job in (*first, *second)]
        assert taken == places

    def test_a_full_group_of_many_does_not_starve_the_others(
        self, subject: Subject, queue: str
    ) -> None:
        fill(subject, queue, 600, "a")
        subject.clock.advance(SECOND)
        fill(subject, queue, 2, "b")
        fill(subject, queue, 2)
        subject.queues.set_limits(queue, group_limit=Limit(concurrency=1))
        taken = subject.take_limited(queue, limit=5).jobs
        assert groups(taken) == [None, None, "a", "b"]

    def test_every_one_of_many_groups_has_its_turn(self, subject: Subject, queue: str) -> None:
        jobs = [
            NewJob("email", queue=queue, group_key=f"group {n % 300:03}", unique_key=f"{n}")
            for n in range(900)
        ]
        subject.enqueue_many(jobs)
        subject.queues.set_limits(queue, group_limit=Limit(concurrency=1))
        served: Counter[str | None] = Counter()
        for _ in range(7):
            served.update(groups(subject.take_limited(queue, limit=50).jobs))
        assert set(served.values()) == {1}
        assert len(served) == 300

    def test_kinds_that_a_worker_does_not_know_are_left(self, subject: Subject, queue: str) -> None:
        for group in ("a", None):
            subject.enqueue("letter", queue=queue, group_key=group)
            subject.enqueue("email", queue=queue, group_key=group)
        taken = subject.take_limited(queue, limit=9, unknown=["letter"]).jobs
        assert [job.kind for job in taken] == ["email", "email"]

    def test_a_key_that_is_held_while_queued_is_given_up(
        self, subject: Subject, queue: str
    ) -> None:
        options = {"queue": queue, "group_key": "a", "unique_while": "queued"}
        first = subject.enqueue("email", unique_key="k", **options)  # type: ignore[arg-type]
        subject.take_limited(queue)
        second = subject.enqueue("email", unique_key="k", **options)  # type: ignore[arg-type]
        assert (second.duplicate, second.id == first.id) == (False, False)

    def test_jobs_that_have_expired_are_not_taken(self, subject: Subject, queue: str) -> None:
        soon = subject.clock.now + SECOND
        for group in ("a", None):
            subject.enqueue("email", queue=queue, group_key=group, expires_at=soon)
        subject.clock.advance(SECOND)
        assert subject.take_limited(queue, limit=9).jobs == []


class TestOrder:
    """The jobs of an ordered group run one at a time, in the order in which they were enqueued."""

    def test_one_at_a_time_and_in_order(self, subject: Subject, queue: str) -> None:
        subject.queues.set_limits(queue, ordered=True)
        ids = {group: fill(subject, queue, 3, group) for group in ("a", "b")}
        ran: dict[str | None, list[str]] = {"a": [], "b": []}
        for _ in range(3):
            taken = subject.take_limited(queue, limit=9).jobs
            assert groups(taken) == ["a", "b"]
            assert subject.take_limited(queue, limit=9).jobs == []
            for job in taken:
                ran[job.group_key].append(job.id)
            subject.deliveries.finish(taken)
        assert ran == ids

    def test_a_priority_does_not_change_the_order(self, subject: Subject, queue: str) -> None:
        subject.queues.set_limits(queue, ordered=True)
        ids = [
            subject.enqueue("email", queue=queue, group_key="a", priority=priority).id
            for priority in (5, 0, -5)
        ]
        ran: list[str] = []
        while jobs := subject.take_limited(queue).jobs:
            ran += [job.id for job in jobs]
            subject.deliveries.finish(jobs)
        assert ran == ids

    def test_a_failing_head_blocks_its_group_until_it_is_done(
        self, subject: Subject, queue: str
    ) -> None:
        subject.queues.set_limits(queue, ordered=True)
        first, second = fill(subject, queue, 2, "a")
        # Later, as run_at has it: ids of one millisecond are in the order of their keys' hashes.
        subject.clock.advance(SECOND)
        other = fill(subject, queue, 1, "b")
        taken = subject.take_limited(queue, limit=9).jobs
        assert [job.id for job in taken] == [first, *other]
        subject.deliveries.retry(taken[:1], after=MINUTE)
        assert subject.take_limited(queue, limit=9).jobs == []
        subject.clock.advance(MINUTE)
        (again,) = subject.take_limited(queue, limit=9).jobs
        assert (again.id, again.attempt) == (first, 2)
        subject.deliveries.finish([again])
        assert [job.id for job in subject.take_limited(queue).jobs] == [second]

    @pytest.mark.parametrize("ending", ["bury", "cancel", "expire"])
    def test_a_head_that_will_not_run_again_lets_the_next_go(
        self, subject: Subject, queue: str, ending: str
    ) -> None:
        subject.queues.set_limits(queue, ordered=True)
        soon = subject.clock.now + SECOND
        head = subject.enqueue("email", queue=queue, group_key="a", expires_at=soon).id
        (second,) = fill(subject, queue, 1, "a")
        match ending:
            case "bury":
                subject.deliveries.bury(subject.take_limited(queue).jobs, reason="broken")
            case "cancel":
                subject.cancel(head)
            case _:
                subject.clock.advance(SECOND)
                subject.deliveries.rescue()
        assert [job.id for job in subject.take_limited(queue).jobs] == [second]

    def test_a_head_that_is_scheduled_makes_its_group_wait_and_no_job_without_a_group(
        self, subject: Subject, queue: str
    ) -> None:
        subject.queues.set_limits(queue, ordered=True)
        head = subject.enqueue("email", queue=queue, group_key="a", delay=HOUR).id
        fill(subject, queue, 1, "a")
        fill(subject, queue, 3)
        assert subject.take([queue], limit=9) == []
        assert groups(subject.take_limited(queue, limit=9).jobs) == [None] * 3
        subject.clock.advance(HOUR)
        assert [job.id for job in subject.take_limited(queue).jobs] == [head]

    def test_many_waiting_jobs_of_one_group_do_not_starve_another(
        self, subject: Subject, queue: str
    ) -> None:
        subject.queues.set_limits(queue, ordered=True)
        ids = fill(subject, queue, 600, "a")
        (other,) = fill(subject, queue, 1, "b")
        taken = subject.take_limited(queue, limit=9).jobs
        assert [job.id for job in taken] == [ids[0], other]
