"""Replays of ended jobs: the second half of rule 7, and the table of states."""

from typing import Any

import pytest

from onefold.errors import JobNotFound, WrongState
from onefold.model.job import Enqueued
from onefold_contract.cases.common import (
    AT_ONCE,
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    bury,
    complete,
    stored,
)
from onefold_contract.subject import Subject

__all__ = ["TestReplay", "TestReplayMany", "TestReplayedKeys"]


class TestReplay:
    """A dead or cancelled job runs again under its own id; a completed one needs `fresh`."""

    def test_a_dead_letter_is_queued_with_all_its_attempts(self, subject: Subject) -> None:
        first = subject.enqueue("email", {"to": 1})
        taken = bury(subject)
        assert subject.replay(first.id) == Enqueued(first.id)
        job = subject.existing_job(first.id)
        assert (job.state, job.attempt, job.fence) == ("ready", 0, taken.fence)
        assert job.ended_at is None
        again = subject.take_one()
        assert (again.id, again.payload, again.fence) == (first.id, {"to": 1}, taken.fence + 1)

    def test_a_completed_job_is_refused_unless_it_is_asked_for_afresh(
        self, subject: Subject
    ) -> None:
        first = subject.enqueue("email")
        job = subject.take_one()
        subject.deliveries.finish([job], results={job.id: "done"})
        with pytest.raises(WrongState, match="fresh") as caught:
            subject.replay(first.id)
        assert caught.value.job_id == first.id
        assert subject.existing_job(first.id).state == "completed"
        assert subject.replay(first.id, fresh=True) == Enqueued(first.id)
        job = subject.existing_job(first.id)
        assert (job.state, job.generation) == ("ready", 1), "new steps, new run.key"
        assert job.result is None

    def test_the_second_of_two_replays_is_a_duplicate(self, subject: Subject) -> None:
        first = subject.enqueue("email", unique_key="k")
        bury(subject)
        assert subject.replay(first.id) == Enqueued(first.id)
        assert subject.replay(first.id) == Enqueued(first.id, duplicate=True)
        subject.take_one()
        assert subject.replay(first.id) == Enqueued(first.id, duplicate=True, state="running")
        assert stored(subject) == 1

    def test_a_pruned_job_is_not_found(self, subject: Subject) -> None:
        first = subject.enqueue("email")
        bury(subject)
        subject.clock.advance(30 * DAY)
        subject.deliveries.prune()
        with pytest.raises(JobNotFound):
            subject.replay(first.id)

    def test_a_poisoned_job_starts_counting_anew(self, subject: Subject) -> None:
        first = subject.enqueue("email", max_attempts=100, backoff=AT_ONCE)
        for _ in range(5):
            subject.take_one(lease=SECOND)
            subject.clock.advance(SECOND)
            subject.deliveries.rescue()
        assert subject.existing_job(first.id).reason == "poison"
        subject.replay(first.id)
        subject.take_one(lease=SECOND)
        subject.clock.advance(SECOND)
        subject.deliveries.rescue()
        assert subject.existing_job(first.id).state == "retrying"

    def test_a_replayed_job_is_not_pruned_by_its_earlier_end(self, subject: Subject) -> None:
        first = subject.enqueue("email")
        bury(subject)
        subject.replay(first.id)
        subject.clock.advance(31 * DAY)
        subject.deliveries.prune()
        assert subject.existing_job(first.id).state == "ready"


class TestReplayedKeys:
    """Rule 7: what a replay does with the key of the job."""

    @pytest.mark.parametrize("options", [{}, {"unique_while": "exists"}, {"unique_for": HOUR}])
    def test_a_replayed_job_holds_its_key(self, subject: Subject, options: Any) -> None:
        first = subject.enqueue("email", unique_key="k", **options)
        bury(subject)
        assert subject.replay(first.id) == Enqueued(first.id)
        assert subject.enqueue("email", unique_key="k").id == first.id

    def test_a_key_that_a_newer_job_holds_is_answered_with_that_job(self, subject: Subject) -> None:
        first = subject.enqueue("email", {"to": 1}, unique_key="k")
        bury(subject)
        before = subject.existing_job(first.id)
        newer = subject.enqueue("email", {"to": 2}, unique_key="k")
        assert subject.replay(first.id) == Enqueued(newer.id, duplicate=True, state="ready")
        subject.take_one()
        assert subject.replay(first.id) == Enqueued(newer.id, duplicate=True, state="running")
        assert subject.existing_job(first.id) == before, "the dead letter stays where it is"

    def test_a_completed_job_whose_key_is_held_stays_too(self, subject: Subject) -> None:
        first = subject.enqueue("email", unique_key="k")
        complete(subject)
        newer = subject.enqueue("email", unique_key="k")
        assert subject.replay(first.id, fresh=True).id == newer.id
        assert subject.existing_job(first.id).state == "completed"

    def test_a_window_that_a_newcomer_took_over_is_answered_with_the_newcomer(
        self, subject: Subject
    ) -> None:
        first = subject.enqueue("email", unique_key="k", unique_for=HOUR)
        bury(subject)
        subject.clock.advance(HOUR)
        newer = subject.enqueue("email", unique_key="k", unique_for=HOUR)
        assert not newer.duplicate
        assert subject.replay(first.id) == Enqueued(newer.id, duplicate=True)
        subject.delete(newer.id)
        assert subject.replay(first.id) == Enqueued(first.id)
        assert not subject.enqueue("email", unique_key="k").duplicate, "its window is over"

    def test_a_replay_frees_what_it_only_reserved(self, subject: Subject) -> None:
        """The job holds its key again, and the table has no other row for it."""
        first = subject.enqueue("email", unique_key="k")
        bury(subject)
        subject.replay(first.id)
        complete(subject)
        assert stored(subject) == 1
        assert subject.enqueue("email", unique_key="k").inserted


class TestReplayMany:
    """Bulk replay, by filter, safe to repeat."""

    def test_all_dead_letters_go_round_again(self, subject: Subject) -> None:
        ids = [subject.enqueue("email", {"n": n}).id for n in range(3)]
        subject.deliveries.bury(subject.take(limit=3), reason="broken")
        subject.cancel(subject.enqueue("email").id)
        first, rest = subject.dead.replay(limit=2), subject.dead.replay()
        assert (first.inserted, first.skipped, rest.inserted) == (2, 0, 1)
        assert sorted(answer.id for answer in (*first, *rest)) == sorted(ids)
        assert len(subject.find(state="ready")) == 3
        assert len(subject.find(state="cancelled")) == 1, "only dead letters, unless told"

    def test_filters_say_which(self, subject: Subject) -> None:
        subject.enqueue("email")
        bury(subject)
        slow = subject.enqueue("email", queue="slow")
        bury(subject, "slow")
        failed = subject.enqueue("email", max_attempts=1)
        subject.deliveries.retry([subject.take_one()], error=KeyError("user"))
        assert [answer.id for answer in subject.dead.replay(queue="slow")] == [slow.id]
        error_type = "KeyError"
        assert [answer.id for answer in subject.dead.replay(error_type=error_type)] == [failed.id]

    def test_cancelled_jobs_on_request_and_completed_ones_only_afresh(
        self, subject: Subject
    ) -> None:
        first = subject.enqueue("email")
        subject.cancel(first.id)
        assert [answer.id for answer in subject.dead.replay(state="cancelled")] == [first.id]
        complete(subject)
        assert len(subject.dead.replay(state="completed")) == 0
        answers = subject.dead.replay(state="completed", fresh=True)
        assert [answer.id for answer in answers] == [first.id]

    def test_a_limit_leaves_a_place_to_go_on_from(self, subject: Subject) -> None:
        """Dead letters whose key is held by another job stay, and do not block later ones."""
        for _ in range(2):
            subject.enqueue("email", unique_key="k")
            bury(subject)
        subject.enqueue("email", unique_key="k")
        free = subject.enqueue("email", {"n": 1}, queue="slow")
        subject.deliveries.bury(subject.take(["slow"]), reason="broken")
        first = subject.dead.replay(limit=2)
        assert (first.inserted, first.skipped) == (0, 2)
        rest = subject.dead.replay(limit=2, after=first.next)
        assert ([answer.id for answer in rest], rest.next) == ([free.id], None)

    def test_of_two_dead_letters_with_one_key_one_goes(self, subject: Subject) -> None:
        """Rule 7: the replay of the other job returns the holder, and that job stays dead."""
        first = subject.enqueue("email", unique_key="k")
        bury(subject)
        second = subject.enqueue("email", unique_key="k")
        bury(subject)
        answers = subject.dead.replay()
        assert (answers.inserted, answers.skipped) == (1, 1)
        (gone,) = [answer.id for answer in answers if answer.inserted]
        assert [answer.id for answer in answers] == [gone, gone]
        states = {subject.existing_job(first.id).state, subject.existing_job(second.id).state}
        assert states == {"dead", "ready"}
        assert subject.enqueue("email", unique_key="k").id == gone

    def test_all_go_whose_windows_are_over(self, subject: Subject) -> None:
        ids: list[str] = []
        for _ in range(3):
            ids.append(subject.enqueue("email", unique_key="k", unique_for=MINUTE).id)
            bury(subject)
            subject.clock.advance(MINUTE)

        assert list(subject.dead.replay()) == [Enqueued(job_id) for job_id in ids]
        assert subject.enqueue("email", unique_key="k").inserted
