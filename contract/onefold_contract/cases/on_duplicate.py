"""Rule 9, `keep`, `raise` and `replace`: what an enqueue does if its key is held."""

from datetime import timedelta
from typing import Any

import pytest

from onefold.errors import AlreadyEnqueued
from onefold.model.job import Enqueued
from onefold.model.retry import Fixed
from onefold_contract.cases.common import AT_ONCE, HOUR, MINUTE, SECOND, complete, stored
from onefold_contract.subject import Subject

__all__ = ["TestDebounce", "TestKeep", "TestRaise", "TestReplace"]


class TestKeep:
    """Rule 9, `keep`, the default."""

    def test_the_holder_stays_as_it_is(self, subject: Subject) -> None:
        first = subject.enqueue("email", {"to": 1}, unique_key="k", priority=1)
        before = subject.existing_job(first.id)
        subject.enqueue(
            "email", {"to": 2}, unique_key="k", priority=9, delay=HOUR, on_duplicate="keep"
        )
        assert subject.existing_job(first.id) == before


class TestRaise:
    """Rule 9, `raise`: a duplicate is an error, and nothing of the call is stored."""

    def test_a_duplicate_is_an_error_that_names_the_holder_and_nothing_stays(
        self, subject: Subject
    ) -> None:
        """Rule 5: even where the caller catches it and commits."""
        first = subject.enqueue("email", unique_key="k")
        with pytest.raises(AlreadyEnqueued) as caught:
            subject.committing_errors().enqueue(
                "email", unique_key="k", idempotency_key="publish", on_duplicate="raise"
            )
        assert (caught.value.key, caught.value.holder_id) == ("k", first.id)
        assert caught.value.evidence["state"] == "ready"
        assert (caught.value.item, str(caught.value)[:11]) == (None, "The key 'k'"), "of one call"
        assert stored(subject) == 1
        assert subject.keys.duplicates(first.id).count == 0
        assert subject.enqueue("email", idempotency_key="publish").inserted


class TestReplace:
    """Rule 9, `replace`: a holder that is still queued takes the new request."""

    def test_a_queued_holder_takes_payload_priority_and_time(self, subject: Subject) -> None:
        first = subject.enqueue("email", {"to": 1}, unique_key="k", priority=1)
        run_at = subject.clock.now + HOUR
        answer = subject.enqueue(
            "email", {"to": 2}, unique_key="k", priority=2, run_at=run_at, on_duplicate="replace"
        )
        assert answer == Enqueued(first.id, duplicate=True, state="scheduled", replaced=True)
        job = subject.existing_job(first.id)
        assert (job.payload, job.priority, job.run_at) == ({"to": 2}, 2, run_at)
        assert stored(subject) == 1

    def test_the_holder_keeps_its_queue_and_its_scope(self, subject: Subject) -> None:
        """Rule 2."""
        first = subject.enqueue("email", unique_key="k", queue="here", unique_while="exists")
        subject.enqueue(
            "email",
            {"to": 2},
            unique_key="k",
            queue="there",
            unique_while="queued",
            on_duplicate="replace",
        )
        job = complete(subject, "here")
        assert job.payload == {"to": 2}
        assert subject.enqueue("email", unique_key="k").id == first.id

    def test_the_replaced_request_is_what_later_ones_are_compared_with_its_kind_too(
        self, subject: Subject
    ) -> None:
        """Rule 8."""
        key: Any = {"unique_key": "k", "across_kinds": True}
        first = subject.enqueue("email", {"to": 1}, **key)
        subject.enqueue("letter", {"to": 2}, **key, on_duplicate="replace")
        job = subject.existing_job(first.id)
        assert (job.kind, job.payload) == ("letter", {"to": 2})
        assert not subject.enqueue("letter", {"to": 2}, **key).mismatch
        assert subject.enqueue("email", {"to": 2}, **key).mismatch
        assert subject.enqueue("letter", {"to": 1}, **key).mismatch

    def test_a_retrying_holder_starts_a_new_generation(self, subject: Subject) -> None:
        first = subject.enqueue("email", {"to": 1}, unique_key="k", backoff=Fixed(HOUR))
        subject.deliveries.retry([subject.take_one()])
        before = subject.existing_job(first.id)
        assert (before.attempt, before.generation) == (1, 0)

        answer = subject.enqueue("email", {"to": 2}, unique_key="k", on_duplicate="replace")
        job = subject.existing_job(first.id)
        assert answer.replaced
        assert (job.payload, job.attempt, job.generation) == ({"to": 2}, 0, 1)
        now = (job.fence, job.run_at)
        assert now == (before.fence, before.run_at), "nor is its backoff shorter"
        subject.enqueue("email", {"to": 3}, unique_key="k", on_duplicate="replace")
        assert subject.existing_job(first.id).run_at == before.run_at, "nor by the next one"

    def test_a_new_generation_has_all_its_attempts(self, subject: Subject) -> None:
        first = subject.enqueue("email", unique_key="k", max_attempts=2, backoff=AT_ONCE)
        subject.deliveries.retry([subject.take_one()])
        subject.enqueue("email", {"to": 2}, unique_key="k", on_duplicate="replace")
        subject.deliveries.retry([subject.take_one()])
        assert subject.existing_job(first.id).state == "retrying"
        subject.deliveries.retry([subject.take_one()])
        assert subject.existing_job(first.id).state == "dead"


class TestDebounce:
    """Rule 9: `replace` with a delay, bounded by `max_wait`."""

    @pytest.mark.parametrize("max_wait", [None, 2 * MINUTE])
    def test_each_request_puts_the_job_off_but_not_for_longer_than_it_says(
        self, subject: Subject, max_wait: timedelta | None
    ) -> None:
        created = subject.clock.now
        first = subject.enqueue(
            "index", {"n": 0}, unique_key="k", delay=MINUTE, unique_while="queued"
        )
        for n in range(1, 5):
            subject.clock.advance(30 * SECOND)
            subject.enqueue(
                "index",
                {"n": n},
                unique_key="k",
                delay=MINUTE,
                on_duplicate="replace",
                max_wait=max_wait,
            )
            wanted = subject.clock.now + MINUTE
            due = min(wanted, created + max_wait) if max_wait else wanted
            assert subject.existing_job(first.id).run_at == due
        assert (subject.take() == []) is (max_wait is None)
        subject.clock.advance(MINUTE)
        assert subject.existing_job(first.id).payload == {"n": 4}

    def test_a_bound_that_has_passed_runs_it_now(self, subject: Subject) -> None:
        subject.enqueue("index", unique_key="k", delay=HOUR)
        subject.clock.advance(MINUTE)
        subject.enqueue(
            "index", {"n": 1}, unique_key="k", delay=HOUR, on_duplicate="replace", max_wait=SECOND
        )
        assert subject.take_one().payload == {"n": 1}
