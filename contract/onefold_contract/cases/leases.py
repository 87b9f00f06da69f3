"""Leases and fences: which delivery may end a job, and what happens when a lease expires."""

from typing import Any

import pytest

from onefold.model.delivery import Delivery
from onefold.model.job import Job
from onefold.model.retry import Fixed
from onefold_contract.cases.common import (
    AT_ONCE,
    DAY,
    ENDINGS,
    HOUR,
    MICROSECOND,
    MINUTE,
    SECOND,
)
from onefold_contract.subject import Subject

__all__ = ["TestExpiry", "TestFences", "TestHeartbeats", "TestPoison", "TestRescue"]


def lapse(subject: Subject) -> Job:
    """Take the one due job, and let its lease end."""
    job = subject.take_one(lease=SECOND)
    subject.clock.advance(SECOND)
    return job


class TestFences:
    """The fence alone decides which delivery may end the job."""

    def test_a_fence_grows_with_every_take(self, subject: Subject) -> None:
        subject.enqueue("email", backoff=AT_ONCE)
        fences: list[int] = []
        for _ in range(3):
            job = subject.take_one()
            fences.append(job.fence)
            subject.deliveries.retry([job])
        assert fences == [1, 2, 3]

    @pytest.mark.parametrize("word", ENDINGS)
    def test_a_word_after_the_lease_but_before_another_take_counts(
        self, subject: Subject, word: str
    ) -> None:
        subject.enqueue("email")
        job = subject.take_one(lease=SECOND)
        subject.clock.advance(DAY)
        (ended,) = ENDINGS[word](subject, [job])
        assert ended.status == "accepted"

    def test_but_not_for_a_request_that_came_since(self, subject: Subject) -> None:
        subject.enqueue("email", {"n": 1}, backoff=AT_ONCE, unique_key="k")
        late = lapse(subject)
        subject.deliveries.rescue()
        subject.enqueue("email", {"n": 2}, unique_key="k", on_duplicate="replace")
        (ended,) = subject.deliveries.finish([late])
        assert ended.status == "lost"
        assert subject.take_one().payload == {"n": 2}

    @pytest.mark.parametrize("word", ENDINGS)
    def test_a_word_after_another_take_or_with_a_fence_of_the_future_is_lost_and_writes_nothing(
        self, subject: Subject, word: str
    ) -> None:
        subject.enqueue("email", backoff=AT_ONCE)
        stale = lapse(subject)
        subject.deliveries.rescue()
        current = subject.take_one()
        for fence in (stale.fence, current.fence + 1):
            (ended,) = ENDINGS[word](subject, [Delivery(stale.id, fence)])
            assert (ended.status, ended.fence, ended.state) == ("lost", fence, "running")
            assert subject.existing_job(current.id) == current
        (ended,) = subject.deliveries.finish([current])
        assert ended.status == "accepted"


class TestHeartbeats:
    """A heartbeat extends the lease of the delivery that has the fence."""

    def test_it_counts_from_now_and_what_beats_is_not_rescued(self, subject: Subject) -> None:
        subject.enqueue("email")
        job = subject.take_one(lease=MINUTE)
        assert job.lease_until == subject.clock.now + MINUTE
        for _ in range(5):
            subject.clock.advance(MINUTE - SECOND)
            (beat,) = subject.deliveries.heartbeat([job], lease=MINUTE)
            assert (beat.id, beat.fence, beat.lost) == (job.id, job.fence, False)
            assert beat.lease_until == subject.clock.now + MINUTE
            assert subject.existing_job(job.id).lease_until == beat.lease_until
            assert subject.deliveries.rescue().total == 0

    def test_it_revives_a_lease_that_nobody_else_has_noticed(self, subject: Subject) -> None:
        """The fence alone decides."""
        subject.enqueue("email")
        job = lapse(subject)
        assert not subject.deliveries.heartbeat([job], lease=MINUTE)[0].lost
        assert subject.deliveries.rescue().total == 0

    def test_a_lost_delivery_is_told(self, subject: Subject) -> None:
        subject.enqueue("email", backoff=AT_ONCE)
        stale = lapse(subject)
        subject.deliveries.rescue()
        assert subject.deliveries.heartbeat([stale], lease=MINUTE)[0].lost
        current = subject.take_one()
        beats = subject.deliveries.heartbeat([stale, current], lease=MINUTE)
        assert [beat.lost for beat in beats] == [True, False]
        subject.deliveries.finish([current])
        assert subject.deliveries.heartbeat([current], lease=MINUTE)[0].lost


class TestRescue:
    """A lease that ended is a failure, "lease expired"."""

    def test_a_lapsed_delivery_goes_back_by_its_backoff(self, subject: Subject) -> None:
        answer = subject.enqueue("email", backoff=Fixed(HOUR))
        lapse(subject)
        rescued = subject.deliveries.rescue()
        assert (rescued.requeued, rescued.buried, rescued.expired) == (1, 0, 0)
        job = subject.existing_job(answer.id)
        assert (job.state, job.attempt, job.fence) == ("retrying", 1, 1)
        assert job.run_at == subject.clock.now + HOUR
        assert job.error is not None
        assert job.error["message"] == "lease expired"
        assert (job.worker, job.lease_until) == (None, None)

    def test_a_lease_ends_at_its_last_moment_and_not_before(self, subject: Subject) -> None:
        subject.enqueue("email")
        subject.take_one(lease=MINUTE)
        subject.clock.advance(MINUTE - MICROSECOND)
        assert subject.deliveries.rescue().total == 0
        subject.clock.advance(MICROSECOND)
        assert subject.deliveries.rescue().total == 1

    def test_it_serves_every_tenant_and_queue(self, subject: Subject) -> None:
        subject.tenant("acme").enqueue("email", queue="one", backoff=AT_ONCE)
        subject.enqueue("email", queue="two", backoff=AT_ONCE)
        assert len(subject.take(["one", "two"], limit=2, lease=SECOND)) == 2
        subject.clock.advance(SECOND)
        assert subject.deliveries.rescue().requeued == 2


class TestPoison:
    """Five expired leases in a row bury a job, even if attempts remain."""

    def test_the_fifth_is_its_end(self, subject: Subject) -> None:
        answer = subject.enqueue("email", max_attempts=100, backoff=AT_ONCE)
        for _ in range(4):
            lapse(subject)
            subject.deliveries.rescue()
            assert subject.existing_job(answer.id).state == "retrying"
        lapse(subject)
        assert subject.deliveries.rescue().buried == 1
        job = subject.existing_job(answer.id)
        assert (job.state, job.reason, job.attempt) == ("dead", "poison", 5)

    @pytest.mark.parametrize("word", ["retry", "defer"])
    def test_only_in_a_row(self, subject: Subject, word: str) -> None:
        answer = subject.enqueue("email", max_attempts=100, backoff=AT_ONCE)
        for _ in range(4):
            lapse(subject)
            subject.deliveries.rescue()
        ENDINGS[word](subject, [subject.take_one()])
        subject.clock.advance(SECOND)
        for _ in range(4):
            lapse(subject)
            subject.deliveries.rescue()
        assert subject.existing_job(answer.id).state == "retrying"
        # What is handed back says nothing: the next one is the fifth in a row.
        subject.deliveries.hand_back([subject.take_one()])
        lapse(subject)
        subject.deliveries.rescue()
        assert subject.existing_job(answer.id).reason == "poison"


class TestExpiry:
    """`expires_at` bounds a job's whole life."""

    @pytest.mark.parametrize("scope", ["queued", "active"])
    def test_an_expired_holder_stands_in_nobodys_way(self, subject: Subject, scope: Any) -> None:
        """A new enqueue must not return a job that will never run."""
        old = subject.enqueue(
            "email", unique_key="k", unique_while=scope, expires_at=subject.clock.now + HOUR
        )
        assert subject.enqueue("email", unique_key="k").duplicate
        subject.clock.advance(HOUR)
        new = subject.enqueue("email", unique_key="k")
        assert not new.duplicate
        assert (subject.existing_job(old.id).state, subject.existing_job(old.id).reason) == (
            "dead",
            "expired",
        )
        assert subject.take_one().id == new.id

    @pytest.mark.parametrize("way", ["waiting", "scheduled", "retrying", "deferred"])
    def test_past_it_a_job_is_not_taken_and_is_buried_and_frees_its_key(
        self, subject: Subject, way: str
    ) -> None:
        answer = subject.enqueue(
            "email",
            unique_key="k",
            delay=2 * HOUR if way == "scheduled" else None,
            backoff=Fixed(DAY),
            expires_at=subject.clock.now + HOUR,
        )
        if way == "retrying":
            subject.deliveries.retry([subject.take_one()])
        for _ in range(4):
            if way == "deferred":
                subject.deliveries.defer([subject.take_one()], after=HOUR / 4)
            subject.clock.advance(HOUR / 4)
        assert subject.take() == []
        assert subject.deliveries.rescue().expired == 1
        job = subject.existing_job(answer.id)
        assert (job.state, job.reason) == ("dead", "expired")
        assert subject.enqueue("email", unique_key="k").inserted

    def test_a_running_delivery_may_still_finish(self, subject: Subject) -> None:
        subject.enqueue("email", expires_at=subject.clock.now + HOUR)
        job = subject.take_one(lease=DAY)
        subject.clock.advance(2 * HOUR)
        assert subject.deliveries.rescue().total == 0
        assert subject.deliveries.finish([job])[0].status == "accepted"
