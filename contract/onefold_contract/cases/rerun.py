"""Rule 9, `rerun`: a running holder gets one successor. No trigger is lost, none is stale."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from onefold.model.delivery import Delivery
from onefold.model.job import Enqueued, Job
from onefold.model.lifecycle import Event, Retention
from onefold.model.retry import Fixed
from onefold.operations.endings import Ending
from onefold_contract.cases.common import (
    AT_ONCE,
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    WORDS,
    complete,
    kept,
    stored,
)
from onefold_contract.subject import Subject

__all__ = ["TestEndings", "TestRerun", "TestSuccessors"]


ENDINGS: Final[dict[str, Callable[[Subject, Job], object]]] = {
    "finish": lambda subject, job: subject.deliveries.finish([job]),
    "finish and take": lambda subject, job: subject.deliveries.finish_and_take(
        [job], ["other"], worker="worker", lease=MINUTE
    ),
    "bury": lambda subject, job: subject.deliveries.bury([job], reason="broken"),
    "last failure": lambda subject, job: subject.deliveries.retry([job]),
    "rescue": WORDS["lapse"],
    "cancel": lambda subject, job: subject.cancel(job.id),
    "cancel by the handler": lambda subject, job: subject.deliveries.end(
        [Ending(Delivery(job.id, job.fence), Event.CANCEL)]
    ),
    "delete": lambda subject, job: subject.delete(job.id),
}

SCOPES: Final[dict[str, Any]] = {
    "active": {},
    "exists": {"unique_while": "exists"},
    "unique_for": {"unique_for": HOUR},
    "active and unique_for": {"unique_while": "active", "unique_for": HOUR},
    "exists and unique_for": {"unique_while": "exists", "unique_for": HOUR},
}


def trigger(subject: Subject, n: int, **options: Any) -> Enqueued:
    """One request to run the job again."""
    return subject.enqueue("index", {"n": n}, unique_key="k", on_duplicate="rerun", **options)


def successor(subject: Subject, holder_id: str) -> Job:
    """The one job that followed the holder."""
    (job,) = [job for job in kept(subject, "k") if job.id != holder_id]
    return job


class TestRerun:
    """Rule 9: what `rerun` returns, and what it does if the holder is not running."""

    def test_a_queued_holder_takes_the_new_payload_and_is_not_put_off(
        self, subject: Subject
    ) -> None:
        first = trigger(subject, 1)
        again = trigger(subject, 2, delay=HOUR)
        assert again == Enqueued(first.id, duplicate=True, replaced=True)
        job = subject.existing_job(first.id)
        assert (job.payload, job.run_at) == ({"n": 2}, subject.clock.now)
        complete(subject)
        assert stored(subject) == 1, "no job was running, so no job follows"

    def test_a_running_holder_is_the_answer(self, subject: Subject) -> None:
        first = trigger(subject, 1)
        subject.take_one()
        assert trigger(subject, 2) == Enqueued(first.id, duplicate=True, state="running")
        assert subject.existing_job(first.id).payload == {"n": 1}
        assert stored(subject) == 1, "the successor waits for the end"

    def test_a_retrying_holder_takes_the_payload_and_keeps_its_backoff(
        self, subject: Subject
    ) -> None:
        first = trigger(subject, 1, backoff=Fixed(HOUR))
        subject.deliveries.retry([subject.take_one()])
        assert trigger(subject, 2).replaced
        job = subject.existing_job(first.id)
        assert (job.payload, job.attempt, job.generation) == ({"n": 2}, 0, 1)
        assert job.run_at == subject.clock.now + HOUR

    def test_a_running_job_that_gave_its_key_up_is_no_holder(self, subject: Subject) -> None:
        trigger(subject, 1, unique_while="queued")
        subject.take_one()
        assert trigger(subject, 2, unique_while="queued").inserted

    @pytest.mark.parametrize("scope", ["exists", "unique_for"])
    def test_an_ended_holder_is_kept_and_a_different_request_is_flagged(
        self, subject: Subject, scope: str
    ) -> None:
        """Rule 8: this request is not run, so the mismatch is reported."""
        first = trigger(subject, 1, **SCOPES[scope])
        complete(subject)
        assert trigger(subject, 2) == Enqueued(
            first.id, duplicate=True, state="completed", mismatch=True
        )
        assert stored(subject) == 1

    def test_keep_leaves_no_successor(self, subject: Subject) -> None:
        trigger(subject, 1)
        job = subject.take_one()
        subject.enqueue("index", {"n": 2}, unique_key="k")
        subject.deliveries.finish([job])
        assert stored(subject) == 1


class TestEndings:
    """Rule 9: the successor is stored for every ending and every scope of the holder."""

    @pytest.mark.parametrize("scope", SCOPES)
    @pytest.mark.parametrize("ending", ENDINGS)
    def test_the_newest_request_follows_and_has_the_key(
        self, subject: Subject, ending: str, scope: str
    ) -> None:
        first = trigger(subject, 1, max_attempts=1, **SCOPES[scope])
        job = subject.take_one()
        for n in (2, 3, 4):
            assert trigger(subject, n, **SCOPES[scope]).id == first.id
        ENDINGS[ending](subject, job)

        follower = successor(subject, first.id)
        assert (follower.payload, follower.state, follower.attempt) == ({"n": 4}, "ready", 0)
        assert subject.enqueue("index", {"n": 4}, unique_key="k").id == follower.id
        assert subject.take_one().id == follower.id

    def test_a_holder_that_expires_while_it_waits_has_one_too(self, subject: Subject) -> None:
        first = trigger(subject, 1, expires_at=subject.clock.now + HOUR, backoff=Fixed(DAY))
        job = subject.take_one()
        trigger(subject, 2)
        subject.deliveries.retry([job])
        subject.clock.advance(HOUR)
        subject.deliveries.rescue()
        assert subject.existing_job(first.id).reason == "expired"
        assert successor(subject, first.id).payload == {"n": 2}

    @pytest.mark.parametrize("scope", ["active", "unique_for"])
    def test_a_record_that_is_not_kept_hands_its_key_over_too(
        self, subject: Subject, scope: str
    ) -> None:
        """Rule 11: no tombstone blocks the successor."""
        first = trigger(subject, 1, retention=Retention(completed=SECOND * 0), **SCOPES[scope])
        job = subject.take_one()
        trigger(subject, 2)
        subject.deliveries.finish([job])
        assert subject.get(first.id) is None
        (follower,) = kept(subject, "k")
        assert subject.enqueue("index", {"n": 2}, unique_key="k").id == follower.id

    def test_a_repeated_finish_makes_no_second_successor(self, subject: Subject) -> None:
        trigger(subject, 1)
        job = subject.take_one()
        trigger(subject, 2)
        subject.deliveries.finish([job])
        complete(subject)
        (again,) = subject.deliveries.finish([job])
        assert again.status == "already"
        assert stored(subject) == 2


class TestSuccessors:
    """Rule 9: no request to rerun is lost, and none is stale."""

    @pytest.mark.parametrize("way", ["retry", "defer", "hand back", "lapse"])
    def test_the_successor_waits_while_the_holder_goes_round(
        self, subject: Subject, way: str
    ) -> None:
        first = trigger(subject, 1, backoff=AT_ONCE)
        job = subject.take_one()
        trigger(subject, 2)
        WORDS[way](subject, job)
        subject.clock.advance(HOUR)
        assert stored(subject) == 1
        assert complete(subject).payload == {"n": 1}
        assert successor(subject, first.id).payload == {"n": 2}

    def test_a_newer_trigger_on_the_queued_holder_takes_the_successors_place(
        self, subject: Subject
    ) -> None:
        """Rerun, retry, rerun: the first successor is stale and must not run."""
        trigger(subject, 1, backoff=AT_ONCE)
        job = subject.take_one()
        trigger(subject, 2)
        subject.deliveries.retry([job])
        trigger(subject, 3)
        assert complete(subject).payload == {"n": 3}
        assert stored(subject) == 1

    @pytest.mark.parametrize("ending", ["cancel", "delete"])
    def test_a_holder_that_ends_while_it_waits_has_its_successor(
        self, subject: Subject, ending: str
    ) -> None:
        first = trigger(subject, 1)
        job = subject.take_one()
        trigger(subject, 2)
        subject.deliveries.retry([job], after=HOUR)
        ENDINGS[ending](subject, job)
        assert successor(subject, first.id).payload == {"n": 2}

    def test_it_is_the_whole_request(self, subject: Subject) -> None:
        first = trigger(subject, 1)
        job = subject.take_one()
        run_at, expires_at = subject.clock.now + HOUR, subject.clock.now + DAY
        trigger(
            subject,
            2,
            queue="slow",
            priority=7,
            max_attempts=3,
            run_at=run_at,
            expires_at=expires_at,
            unique_while="exists",
            retention=Retention(completed=MINUTE),
        )
        subject.deliveries.finish([job])
        follower = successor(subject, first.id)
        assert (follower.queue, follower.priority, follower.max_attempts) == ("slow", 7, 3)
        assert (follower.run_at, follower.expires_at) == (run_at, expires_at)
        subject.clock.advance(HOUR)
        complete(subject, "slow")
        assert subject.enqueue("index", unique_key="k").id == follower.id, "its scope is its own"
        subject.clock.advance(MINUTE)
        subject.deliveries.prune()
        assert subject.enqueue("index", unique_key="k").inserted, "and so is its retention"

    def test_its_delay_counts_from_the_trigger(self, subject: Subject) -> None:
        first = trigger(subject, 1)
        job = subject.take_one(lease=DAY)
        due = subject.clock.now + HOUR
        trigger(subject, 2, delay=HOUR)
        subject.clock.advance(MINUTE)
        subject.deliveries.finish([job])
        assert successor(subject, first.id).run_at == due
