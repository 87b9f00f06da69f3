"""How a delivery ends: the table of states, event by event."""

from datetime import timedelta
from typing import Any

import pytest

from onefold.errors import LeaseLost, WrongState
from onefold.model.delivery import Delivery
from onefold.model.retry import Fixed
from onefold_contract.cases.common import (
    AT_ONCE,
    DAY,
    ENDINGS,
    HOUR,
    MINUTE,
    SECOND,
    bury,
    complete,
    foremost,
)
from onefold_contract.subject import Subject

__all__ = ["TestCancel", "TestDefer", "TestFailures", "TestFinish", "TestRunJobNow"]

NEVER_THERE = "01890000-0000-7000-8000-000000000000"


class TestFinish:
    """running → completed, once, by the delivery that has the fence."""

    def test_a_finished_job_is_completed_with_its_result_once(self, subject: Subject) -> None:
        subject.enqueue("email")
        job = subject.take_one()
        subject.clock.advance(SECOND)
        (ended,) = subject.deliveries.finish([job], results={job.id: {"sent": True, "ids": [1, 2]}})
        assert (ended.id, ended.fence, ended.status) == (job.id, job.fence, "accepted")
        assert ended.state == "completed"
        ended.check()
        done = subject.existing_job(job.id)
        assert (done.state, done.result) == ("completed", {"sent": True, "ids": [1, 2]})
        assert (done.attempt, done.fence) == (1, 1)
        assert done.ended_at == subject.clock.now
        assert done.lease_until is None
        assert done.worker == job.worker  # whose delivery it was
        (again,) = subject.deliveries.finish([job], results={job.id: 2})
        assert (again.status, again.state) == ("already", "completed")
        again.check()
        assert subject.existing_job(job.id) == done, "and nothing was written"

    def test_a_batch_is_answered_in_order_each_for_itself(self, subject: Subject) -> None:
        for _ in range(4):
            subject.enqueue("email")
        first, second, third, fourth = subject.take(limit=4)
        subject.deliveries.finish([second])
        subject.cancel(third.id)
        ended = subject.deliveries.finish([fourth, third, second, first])
        assert [item.id for item in ended] == [fourth.id, third.id, second.id, first.id]
        assert [item.status for item in ended] == ["accepted", "lost", "already", "accepted"]
        assert [item.state for item in ended] == ["completed", "cancelled", *["completed"] * 2]
        (never,) = subject.deliveries.finish([Delivery(NEVER_THERE, 1)])
        assert (never.status, never.state) == ("lost", None)
        with pytest.raises(LeaseLost) as caught:
            never.check()
        assert caught.value.fence == 1

    def test_finish_and_take_do_both(self, subject: Subject) -> None:
        ids = [subject.enqueue("email").id for _ in range(3)]
        first = subject.take_one()
        ended, taken = subject.deliveries.finish_and_take(
            [first], limit=5, worker="next", lease=MINUTE
        )
        assert [first.id] == foremost(subject, ids, [first])
        assert [item.status for item in ended] == ["accepted"]
        assert [job.id for job in taken] == [job_id for job_id in ids if job_id != first.id]
        assert {job.worker for job in taken} == {"next"}
        # Even though the finish was lost.
        more = subject.enqueue("email").id
        subject.cancel(taken[0].id)
        ended, taken = subject.deliveries.finish_and_take(taken, worker="worker", lease=MINUTE)
        assert [item.status for item in ended] == ["lost", "accepted"]
        assert [job.id for job in taken] == [more]

    def test_what_a_finish_makes_can_be_taken_by_the_same_call(self, subject: Subject) -> None:
        """The successor of a rerun is taken at once."""
        subject.enqueue("index", {"n": 1}, unique_key="k")
        job = subject.take_one()
        subject.enqueue("index", {"n": 2}, unique_key="k", on_duplicate="rerun")
        _, taken = subject.deliveries.finish_and_take([job], worker="worker", lease=MINUTE)
        assert [job.payload for job in taken] == [{"n": 2}]


class TestFailures:
    """running → queued by backoff, or dead if no attempt is left; bury."""

    @pytest.mark.parametrize("named", [None, HOUR])
    def test_a_failed_job_waits_by_its_backoff_unless_the_worker_names_a_delay(
        self, subject: Subject, named: timedelta | None
    ) -> None:
        answer = subject.enqueue("email", backoff=Fixed(MINUTE))
        error = ValueError("no such user")
        (ended,) = subject.deliveries.retry([subject.take_one()], after=named, error=error)
        assert (ended.status, ended.state) == ("accepted", "retrying")
        job = subject.existing_job(answer.id)
        assert (job.state, job.attempt, job.fence) == ("retrying", 1, 1)
        assert job.run_at == subject.clock.now + (named or MINUTE)
        assert job.error == {"type": "ValueError", "message": "no such user"}
        assert subject.take() == []
        subject.clock.advance(named or MINUTE)
        again = subject.take_one()
        assert (again.id, again.attempt, again.fence) == (answer.id, 2, 2)

    def test_the_last_failure_is_its_death(self, subject: Subject) -> None:
        answer = subject.enqueue("email", max_attempts=2, backoff=AT_ONCE)
        subject.deliveries.retry([subject.take_one()])
        (ended,) = subject.deliveries.retry([subject.take_one()], error="still broken")
        assert (ended.status, ended.state) == ("accepted", "dead")
        job = subject.existing_job(answer.id)
        assert (job.state, job.reason, job.attempt) == ("dead", "failed", 2)
        assert job.error == {"type": None, "message": "still broken"}
        assert job.ended_at == subject.clock.now
        assert subject.take() == []

    def test_a_buried_job_is_dead_whatever_attempts_remain(self, subject: Subject) -> None:
        answer = subject.enqueue("email")
        (ended,) = subject.deliveries.bury(
            [subject.take_one()], reason="no such user", error=KeyError("user")
        )
        assert (ended.status, ended.state) == ("accepted", "dead")
        job = subject.existing_job(answer.id)
        assert (job.state, job.reason) == ("dead", "no such user")
        assert job.error is not None
        assert job.error["type"] == "KeyError"

    @pytest.mark.parametrize("word", ["retry", "bury"])
    def test_the_same_word_again_is_answered_already(self, subject: Subject, word: str) -> None:
        subject.enqueue("email")
        job = subject.take_one()
        (ended,) = ENDINGS[word](subject, [job])
        assert ended.status == "accepted"
        before = subject.existing_job(job.id)
        (ended,) = ENDINGS[word](subject, [job])
        assert ended.status == "already"
        assert subject.existing_job(job.id) == before

    def test_another_word_of_the_same_delivery_is_lost(self, subject: Subject) -> None:
        subject.enqueue("email")
        job = complete(subject)
        for word in ("retry", "bury", "defer", "hand back"):
            (ended,) = ENDINGS[word](subject, [job])
            assert (ended.status, ended.state) == ("lost", "completed")
        assert subject.existing_job(job.id).state == "completed"

    @pytest.mark.parametrize(
        "error",
        [
            ValueError("nul \x00 and lone \ud800 surrogate"),
            ValueError("x" * 100_000),
            {"type": "remote.Error", "message": "as sent", "code": 7},
            RuntimeError(),
        ],
        ids=["unprintable", "huge", "mapping", "empty"],
    )
    def test_a_failure_never_fails_to_be_stored(self, subject: Subject, error: Any) -> None:
        answer = subject.enqueue("email", backoff=AT_ONCE)
        (ended,) = subject.deliveries.retry([subject.take_one()], error=error)
        assert ended.status == "accepted"
        stored_error = subject.existing_job(answer.id).error
        assert stored_error is not None
        found = subject.find(error_type=stored_error["type"])
        assert [job.id for job in found] == [answer.id], "and can be found by its type"


class TestDefer:
    """running → queued with the attempt given back: defer, and hand back."""

    def test_a_deferred_job_comes_back_later_with_its_attempt(self, subject: Subject) -> None:
        answer = subject.enqueue("email", max_attempts=1)
        for fence in range(1, 4):
            job = subject.take_one()
            assert (job.attempt, job.fence) == (1, fence)
            (ended,) = subject.deliveries.defer([job], after=HOUR)
            assert (ended.status, ended.state) == ("accepted", "scheduled")
            deferred = subject.existing_job(answer.id)
            assert (deferred.attempt, deferred.run_at) == (0, subject.clock.now + HOUR)
            assert deferred.state == "scheduled"
            subject.clock.advance(HOUR)

    def test_defers_are_counted_until_a_replay(self, subject: Subject) -> None:
        answer = subject.enqueue("email", backoff=AT_ONCE)
        subject.deliveries.hand_back([subject.take_one()])
        subject.deliveries.retry([subject.take_one()])
        assert subject.existing_job(answer.id).defers == 0
        for defers in (0, 1, 2):
            job = subject.take_one()
            assert job.defers == defers
            subject.deliveries.defer_job(job.id, after=HOUR)
            assert (
                subject.deliveries.defer_job(job.id, after=HOUR, fence=job.fence).status
                == "already"
            )
            subject.clock.advance(HOUR)
        subject.deliveries.bury([subject.take_one()], reason="broken")
        assert subject.existing_job(answer.id).defers == 3
        subject.replay(answer.id)
        assert subject.take_one().defers == 0

    def test_a_job_that_is_handed_back_can_be_taken_at_once(self, subject: Subject) -> None:
        subject.enqueue("email", max_attempts=1)
        first = subject.take_one()
        (ended,) = subject.deliveries.hand_back([first])
        assert (ended.status, ended.state) == ("accepted", "ready")
        again = subject.take_one()
        assert (again.attempt, again.fence) == (1, 2)


class TestRunJobNow:
    """A scheduled or retrying job becomes due; nothing else about it changes."""

    def test_a_scheduled_job_is_taken_at_once(self, subject: Subject) -> None:
        answer = subject.enqueue("email", delay=DAY)
        assert subject.run_now(answer.id) is True
        assert subject.existing_job(answer.id).state == "ready"
        assert subject.run_now(answer.id) is False, "it is due already"
        job = subject.take_one()
        assert job.id == answer.id
        assert subject.run_now(job.id) is False, "it runs"
        assert subject.deliveries.finish([job])[0].status == "accepted"

    def test_a_retrying_job_keeps_its_attempts_and_its_error(self, subject: Subject) -> None:
        answer = subject.enqueue("email", backoff=Fixed(DAY))
        subject.deliveries.retry([subject.take_one()], error=ValueError("hard"))
        assert subject.take() == []
        assert subject.run_now(answer.id) is True
        job = subject.existing_job(answer.id)
        assert (job.state, job.attempt, (job.error or {})["message"]) == ("retrying", 1, "hard")
        assert subject.take_one().attempt == 2


class TestCancel:
    """queued, running → cancelled."""

    def test_a_queued_job_is_never_taken(self, subject: Subject) -> None:
        answer = subject.enqueue("email")
        assert subject.cancel(answer.id, reason="changed my mind") is True
        job = subject.existing_job(answer.id)
        assert (job.state, job.reason) == ("cancelled", "changed my mind")
        assert job.ended_at == subject.clock.now
        assert subject.take() == []
        subject.clock.advance(DAY)
        assert subject.cancel(answer.id, reason="second") is False
        after = subject.existing_job(answer.id)
        assert (after.reason, after.ended_at) == (job.reason, job.ended_at)

    def test_a_running_handler_is_told_by_its_heartbeat(self, subject: Subject) -> None:
        subject.enqueue("email")
        job = subject.take_one()
        assert subject.cancel(job.id) is True
        assert subject.deliveries.heartbeat([job], lease=MINUTE)[0].lost
        (ended,) = subject.deliveries.finish([job])
        assert (ended.status, ended.state) == ("lost", "cancelled")
        assert subject.existing_job(job.id).state == "cancelled"

    @pytest.mark.parametrize("end", [complete, bury])
    def test_an_ended_job_is_neither_cancelled_nor_made_due(
        self, subject: Subject, end: Any
    ) -> None:
        answer = subject.enqueue("email")
        end(subject)
        state = subject.existing_job(answer.id).state
        with pytest.raises(WrongState) as caught:
            subject.cancel(answer.id)
        assert caught.value.evidence["state"] == state
        with pytest.raises(WrongState, match="replay"):
            subject.run_now(answer.id)
        assert subject.existing_job(answer.id).state == state
