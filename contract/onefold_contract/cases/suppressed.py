"""Rule 10: duplicates are counted, and the last ones are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onefold.errors import JobNotFound
from onefold.model.job import NewJob
from onefold.model.lifecycle import Retention
from onefold.model.stored_key import Suppressed
from onefold_contract.cases.common import DAY, HOUR, SECOND, complete

if TYPE_CHECKING:
    from onefold_contract.subject import Subject

__all__ = ["TestSuppressed"]


class TestSuppressed:
    """Rule 10: a caller can see why a request was a duplicate."""

    @pytest.mark.parametrize("count", [3, 30])
    def test_each_duplicate_is_counted_and_the_last_ones_are_listed_with_time_and_request(
        self, subject: Subject, count: int
    ) -> None:
        holder = subject.enqueue("email", unique_key="k", request_id="original")
        notes: list[Suppressed] = []
        for n in range(count):
            notes.append(Suppressed(subject.clock.advance(SECOND), str(n) if n else None))
            subject.enqueue("email", unique_key="k", request_id=notes[n].request_id)
        found = subject.keys.duplicates(holder.id)
        assert (found.count, found.first_at, found.last_at) == (count, notes[0].at, notes[-1].at)
        assert found.recent == tuple(notes[: -21 if count > 20 else None : -1])

    def test_folding_changes_nothing_that_can_be_seen(self, subject: Subject) -> None:
        holder = subject.enqueue("email", unique_key="k")
        other = subject.enqueue("email", unique_key="other")
        subject.enqueue("email", unique_key="other")
        for n in range(25):
            subject.clock.advance(SECOND)
            subject.enqueue("email", unique_key="k", request_id=str(n))
        before, other_before = subject.keys.duplicates(holder.id), subject.keys.duplicates(other.id)
        assert subject.deliveries.fold() >= 26
        assert subject.deliveries.fold() == 0
        assert subject.keys.duplicates(holder.id) == before
        assert subject.keys.duplicates(other.id) == other_before

    def test_later_duplicates_are_added_to_folded_ones(self, subject: Subject) -> None:
        holder = subject.enqueue("email", unique_key="k")
        for fold in (False, True, True, False):
            for _ in range(8):
                moment = subject.clock.advance(SECOND)
                subject.enqueue("email", unique_key="k", request_id=moment.isoformat())
            if fold:
                subject.deliveries.fold()
        found = subject.keys.duplicates(holder.id)
        assert (found.count, len(found.recent)) == (32, 20)
        times = [note.at for note in found.recent]
        assert times == sorted(times, reverse=True)
        assert found.last_at == times[0] == subject.clock.now
        assert found.first_at == subject.clock.now - 31 * SECOND
        assert all(note.request_id == note.at.isoformat() for note in found.recent)

    def test_duplicates_inside_a_batch_and_by_publish_key_count(self, subject: Subject) -> None:
        answers = subject.enqueue_many(
            [NewJob("email", unique_key="k", request_id=str(n)) for n in range(3)]
        )
        found = subject.keys.duplicates(answers[0].id)
        assert found.count == 2
        assert {note.request_id for note in found.recent} == {"1", "2"}
        holder = subject.enqueue("email", idempotency_key="publish")
        subject.enqueue("email", idempotency_key="publish", request_id="again")
        assert subject.keys.duplicates(holder.id).recent[0].request_id == "again"

    def test_those_of_a_job_that_is_gone_leave_nothing_behind(self, subject: Subject) -> None:
        """Only its publish key refers to the job, so no chore would ever delete the records."""
        subject.enqueue(
            "email", idempotency_key="publish", retention=Retention(completed=SECOND * 0)
        )
        complete(subject)
        subject.deliveries.fold()
        assert subject.enqueue("email", idempotency_key="publish").state is None
        assert subject.deliveries.fold() == 0

    def test_they_are_kept_while_the_record_is(self, subject: Subject) -> None:
        holder = subject.enqueue("email", unique_key="k")
        subject.enqueue("email", unique_key="k")
        complete(subject)
        subject.deliveries.fold()
        subject.clock.advance(HOUR)
        assert subject.keys.duplicates(holder.id).count == 1
        subject.clock.advance(DAY)
        subject.deliveries.prune()
        with pytest.raises(JobNotFound):
            subject.keys.duplicates(holder.id)
