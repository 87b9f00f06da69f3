"""Publish keys: one publish is stored once, even if its job has ended."""

from datetime import timedelta
from typing import Any

import pytest

from onefold.errors import AlreadyEnqueued, KeyReused
from onefold.model.job import Enqueued, NewJob
from onefold.model.lifecycle import Retention
from onefold_contract.cases.common import (
    DAY,
    HOUR,
    MICROSECOND,
    MOMENTS,
    bury,
    complete,
    stored,
)
from onefold_contract.subject import Subject

__all__ = [
    "TestPublishKeys",
    "TestPublishKeysAndUniqueKeys",
    "TestPublishKeysExpire",
    "TestPublishKeysInBatches",
]


def publish(subject: Subject, payload: Any = None, key: str = "K", **options: Any) -> Enqueued:
    """One publish operation."""
    return subject.enqueue("pay", payload or {"order": 1}, idempotency_key=key, **options)


class TestPublishKeys:
    """A publish key identifies the publish operation."""

    @pytest.mark.parametrize("moment", MOMENTS)
    def test_it_is_known_in_every_state_of_the_job(self, subject: Subject, moment: str) -> None:
        first = publish(subject)
        assert first == Enqueued(first.id)
        MOMENTS[moment](subject)
        state = subject.existing_job(first.id).state
        assert publish(subject) == Enqueued(first.id, duplicate=True, state=state)
        assert stored(subject) == 1

    @pytest.mark.parametrize("kept", [HOUR, timedelta(0)])
    def test_it_is_known_when_the_job_is_gone(self, subject: Subject, kept: timedelta) -> None:
        first = publish(subject, retention=Retention(completed=kept))
        complete(subject)
        subject.clock.advance(kept)
        subject.deliveries.prune()
        assert subject.get(first.id) is None
        assert publish(subject) == Enqueued(first.id, duplicate=True, state=None)

    @pytest.mark.parametrize(
        "request_", [{"payload": {"order": 2}}, {"kind": "refund", "payload": {"order": 1}}]
    )
    def test_another_request_under_it_is_the_same_job_and_flagged(
        self, subject: Subject, request_: Any
    ) -> None:
        first = publish(subject)
        asked: dict[str, Any] = {"kind": "pay", "idempotency_key": "K", **request_}
        assert subject.enqueue(**asked) == Enqueued(first.id, duplicate=True, mismatch=True)
        with pytest.raises(KeyReused) as caught:
            subject.enqueue(**asked, on_mismatch="raise")
        assert (caught.value.key, caught.value.status) == ("K", 422)
        assert subject.existing_job(first.id).payload == {"order": 1}
        assert stored(subject) == 1

    def test_it_is_per_tenant_and_queue_and_across_kinds_and_no_unique_key(
        self, subject: Subject
    ) -> None:
        acme = subject.tenant("acme")
        first = publish(acme, queue="one")
        assert publish(subject.tenant("umbrella"), queue="one").inserted
        assert publish(subject, queue="one").inserted
        assert publish(acme, queue="two").inserted
        assert acme.enqueue("pay", {"order": 1}, unique_key="K", queue="one").inserted
        assert publish(acme, queue="one").id == first.id
        other = acme.enqueue("refund", {"order": 1}, idempotency_key="K", queue="one")
        assert other.id == first.id

    def test_a_replayed_job_is_still_the_one(self, subject: Subject) -> None:
        first = publish(subject)
        bury(subject)
        subject.replay(first.id)
        assert publish(subject) == Enqueued(first.id, duplicate=True)


class TestPublishKeysAndUniqueKeys:
    """The publish key is checked first; the unique key only if the publish key is new."""

    def test_a_new_key_whose_unique_key_is_held_stands_for_the_holder(
        self, subject: Subject
    ) -> None:
        holder = subject.enqueue("pay", {"order": 1}, unique_key="u")
        assert publish(subject, unique_key="u") == Enqueued(holder.id, duplicate=True)
        complete(subject)
        assert publish(subject, unique_key="u") == Enqueued(
            holder.id, duplicate=True, state="completed"
        )
        assert stored(subject) == 1

    def test_a_holder_whose_window_is_over_is_no_holder(self, subject: Subject) -> None:
        subject.enqueue("pay", {"order": 1}, unique_key="u", unique_for=HOUR)
        complete(subject)
        subject.clock.advance(HOUR)
        first = publish(subject, unique_key="u")
        assert first.inserted
        assert publish(subject, unique_key="u").id == first.id

    def test_two_publishes_may_stand_for_one_holder(self, subject: Subject) -> None:
        first = publish(subject, unique_key="u")
        assert publish(subject, key="K2", unique_key="u").id == first.id
        complete(subject)
        for key in ("K", "K2"):
            assert publish(subject, key=key, unique_key="u").id == first.id

    def test_raise_takes_a_new_key_back(self, subject: Subject) -> None:
        subject.enqueue("pay", {"order": 1}, unique_key="u")
        with pytest.raises(AlreadyEnqueued):
            publish(subject.committing_errors(), unique_key="u", on_duplicate="raise")
        complete(subject)
        assert publish(subject, unique_key="u", on_duplicate="raise").inserted

    def test_raise_does_not_raise_for_the_same_publish(self, subject: Subject) -> None:
        """A retry of a successful publish succeeds."""
        first = publish(subject, unique_key="u", on_duplicate="raise")
        again = publish(subject, unique_key="u", on_duplicate="raise")
        assert (again.id, again.duplicate) == (first.id, True)

    def test_a_repeated_replace_replaces_once(self, subject: Subject) -> None:
        holder = subject.enqueue("pay", {"order": 0}, unique_key="u")
        assert publish(subject, unique_key="u", on_duplicate="replace").replaced
        subject.enqueue("pay", {"order": 2}, unique_key="u", on_duplicate="replace")
        again = publish(subject, unique_key="u", on_duplicate="replace")
        assert again == Enqueued(holder.id, duplicate=True)
        assert subject.existing_job(holder.id).payload == {"order": 2}

    def test_a_repeated_rerun_triggers_once(self, subject: Subject) -> None:
        subject.enqueue("pay", {"order": 0}, unique_key="u")
        job = subject.take_one()
        publish(subject, unique_key="u", on_duplicate="rerun")
        subject.deliveries.finish([job])
        second = subject.take_one()
        publish(subject, unique_key="u", on_duplicate="rerun")
        subject.deliveries.finish([second])
        assert stored(subject) == 2


class TestPublishKeysExpire:
    """A publish key is kept for 24 hours by default, and at least until its job has ended."""

    @pytest.mark.parametrize("said", [None, 3 * DAY], ids=["default", "said"])
    def test_after_a_day_or_the_time_it_was_told_it_is_forgotten(
        self, subject: Subject, said: timedelta | None
    ) -> None:
        options: Any = {} if said is None else {"idempotency_for": said}
        first = publish(subject, **options)
        complete(subject)
        subject.clock.advance((said or DAY) - MICROSECOND)
        subject.deliveries.prune()
        subject.deliveries.sweep()
        assert publish(subject).id == first.id
        subject.clock.advance(MICROSECOND)
        assert publish(subject).inserted

    def test_the_publish_that_took_it_over_is_remembered(self, subject: Subject) -> None:
        publish(subject)
        complete(subject)
        subject.clock.advance(DAY)
        second = publish(subject, {"order": 2})
        assert publish(subject, {"order": 2}) == Enqueued(second.id, duplicate=True)
        complete(subject)
        subject.clock.advance(DAY - MICROSECOND)
        assert publish(subject, {"order": 2}).id == second.id

    @pytest.mark.parametrize("moment", ["queued", "running", "retrying", "deferred"])
    def test_it_is_not_forgotten_before_the_job_has_ended(
        self, subject: Subject, moment: str
    ) -> None:
        first = publish(subject)
        MOMENTS[moment](subject)
        subject.clock.advance(10 * DAY)
        subject.deliveries.sweep()
        assert publish(subject).id == first.id

    def test_an_operator_may_release_it(self, subject: Subject) -> None:
        first = publish(subject)
        assert subject.keys.force_release("default", "K", surface="publish")
        assert publish(subject).id != first.id

    def test_it_is_forgotten_when_a_late_job_ends(self, subject: Subject) -> None:
        publish(subject)
        subject.clock.advance(10 * DAY)
        complete(subject)
        assert publish(subject).inserted

    def test_a_sweep_forgets_what_is_over_and_nothing_else(self, subject: Subject) -> None:
        publish(subject)
        complete(subject)
        publish(subject, key="waiting")
        subject.clock.advance(DAY)
        fresh = publish(subject, key="fresh", queue="other")
        assert subject.deliveries.sweep() == 1
        assert publish(subject, key="fresh", queue="other").id == fresh.id
        assert publish(subject, key="waiting").duplicate
        assert publish(subject).inserted

    def test_the_holder_it_stands_for_counts(self, subject: Subject) -> None:
        """A publish key that was recorded for a holder is kept until the holder has ended."""
        holder = subject.enqueue("pay", {"order": 1}, unique_key="u")
        publish(subject, unique_key="u")
        subject.clock.advance(2 * DAY)
        subject.deliveries.sweep()
        assert publish(subject).id == holder.id


class TestPublishKeysInBatches:
    """Each item of a batch has its own publish key."""

    def test_known_and_new_keys_are_answered_each_for_itself(self, subject: Subject) -> None:
        known = publish(subject)
        answers = subject.enqueue_many(
            [
                NewJob("pay", {"order": 2}, idempotency_key="K2"),
                NewJob("pay", {"order": 1}, idempotency_key="K"),
                NewJob("pay", {"order": 3}),
            ]
        )
        assert [answer.duplicate for answer in answers] == [False, True, False]
        assert answers[1].id == known.id
        assert publish(subject, {"order": 2}, key="K2").id == answers[0].id

    def test_one_key_twice_whose_unique_key_is_held(self, subject: Subject) -> None:
        holder = subject.enqueue("pay", {"order": 1}, unique_key="u")
        answers = subject.enqueue_many(
            [NewJob("pay", {"order": 1}, unique_key="u", idempotency_key="K")] * 2
        )
        assert [answer.id for answer in answers] == [holder.id] * 2
        assert [answer.duplicate for answer in answers] == [True, True]

    def test_a_key_that_is_over_is_taken_over_in_a_batch(self, subject: Subject) -> None:
        old = publish(subject)
        complete(subject)
        subject.clock.advance(DAY)
        answers = subject.enqueue_many([NewJob("pay", {"order": 1}, idempotency_key="K")] * 2)
        assert [answer.duplicate for answer in answers] == [False, True]
        assert answers[0].id == answers[1].id != old.id
