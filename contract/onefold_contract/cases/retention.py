"""Rule 11: how long jobs are kept, and that a prune does not free a key that is held longer."""

from datetime import timedelta
from typing import Any, Final

import pytest

from onefold.errors import Gone, JobNotFound
from onefold.model.job import Enqueued
from onefold.model.lifecycle import Retention
from onefold_contract.cases.common import (
    DAY,
    HOUR,
    MICROSECOND,
    MINUTE,
    MOMENTS,
    SECOND,
    complete,
    stored,
)
from onefold_contract.subject import Subject

__all__ = ["TestDelete", "TestRetention", "TestTombstones"]

NOTHING: Final = SECOND * 0


DEFAULTS: Final[dict[str, timedelta]] = {
    "completed": DAY,
    "dead": 30 * DAY,
    "cancelled": 7 * DAY,
}


def retention(outcome: str, duration: timedelta) -> Retention:
    """How long a job with this outcome stays."""
    given: Any = {outcome: duration}
    return Retention(**given)


class TestRetention:
    """Finished jobs are kept for the retention of their outcome."""

    @pytest.mark.parametrize("said", [None, MINUTE], ids=["default", "said"])
    @pytest.mark.parametrize("outcome", DEFAULTS)
    def test_as_long_as_the_table_or_the_job_says(
        self, subject: Subject, outcome: str, said: timedelta | None
    ) -> None:
        kept_for = said or DEFAULTS[outcome]
        answer = subject.enqueue("email", retention=retention(outcome, said) if said else None)
        MOMENTS[outcome](subject)
        subject.clock.advance(kept_for - MICROSECOND)
        subject.deliveries.prune()
        assert subject.existing_job(answer.id).state == outcome
        subject.clock.advance(MICROSECOND)
        assert subject.deliveries.prune().deleted == 1
        assert subject.get(answer.id) is None

    @pytest.mark.parametrize("outcome", DEFAULTS)
    def test_a_retention_of_nothing_keeps_no_record(self, subject: Subject, outcome: str) -> None:
        subject.enqueue("email", retention=retention(outcome, NOTHING))
        MOMENTS[outcome](subject)
        assert stored(subject) == 0

    def test_unfinished_jobs_are_never_pruned(self, subject: Subject) -> None:
        waiting = subject.enqueue("email", delay=DAY, retention=Retention(completed=NOTHING))
        subject.enqueue("email")
        running = subject.take_one()
        subject.clock.advance(1000 * DAY)
        assert subject.deliveries.prune().total == 0
        assert subject.existing_job(waiting.id).state == "ready"
        assert subject.existing_job(running.id).state == "running"

    @pytest.mark.parametrize("outcome", DEFAULTS)
    def test_a_key_held_by_existence_is_free_when_the_record_goes(
        self, subject: Subject, outcome: str
    ) -> None:
        first = subject.enqueue("email", unique_key="k", unique_while="exists")
        MOMENTS[outcome](subject)
        subject.clock.advance(DEFAULTS[outcome])
        assert subject.enqueue("email", unique_key="k").id == first.id, "the record is still there"
        subject.deliveries.prune()
        assert subject.enqueue("email", unique_key="k").inserted


class TestTombstones:
    """Rule 11: a tombstone holds a key that outlives its job."""

    @pytest.mark.parametrize("is_kept", [True, False])
    def test_a_window_outlives_the_record_that_is_pruned_or_not_kept(
        self, subject: Subject, *, is_kept: bool
    ) -> None:
        if is_kept:
            first = subject.enqueue("email", {"to": 1}, unique_key="k", unique_for=2 * DAY)
            complete(subject)
            subject.clock.advance(DAY)
            pruned = subject.deliveries.prune()
            assert (pruned.deleted, pruned.stripped) == (0, 1)
        else:
            first = self._bury_deep(subject)
        assert subject.get(first.id) is None
        assert stored(subject) == 0
        assert len(subject.find(unique_key="k")) == 0
        again = subject.enqueue("email", {"to": 1}, unique_key="k")
        assert again == Enqueued(first.id, duplicate=True, state="completed")

    def test_it_falls_when_its_window_ends(self, subject: Subject) -> None:
        self._bury_deep(subject)
        subject.clock.advance(HOUR - MICROSECOND)
        assert subject.deliveries.prune().total == 0
        assert subject.enqueue("email", unique_key="k").duplicate
        subject.clock.advance(MICROSECOND)
        assert subject.enqueue("email", unique_key="k").inserted

    @pytest.mark.parametrize("on_duplicate", ["replace", "rerun"])
    def test_it_cannot_be_given_another_request(self, subject: Subject, on_duplicate: Any) -> None:
        """Rule 9."""
        first = self._bury_deep(subject)
        answer = subject.enqueue("email", {"to": 2}, unique_key="k", on_duplicate=on_duplicate)
        assert answer == Enqueued(first.id, duplicate=True, state="completed", mismatch=True)
        assert stored(subject) == 0

    def test_it_cannot_run_again(self, subject: Subject) -> None:
        first = self._bury_deep(subject)
        for fresh in (False, True):
            with pytest.raises(Gone):
                subject.replay(first.id, fresh=fresh)
        with pytest.raises(Gone):
            subject.run_now(first.id)
        with pytest.raises(JobNotFound):
            subject.cancel(first.id)
        assert len(subject.dead.replay(state="completed", fresh=True)) == 0

    def _bury_deep(self, subject: Subject) -> Enqueued:
        kept = Retention(completed=NOTHING)
        first = subject.enqueue("email", {"to": 1}, unique_key="k", unique_for=HOUR, retention=kept)
        complete(subject)
        return first


class TestDelete:
    """Rule 11: a delete by an operator frees the key."""

    @pytest.mark.parametrize("options", [{}, {"unique_while": "exists"}, {"unique_for": DAY}])
    @pytest.mark.parametrize("moment", ["queued", "running", *DEFAULTS])
    def test_it_removes_the_job_and_frees_its_key(
        self, subject: Subject, moment: str, options: Any
    ) -> None:
        first = subject.enqueue("email", unique_key="k", **options)
        MOMENTS[moment](subject)
        assert subject.delete(first.id) is True
        assert subject.get(first.id) is None
        assert subject.enqueue("email", unique_key="k").inserted

    def test_a_tombstone_gives_its_key_up_too(self, subject: Subject) -> None:
        first = subject.enqueue(
            "email", unique_key="k", unique_for=DAY, retention=Retention(completed=NOTHING)
        )
        complete(subject)
        subject.delete(first.id)
        assert subject.enqueue("email", unique_key="k").inserted

    def test_the_worker_of_a_deleted_job_has_lost_it(self, subject: Subject) -> None:
        subject.enqueue("email")
        job = subject.take_one()
        subject.delete(job.id)
        (ended,) = subject.deliveries.finish([job])
        assert (ended.status, ended.state) == ("lost", None)
        assert subject.deliveries.heartbeat([job], lease=MINUTE)[0].lost
