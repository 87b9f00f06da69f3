"""Rule 5: `enqueue_many` returns one result per item, in order, and stores all or nothing."""

from typing import Any

import pytest

from onefold.errors import AlreadyEnqueued, KeyReused
from onefold.model.job import NewJob
from onefold_contract.cases.common import HOUR, complete, kept, stored
from onefold_contract.subject import Subject

__all__ = ["TestAllOrNothing", "TestBatches"]


class TestBatches:
    """Rule 5: order, counts, and duplicates inside the batch."""

    def test_each_item_is_answered_in_order(self, subject: Subject) -> None:
        known = subject.enqueue("digest", {"user": 2}, unique_key="digest:2")
        answers = subject.enqueue_many(
            [NewJob("digest", {"user": n}, unique_key=f"digest:{n}") for n in (3, 2, 1)]
        )
        assert [answer.duplicate for answer in answers] == [False, True, False]
        assert answers[1].id == known.id
        assert (answers.inserted, answers.skipped, len(answers)) == (2, 1, 3)
        assert [subject.existing_job(answer.id).payload["user"] for answer in answers] == [3, 2, 1]

    def test_a_duplicate_inside_the_batch_is_answered_with_the_first(
        self, subject: Subject
    ) -> None:
        answers = subject.enqueue_many(
            [NewJob("digest", {"user": n % 2}, unique_key=f"digest:{n % 2}") for n in range(5)]
        )
        first, second = answers[0].id, answers[1].id
        assert [answer.id for answer in answers] == [first, second, first, second, first]
        assert [answer.duplicate for answer in answers] == [False, False, True, True, True]
        assert not any(answer.mismatch for answer in answers)
        assert (answers.inserted, answers.skipped) == (2, 3)
        answers = subject.enqueue_many([])
        assert (len(answers), answers.inserted, answers.skipped) == (0, 0, 0)

    def test_a_different_request_inside_the_batch_is_flagged(self, subject: Subject) -> None:
        """Rule 8."""
        answers = subject.enqueue_many(
            [NewJob("digest", {"n": n}, unique_key="k") for n in (1, 1, 2)]
        )
        assert [answer.mismatch for answer in answers] == [False, False, True]
        assert subject.existing_job(answers[0].id).payload == {"n": 1}

    def test_a_batch_larger_than_a_statement_keeps_its_order(self, subject: Subject) -> None:
        known = subject.enqueue("digest", unique_key="2050")
        answers = subject.enqueue_many(
            [NewJob("digest", {"n": n}, unique_key=str(n)) for n in range(2100)]
        )
        assert (answers.inserted, answers.skipped) == (2099, 1)
        assert answers[2050].id == known.id
        for n in (0, 1999, 2000, 2099):
            assert subject.existing_job(answers[n].id).payload == {"n": n}

    def test_items_may_differ_in_everything(self, subject: Subject) -> None:
        answers = subject.enqueue_many(
            [
                NewJob("a", queue="one", priority=5),
                NewJob("b", queue="two", unique_key="k", unique_while="exists"),
                NewJob("c", queue="two", unique_key="k", unique_for=HOUR),
                NewJob("d", unique_key="k", across_kinds=True),
            ]
        )
        assert answers.inserted == 4
        assert [subject.existing_job(answer.id).kind for answer in answers] == ["a", "b", "c", "d"]

    def test_holders_whose_window_is_over_give_way(self, subject: Subject) -> None:
        subject.enqueue_many(
            [
                NewJob("digest", unique_key="short", unique_for=HOUR),
                NewJob("digest", unique_key="long", unique_for=2 * HOUR),
            ]
        )
        subject.clock.advance(HOUR)
        answers = subject.enqueue_many(
            [NewJob("digest", unique_key="long"), NewJob("digest", unique_key="short")]
        )
        assert [answer.duplicate for answer in answers] == [True, False]

    @pytest.mark.parametrize("on_duplicate", ["replace", "rerun"])
    def test_the_newest_request_of_the_batch_wins_where_it_may(
        self, subject: Subject, on_duplicate: str
    ) -> None:
        """Rule 9."""
        known = subject.enqueue("digest", {"n": 0}, unique_key="known")
        new = [
            NewJob("digest", {"n": 1}, unique_key="known"),
            NewJob("digest", {"n": 2}, unique_key="new"),
            NewJob("digest", {"n": 3}, unique_key="known"),
            NewJob("digest", {"n": 4}, unique_key="new"),
        ]
        if on_duplicate == "replace":
            answers = subject.enqueue_many(new, on_duplicate="replace")
        else:
            answers = subject.enqueue_many(new, on_duplicate="rerun")
        assert [answer.duplicate for answer in answers] == [True, False, True, True]
        assert [answer.mismatch for answer in answers] == [False] * 4
        assert answers[2].replaced
        assert answers[3].replaced
        assert subject.existing_job(known.id).payload == {"n": 3}
        assert subject.existing_job(answers[1].id).payload == {"n": 4}

    def test_one_call_meets_holders_in_every_state(self, subject: Subject) -> None:
        """Rule 9: each item by its own holder."""
        for key in ("running", "completed"):
            subject.enqueue("digest", {"n": 0}, unique_key=key, unique_while="exists", queue=key)
        subject.take_one("running")
        complete(subject, "completed")
        subject.enqueue("digest", {"n": 0}, unique_key="ready")
        answers = subject.enqueue_many(
            [
                NewJob("digest", {"n": 1}, unique_key=key)
                for key in ("running", "ready", "new", "completed")
            ],
            on_duplicate="replace",
        )
        assert [answer.state for answer in answers] == ["running", "ready", "ready", "completed"]
        assert [answer.replaced for answer in answers] == [False, True, False, False]
        assert [answer.mismatch for answer in answers] == [True, False, False, True]


class TestAllOrNothing:
    """Rule 5: after an error nothing of the call is stored, and the error names the item."""

    def test_raise_meeting_a_holder_stores_nothing(self, subject: Subject) -> None:
        known = subject.enqueue("digest", unique_key="known")
        with pytest.raises(AlreadyEnqueued) as caught:
            subject.committing_errors().enqueue_many(
                [
                    NewJob("digest", unique_key="a", idempotency_key="publish a"),
                    NewJob("digest", idempotency_key="publish b"),
                    NewJob("digest", unique_key="known", idempotency_key="publish c"),
                    NewJob("digest", unique_key="z"),
                ],
                on_duplicate="raise",
            )
        assert (caught.value.item, caught.value.holder_id) == (2, known.id)
        assert "item 2" in str(caught.value)
        assert [job.id for job in subject.find()] == [known.id]
        for key in ("publish a", "publish b", "publish c"):
            assert subject.enqueue("digest", idempotency_key=key).inserted
        assert subject.enqueue("digest", unique_key="a").inserted

    def test_raise_meeting_a_duplicate_inside_the_batch_stores_nothing(
        self, subject: Subject
    ) -> None:
        with pytest.raises(AlreadyEnqueued) as caught:
            subject.committing_errors().enqueue_many(
                [NewJob("digest", unique_key="a"), NewJob("digest", unique_key="a")],
                on_duplicate="raise",
            )
        assert caught.value.item == 1
        assert stored(subject) == 0

    @pytest.mark.parametrize("field", ["unique_key", "idempotency_key"])
    def test_a_mismatch_that_is_an_error_stores_nothing(self, subject: Subject, field: str) -> None:
        """Rule 8."""
        known: dict[str, Any] = {field: "known"}
        subject.enqueue("digest", {"n": 1}, **known)
        with pytest.raises(KeyReused) as caught:
            subject.committing_errors().enqueue_many(
                [
                    NewJob("digest", unique_key="a", idempotency_key="publish"),
                    NewJob("digest", {"n": 2}, **known),
                ],
                on_mismatch="raise",
            )
        assert (caught.value.key, caught.value.evidence["item"]) == ("known", 1)
        assert stored(subject) == 1
        assert subject.enqueue("digest", idempotency_key="publish").inserted

    def test_a_key_that_was_free_before_is_free_after(self, subject: Subject) -> None:
        subject.enqueue("digest", unique_key="lapsed", unique_for=HOUR)
        subject.enqueue("digest", unique_key="known")
        subject.clock.advance(HOUR)
        with pytest.raises(AlreadyEnqueued):
            subject.committing_errors().enqueue_many(
                [NewJob("digest", unique_key="lapsed"), NewJob("digest", unique_key="known")],
                on_duplicate="raise",
            )
        assert len(kept(subject, "lapsed")) == 1
        assert subject.enqueue("digest", unique_key="lapsed").inserted
