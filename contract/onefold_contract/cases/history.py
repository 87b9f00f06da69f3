"""The history of a job, and operations on dead letters."""

from typing import Final

import pytest

from onefold.errors import JobNotFound
from onefold.model.lifecycle import Retention
from onefold_contract.cases.common import (
    AT_ONCE,
    DAY,
    SECOND,
    WORDS,
    bury,
    complete,
)
from onefold_contract.subject import Subject

__all__ = ["TestAttempts", "TestDropped", "TestFoundByTheirEnd"]

NEVER_THERE: Final = "01890000-0000-7000-8000-000000000000"


class TestAttempts:
    """Every delivery is recorded: its worker, its duration and its ending."""

    @pytest.mark.parametrize(
        ("word", "outcome"),
        [
            ("finish", "completed"),
            ("retry", "retried"),
            ("defer", "deferred"),
            ("bury", "dead"),
            ("cancel", "cancelled"),
            ("lapse", "lease expired"),
        ],
    )
    def test_a_delivery_is_told_while_it_is_running_and_with_its_end(
        self, subject: Subject, word: str, outcome: str
    ) -> None:
        answer = subject.enqueue("email")
        (job,) = subject.take(worker="w-1", lease=SECOND)
        started = subject.clock.now
        (attempt,) = subject.deliveries.attempts(answer.id)
        assert (attempt.number, attempt.fence, attempt.worker) == (1, 1, "w-1")
        assert (attempt.outcome, attempt.started_at) == ("running", started)
        assert (attempt.ended_at, attempt.duration) == (None, None)
        subject.clock.advance(SECOND)
        WORDS[word](subject, job)
        (attempt,) = subject.deliveries.attempts(answer.id)
        assert (attempt.number, attempt.fence, attempt.worker) == (1, 1, "w-1")
        assert (attempt.outcome, attempt.started_at) == (outcome, started)
        assert attempt.duration == SECOND

    def test_the_newest_is_the_last_and_what_was_handed_back_unstarted_is_not_told(
        self, subject: Subject
    ) -> None:
        answer = subject.enqueue("email", backoff=AT_ONCE)
        subject.deliveries.hand_back([subject.take_one()])
        for number, worker in enumerate(("a", "b")):
            subject.deliveries.retry(subject.take(worker=worker), error=ValueError(number))
        subject.deliveries.finish(subject.take(worker="c"))
        attempts = subject.deliveries.attempts(answer.id)
        assert [(a.number, a.fence, a.worker, a.outcome) for a in attempts] == [
            (1, 2, "a", "retried"),
            (2, 3, "b", "retried"),
            (3, 4, "c", "completed"),
        ]
        assert [a.error["message"] if a.error else None for a in attempts] == ["0", "1", None]

    def test_an_error_says_what_and_where(self, subject: Subject) -> None:
        answer = subject.enqueue("email", max_attempts=1)
        job = subject.take_one()
        try:
            subject.existing_job(NEVER_THERE)
        except AssertionError as error:
            subject.deliveries.retry([job], error=error)
        (attempt,) = subject.deliveries.attempts(answer.id)
        assert attempt.error is not None
        assert attempt.error["type"] == "AssertionError"
        assert "in test_an_error_says_what_and_where" in attempt.error["traceback"]
        assert (attempt.outcome, attempt.reason) == ("dead", "failed")
        assert attempt.error == subject.existing_job(answer.id).error
        (found,) = subject.find(error_type="AssertionError")
        assert found.id == answer.id

    def test_a_reason_is_told_and_stays_when_the_job_goes_round_again(
        self, subject: Subject
    ) -> None:
        answer = subject.enqueue("email")
        subject.deliveries.bury([subject.take_one()], reason="no such user")
        subject.replay(answer.id)
        subject.take_one()
        subject.cancel(answer.id, reason="not wanted")
        assert [(a.outcome, a.reason) for a in subject.deliveries.attempts(answer.id)] == [
            ("dead", "no such user"),
            ("cancelled", "not wanted"),
        ]

    def test_a_finish_that_came_late_is_told_as_one(self, subject: Subject) -> None:
        answer = subject.enqueue("email")
        (slow,) = subject.take(worker="slow", lease=SECOND)
        subject.clock.advance(SECOND)
        subject.deliveries.rescue()
        subject.clock.advance(SECOND)
        subject.deliveries.finish([slow])
        (attempt,) = subject.deliveries.attempts(answer.id)
        assert (attempt.outcome, attempt.worker) == ("completed", "slow")
        assert attempt.duration == 2 * SECOND

    def test_a_replay_keeps_the_history(self, subject: Subject) -> None:
        answer = subject.enqueue("email")
        bury(subject)
        for fresh in (False, True):
            if fresh:
                complete(subject)
            subject.replay(answer.id, fresh=fresh)
            outcomes = [attempt.outcome for attempt in subject.deliveries.attempts(answer.id)]
            assert outcomes == ["dead", *(["completed"] if fresh else [])]
        subject.take_one()
        attempts = subject.deliveries.attempts(answer.id)
        assert [(a.number, a.fence, a.outcome) for a in attempts] == [
            (1, 1, "dead"),
            (1, 2, "completed"),
            (1, 3, "running"),
        ]

    def test_the_last_fifty_deliveries_are_kept(self, subject: Subject) -> None:
        answer = subject.enqueue("email")
        for _ in range(52):
            subject.deliveries.defer([subject.take_one()], after=SECOND * 0)
        assert [a.fence for a in subject.deliveries.attempts(answer.id)] == list(range(3, 53))

    def test_it_goes_with_the_job(self, subject: Subject) -> None:
        deleted, pruned = subject.enqueue("email", queue="a"), subject.enqueue("email", queue="b")
        unkept = subject.enqueue("email", queue="c", retention=Retention(dead=SECOND * 0))
        stripped = subject.enqueue(
            "email",
            queue="d",
            unique_key="k",
            unique_for=DAY,
            retention=Retention(dead=SECOND * 0),
        )
        for queue in "abcd":
            bury(subject, queue)
        subject.delete(deleted.id)
        subject.clock.advance(31 * DAY)
        subject.deliveries.prune()
        for answer in (deleted, pruned, unkept, stripped):
            with pytest.raises(JobNotFound):
                subject.deliveries.attempts(answer.id)


class TestFoundByTheirEnd:
    """Dead letters are found by time of death and by tag."""

    def test_by_tag(self, subject: Subject) -> None:
        nightly = subject.enqueue("email", tags=["nightly", 'a "b"'])
        subject.enqueue("email", tags=["night"])
        subject.enqueue("email", metadata={"tags": ["nightly"]})
        subject.enqueue("email")
        assert [job.id for job in subject.find(tag="nightly")] == [nightly.id]
        assert [job.id for job in subject.find(tag='a "b"', newest_first=True)] == [nightly.id]
        assert not subject.find(tag="nigh")


class TestDropped:
    """Dead letters are deleted by filter; repeating the call is safe."""

    def test_all_dead_letters_go_in_bounds_and_nothing_else(self, subject: Subject) -> None:
        for _ in range(3):
            subject.enqueue("email")
        subject.deliveries.bury(subject.take(limit=3), reason="broken")
        subject.cancel(subject.enqueue("email").id)
        subject.enqueue("email")
        complete(subject)
        subject.enqueue("email")
        assert subject.dead.delete(limit=2) == 2
        assert subject.dead.delete() == 1
        assert sorted(job.state for job in subject.find()) == ["cancelled", "completed", "ready"]
        assert subject.dead.delete() == 0

    def test_other_states_on_request(self, subject: Subject) -> None:
        subject.enqueue("email")
        bury(subject)
        subject.cancel(subject.enqueue("email").id)
        subject.enqueue("email")
        assert subject.dead.delete(state=["cancelled", "scheduled", "ready", "retrying"]) == 2
        assert [job.state for job in subject.find()] == ["dead"]
