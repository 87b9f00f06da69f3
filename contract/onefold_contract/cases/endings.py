"""Deliveries that end together: different endings in one call, and what a rescue returns."""

from typing import Any, Final

import pytest

from onefold.errors import InvalidInput
from onefold.model.delivery import Delivery, encode_error
from onefold.model.job import Job
from onefold.model.lifecycle import Event
from onefold.operations.endings import Ending, RescuedJob
from onefold_contract.cases.common import AT_ONCE, HOUR, MINUTE, SECOND
from onefold_contract.subject import Subject

__all__ = ["TestMixedEndings", "TestRescued"]

MICROS_OF_A_MINUTE: Final = 60_000_000


def ending(job: Job, event: Event, **options: Any) -> Ending:
    """One ending of a job that was taken."""
    return Ending(Delivery(job.id, job.fence), event, **options)


class TestMixedEndings:
    """The deliveries of a batch end in different ways, in one transaction."""

    def test_every_delivery_has_a_word_of_its_own(self, subject: Subject) -> None:
        for number in range(5):
            subject.enqueue("email", {"n": number}, priority=number)
        jobs = sorted(subject.take(limit=5), key=lambda job: job.priority)
        error = encode_error("no luck")
        ended = subject.deliveries.end(
            [
                ending(jobs[0], Event.FAIL, after=MICROS_OF_A_MINUTE, error=error),
                ending(jobs[1], Event.DEFER, after=MICROS_OF_A_MINUTE),
                ending(jobs[2], Event.BURY, reason="no such card"),
                ending(jobs[3], Event.CANCEL, reason="not wanted"),
                ending(jobs[4], Event.HAND_BACK),
            ]
        )
        assert [item.status for item in ended] == ["accepted"] * 5
        assert [item.id for item in ended] == [job.id for job in jobs], "in the order of the call"
        states = ["retrying", "scheduled", "dead", "cancelled", "ready"]
        assert [item.state for item in ended] == states
        found = [subject.existing_job(job.id) for job in jobs]
        assert [job.attempt for job in found] == [1, 0, 1, 1, 0]
        assert [job.reason for job in found] == [None, None, "no such card", "not wanted", None]
        assert found[0].error == {"type": None, "message": "no luck"}
        assert found[0].run_at == found[1].run_at == subject.clock.now + MINUTE
        assert subject.take_one().id == jobs[4].id

    def test_one_lost_delivery_does_not_keep_the_others_and_any_word_can_be_stored(
        self, subject: Subject
    ) -> None:
        said = "nul \x00, half a letter \ud800, and " + "x" * 20_000
        subject.enqueue("email")
        subject.enqueue("email")
        first, second = subject.take(limit=2)
        subject.cancel(first.id)
        ended = subject.deliveries.end(
            [ending(first, Event.FAIL), ending(second, Event.BURY, reason=said)]
        )
        assert [(item.status, item.state) for item in ended] == [
            ("lost", "cancelled"),
            ("accepted", "dead"),
        ]
        reason = subject.existing_job(second.id).reason
        assert reason is not None
        assert reason.startswith("nul \\x00, half a letter \\ud800, and xxx")

    def test_words_that_are_none_or_contradict_each_other_are_refused(
        self, subject: Subject
    ) -> None:
        subject.enqueue("email")
        job = subject.take_one()
        with pytest.raises(InvalidInput) as twice:
            subject.deliveries.end([ending(job, Event.FAIL), ending(job, Event.BURY)])
        assert twice.value.item == 1
        for event in (Event.FINISH, Event.TAKE, Event.LAPSE, Event.REPLAY):
            with pytest.raises(InvalidInput):
                subject.deliveries.end([ending(job, event)])
        with pytest.raises(InvalidInput) as caught:
            subject.deliveries.end([ending(job, Event.DEFER)])
        assert caught.value.field == "after"
        assert subject.existing_job(job.id).state == "running"


class TestRescued:
    """A rescue returns the jobs that it moved, so that callers can report them."""

    def test_it_tells_which_were_buried_and_which_go_round_again(self, subject: Subject) -> None:
        again = subject.tenant("acme").enqueue("email", queue="mail", backoff=AT_ONCE)
        last = subject.enqueue("letter", queue="mail", max_attempts=1)
        subject.take(["mail"], limit=2, lease=SECOND)
        late = subject.enqueue("email", expires_at=subject.clock.now + SECOND)
        subject.clock.advance(SECOND)
        rescued = subject.deliveries.rescue()
        assert (rescued.requeued, rescued.buried, rescued.expired) == (1, 1, 1)
        assert {job.id: job for job in rescued.jobs} == {
            again.id: RescuedJob(again.id, "email", "mail", "acme", buried=False),
            last.id: RescuedJob(last.id, "letter", "mail", "", buried=True, reason="lease expired"),
            late.id: RescuedJob(late.id, "email", "default", "", buried=True, reason="expired"),
        }

    def test_it_can_be_told_to_come_back_for_the_rest(self, subject: Subject) -> None:
        for _ in range(5):
            subject.enqueue("email", backoff=AT_ONCE)
        subject.take(limit=5, lease=SECOND)
        subject.clock.advance(HOUR)
        first = subject.deliveries.rescue(limit=2)
        assert 2 <= first.total < 5, "about so many: a batch a shard"
        assert first.total + subject.deliveries.rescue().total == 5
