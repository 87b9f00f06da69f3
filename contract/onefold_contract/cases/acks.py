"""Pushed deliveries: they wait for their ack, and each ack, nack or defer counts once."""

from datetime import timedelta
from functools import partial

import pytest

from onefold.errors import LeaseLost, WrongState
from onefold.model.checks import qualified
from onefold.model.job import Job
from onefold.model.queue import QueueSettings
from onefold_contract.cases.common import AT_ONCE, DAY, HOUR, MINUTE, SECOND, WORDS
from onefold_contract.subject import Subject

__all__ = ["TestAckTimeouts", "TestAcks", "TestCallbacks", "TestParking"]


def pushed(subject: Subject, *, dead: bool = False, max_attempts: int = 8) -> Job:
    """A delivery that waits for its ack for five minutes."""
    subject.enqueue("email", backoff=AT_ONCE, max_attempts=max_attempts)
    job = subject.take_one()
    assert (
        subject.deliveries.park(
            job, dead=dead, exchange='{"status":202}', ack_timeout=5 * MINUTE
        ).status
        == "accepted"
    )
    return subject.existing_job(job.id)


class TestParking:
    """A delivery that the receiver has accepted waits; its lease does not expire."""

    def test_it_is_found_by_its_word(self, subject: Subject) -> None:
        job = pushed(subject)
        assert (job.state, job.pushed) == ("awaiting", {"status": 202})
        subject.enqueue("email")
        other = subject.take_one()
        for newest_first in (False, True):
            (found,) = subject.find(state="awaiting", newest_first=newest_first)
            assert (found.id, found.state) == (job.id, "awaiting")
        assert {found.id for found in subject.find(state="running")} == {job.id, other.id}
        subject.deliveries.finish([job])
        assert len(subject.find(state="awaiting")) == 0

    @pytest.mark.parametrize("word", ["ack", "nack for good", "cancel"])
    def test_a_word_that_was_faster_counts(self, subject: Subject, word: str) -> None:
        subject.enqueue("email")
        job = subject.take_one()
        WORDS[word](subject, job)
        before = subject.existing_job(job.id)
        assert subject.deliveries.park(job, ack_timeout=5 * MINUTE).status == "already"
        assert subject.existing_job(job.id) == before

    def test_a_delivery_that_was_lost_cannot_wait(self, subject: Subject) -> None:
        job = pushed(subject)
        subject.deliveries.nack(job.id)
        again = subject.take_one()
        assert again.fence == job.fence + 1
        assert subject.deliveries.park(job, ack_timeout=5 * MINUTE).status == "lost"
        assert subject.existing_job(job.id).state == "running", "not for the last one's ack"


class TestAcks:
    """An ack completes its delivery."""

    @pytest.mark.parametrize("named", [True, False], ids=["fence", "no fence"])
    def test_an_ack_completes_the_job(self, subject: Subject, *, named: bool) -> None:
        job = pushed(subject)
        ended = subject.deliveries.acknowledge(
            job.id, fence=job.fence if named else None, result={"sent": 1}
        )
        assert (ended.status, ended.state, ended.fence) == ("accepted", "completed", job.fence)
        assert subject.existing_job(job.id).result == {"sent": 1}
        assert subject.existing_job(job.id).state != "awaiting"

    @pytest.mark.parametrize("named", [True, False], ids=["fence", "no fence"])
    def test_a_second_ack_is_accepted_and_changes_nothing(
        self, subject: Subject, *, named: bool
    ) -> None:
        job = pushed(subject)
        subject.deliveries.acknowledge(job.id, result=1)
        before = subject.existing_job(job.id)
        fence = job.fence if named else None
        assert subject.deliveries.acknowledge(job.id, fence=fence, result=2).status == "already"
        assert subject.existing_job(job.id) == before

    @pytest.mark.parametrize("named", [True, False], ids=["fence", "no fence"])
    @pytest.mark.parametrize("awaited", [True, False], ids=["parked", "not parked"])
    def test_a_late_ack_counts_until_somebody_takes_the_job(
        self, subject: Subject, *, named: bool, awaited: bool
    ) -> None:
        subject.enqueue("email", backoff=AT_ONCE)
        job = subject.take_one()
        if awaited:
            subject.deliveries.park(job, ack_timeout=MINUTE)
        subject.clock.advance(HOUR)
        assert subject.deliveries.rescue().requeued == 1
        ended = subject.deliveries.acknowledge(job.id, fence=job.fence if named else None)
        assert (ended.status, ended.state) == ("accepted", "completed")
        assert subject.take() == []
        assert [attempt.outcome for attempt in subject.deliveries.attempts(job.id)] == ["completed"]

    @pytest.mark.parametrize("word", ["nack", "defer job", "nack for good", "cancel"])
    def test_an_ack_after_another_word_is_refused(self, subject: Subject, word: str) -> None:
        job = pushed(subject)
        WORDS[word](subject, job)
        before = subject.existing_job(job.id)
        with pytest.raises(WrongState, match="a delivery that is running"):
            subject.deliveries.acknowledge(job.id)
        assert subject.existing_job(job.id) == before

    def test_a_replaced_job_is_not_completed_by_the_ack_of_its_old_payload(
        self, subject: Subject
    ) -> None:
        subject.enqueue("email", {"n": 1}, unique_key="k", unique_while="exists", backoff=AT_ONCE)
        job = subject.take_one()
        subject.deliveries.park(job, ack_timeout=MINUTE)
        subject.clock.advance(HOUR)
        subject.deliveries.rescue()
        replaced = subject.enqueue(
            "email", {"n": 2}, unique_key="k", unique_while="exists", on_duplicate="replace"
        )
        assert replaced.replaced
        with pytest.raises(WrongState):
            subject.deliveries.acknowledge(job.id, fence=job.fence)
        assert subject.existing_job(job.id).payload == {"n": 2}

    def test_a_tombstone_still_knows_that_it_was_completed(self, subject: Subject) -> None:
        subject.enqueue("email", unique_key="k", unique_for=365 * DAY)
        job = subject.take_one()
        subject.deliveries.acknowledge(job.id)
        subject.clock.advance(30 * DAY)
        subject.deliveries.prune()
        assert subject.deliveries.acknowledge(job.id).status == "already"


class TestCallbacks:
    """Nack, defer and heartbeat, by the job's id."""

    def test_a_nack_burns_an_attempt(self, subject: Subject) -> None:
        job = pushed(subject)
        ended = subject.deliveries.nack(job.id, reason="no such user")
        found = subject.existing_job(job.id)
        assert (ended.status, found.state, found.attempt) == ("accepted", "retrying", 1)
        assert found.error == {"type": "Nack", "message": "no such user"}
        (attempt,) = subject.deliveries.attempts(job.id)
        assert (attempt.outcome, attempt.reason) == ("retried", "no such user")

    @pytest.mark.parametrize("word", ["nack", "defer", "cancel"])
    def test_what_was_answered_to_a_delivery_is_told_after_the_next_one(
        self, subject: Subject, word: str
    ) -> None:
        job = pushed(subject)
        if word == "nack":
            subject.deliveries.nack(job.id, reason="busy")
        elif word == "defer":
            subject.deliveries.defer_job(job.id, after=SECOND, reason="busy")
            subject.clock.advance(SECOND)
        else:
            subject.cancel(job.id, reason="busy")
            subject.replay(job.id)
        again = subject.take_one()
        subject.deliveries.park(again, exchange='{"status":200,"fence":2}', ack_timeout=5 * MINUTE)
        WORDS["lapse"](subject, again)
        subject.deliveries.finish([subject.take_one()])
        first, second, third = subject.deliveries.attempts(job.id)
        told = ("Nack", "busy") if word == "nack" else (None, None)
        assert first.reason == "busy"
        assert first.error == {"type": told[0], "message": told[1], "status": 202}
        assert second.error is not None
        assert (second.error["type"], second.error["status"]) == ("AckTimeout", 200)
        assert (third.outcome, third.error) == ("completed", None)

    def test_an_exchange_in_words_of_ones_own_stays_out_of_the_history(
        self, subject: Subject
    ) -> None:
        subject.enqueue("email", backoff=AT_ONCE)
        job = subject.take_one()
        subject.deliveries.park(job, exchange="accepted", ack_timeout=5 * MINUTE)
        subject.deliveries.nack(job.id, reason="no such user")
        (attempt,) = subject.deliveries.attempts(job.id)
        assert attempt.error == {"type": "Nack", "message": "no such user"}

    @pytest.mark.parametrize("reason", ["unknown user", None])
    def test_a_nack_that_is_not_retryable_buries(
        self, subject: Subject, reason: str | None
    ) -> None:
        job = pushed(subject)
        assert subject.deliveries.nack(job.id, retryable=False, reason=reason).state == "dead"
        found = subject.existing_job(job.id)
        assert found.reason == (reason or "nacked")
        assert found.error is not None
        assert found.error["type"] == "Nack"

    def test_a_defer_burns_no_attempt(self, subject: Subject) -> None:
        job = pushed(subject)
        assert subject.deliveries.defer_job(job.id, after=HOUR, reason="busy").state == "scheduled"
        found = subject.existing_job(job.id)
        assert (found.attempt, found.run_at) == (0, subject.clock.now + HOUR)
        (attempt,) = subject.deliveries.attempts(job.id)
        assert (attempt.outcome, attempt.reason) == ("deferred", "busy")

    def test_a_repeated_word_is_accepted_and_changes_nothing(self, subject: Subject) -> None:
        for retryable in (True, False):
            job = pushed(subject)
            subject.deliveries.nack(job.id, retryable=retryable)
            before = subject.existing_job(job.id)
            assert subject.deliveries.nack(job.id, retryable=retryable).status == "already"
            assert subject.existing_job(job.id) == before
            subject.delete(job.id)
        job = pushed(subject)
        subject.deliveries.defer_job(job.id, after=HOUR)
        assert subject.deliveries.defer_job(job.id, after=DAY, fence=job.fence).status == "already"
        assert subject.existing_job(job.id).run_at == subject.clock.now + HOUR

    def test_another_word_after_the_first_is_refused(self, subject: Subject) -> None:
        job = pushed(subject)
        subject.deliveries.nack(job.id)
        with pytest.raises(WrongState):
            subject.deliveries.defer_job(job.id, after=HOUR)
        with pytest.raises(WrongState):
            subject.deliveries.nack(job.id, retryable=False)
        again = subject.take_one()
        subject.deliveries.defer_job(job.id, after=HOUR)
        with pytest.raises(WrongState):
            subject.deliveries.nack(job.id, fence=again.fence)

    def test_a_word_about_a_job_that_is_not_being_delivered_is_refused(
        self, subject: Subject
    ) -> None:
        job, calls = pushed(subject), subject.deliveries
        calls.acknowledge(job.id)
        for word in (calls.nack, calls.heartbeat_job, partial(calls.defer_job, after=HOUR)):
            with pytest.raises(WrongState, match="completed"):
                word(job.id)
        job_id = subject.enqueue("email").id
        for call in (calls.acknowledge, calls.nack, calls.heartbeat_job):
            with pytest.raises(WrongState, match="a job that has been delivered"):
                call(job_id)

    def test_a_stale_word_is_refused(self, subject: Subject) -> None:
        job = pushed(subject)
        subject.deliveries.nack(job.id)
        again = subject.take_one()
        for word in (
            subject.deliveries.acknowledge,
            subject.deliveries.nack,
            subject.deliveries.heartbeat_job,
            partial(subject.deliveries.defer_job, after=HOUR),
        ):
            with pytest.raises(LeaseLost):
                word(job.id, fence=job.fence)
        assert subject.existing_job(job.id).state == "running"
        assert subject.deliveries.acknowledge(job.id, fence=again.fence).status == "accepted"

    @pytest.mark.parametrize(("lease", "given"), [(HOUR, HOUR), (MINUTE, 5 * MINUTE)])
    def test_a_heartbeat_gives_more_time_and_takes_none_away(
        self, subject: Subject, lease: timedelta, given: timedelta
    ) -> None:
        job = pushed(subject)
        ended = subject.deliveries.heartbeat_job(job.id, lease=lease, fence=job.fence)
        assert (ended.status, ended.state) == ("accepted", "awaiting")
        assert subject.existing_job(job.id).lease_until == subject.clock.now + given
        assert subject.existing_job(job.id).state == "awaiting"

    @pytest.mark.parametrize("parked", [True, False], ids=["parked", "not parked"])
    def test_a_heartbeat_gives_what_the_queue_does_unless_told(
        self, subject: Subject, queue: str, *, parked: bool
    ) -> None:
        tenant = subject.tenant("acme")
        tenant.queues.save(queue, QueueSettings(mode="ack", ack_timeout=30 * MINUTE))
        full_name = qualified("acme", queue)
        tenant.enqueue("email", queue=full_name)
        job = subject.take_one(full_name)
        if parked:
            subject.deliveries.park(job, ack_timeout=5 * MINUTE)
        tenant.deliveries.heartbeat_job(job.id)
        given = tenant.existing_job(job.id).lease_until
        assert given == subject.clock.now + (30 * MINUTE if parked else MINUTE)

    def test_a_heartbeat_of_a_queue_that_is_gone_gives_a_minute_until_the_delivery_has_ended(
        self, subject: Subject
    ) -> None:
        job = pushed(subject)
        subject.clock.advance(5 * MINUTE)
        subject.deliveries.heartbeat_job(job.id)
        assert subject.existing_job(job.id).lease_until == subject.clock.now + MINUTE
        subject.deliveries.nack(job.id)
        with pytest.raises(LeaseLost):
            subject.deliveries.heartbeat_job(job.id, fence=job.fence)
        with pytest.raises(WrongState):
            subject.deliveries.heartbeat_job(job.id)


class TestAckTimeouts:
    """A missing ack fails the attempt, or ends the job."""

    def test_when_the_next_ack_is_late_can_be_asked(self, subject: Subject) -> None:
        subject.enqueue("email")
        subject.take_one()
        assert subject.deliveries.next_ack_timeout() is None
        jobs = [pushed(subject) for _ in range(3)]
        subject.deliveries.park(jobs[1], ack_timeout=MINUTE)
        assert subject.deliveries.next_ack_timeout() == MINUTE
        subject.clock.advance(2 * MINUTE)
        assert subject.deliveries.next_ack_timeout() == -MINUTE
        assert subject.deliveries.rescue().unacknowledged.total == 1
        assert subject.deliveries.next_ack_timeout() == 3 * MINUTE
        for job in (jobs[0], jobs[2]):
            subject.deliveries.acknowledge(job.id)
        assert subject.deliveries.next_ack_timeout() is None

    def test_without_an_ack_the_attempt_has_failed(self, subject: Subject) -> None:
        job = pushed(subject)
        subject.clock.advance(5 * MINUTE)
        rescued = subject.deliveries.rescue()
        found = subject.existing_job(job.id)
        assert (rescued.requeued, rescued.buried) == (1, 0)
        assert rescued.unacknowledged == rescued
        assert (found.state, found.attempt) == ("retrying", 1)
        assert found.error == {"type": "AckTimeout", "message": "no ack within the ack timeout"}
        (attempt,) = subject.deliveries.attempts(job.id)
        assert attempt.outcome == "retried"

    def test_it_is_never_poison(self, subject: Subject) -> None:
        pushed(subject)
        for _ in range(6):
            subject.clock.advance(5 * MINUTE)
            assert subject.deliveries.rescue().requeued == 1
            subject.deliveries.park(subject.take_one(), ack_timeout=5 * MINUTE)

    def test_it_buries_at_once_where_the_queue_says_so(self, subject: Subject) -> None:
        job = pushed(subject, dead=True)
        subject.clock.advance(5 * MINUTE)
        rescued = subject.deliveries.rescue()
        found = subject.existing_job(job.id)
        assert (rescued.buried, rescued.jobs[0].reason) == (1, "ack timeout")
        assert (found.state, found.reason) == ("dead", "ack timeout")
        assert found.error is not None
        assert found.error["type"] == "AckTimeout"
        with pytest.raises(WrongState, match="dead"):
            subject.deliveries.acknowledge(job.id)

    def test_the_next_delivery_is_a_vanished_one_where_nobody_parked_it(
        self, subject: Subject
    ) -> None:
        job = pushed(subject, dead=True)
        subject.deliveries.nack(job.id)
        subject.take_one()
        subject.clock.advance(HOUR)
        rescued = subject.deliveries.rescue()
        assert (rescued.requeued, rescued.unacknowledged.total) == (1, 0)
        assert subject.existing_job(job.id).error == {"type": None, "message": "lease expired"}
