"""What an enqueue returns, and which keys collide: rules 1, 2, 3, 4, 8 and 12 of uniqueness."""

from typing import Any, Final
from uuid import UUID

import pytest

from onefold.errors import InvalidInput, KeyReused
from onefold.model.job import Enqueued, NewJob
from onefold.model.unique import Unique
from onefold.testing.clock import START
from onefold_contract.cases.common import DAY, HOUR, stored
from onefold_contract.subject import Subject

__all__ = ["TestAnswers", "TestLostAnswers", "TestMismatch", "TestNameSpaces", "TestPayloads"]


class TestAnswers:
    """Rules 3 and 4: an enqueue returns the job for the request, new or existing."""

    def test_a_new_job_is_answered_as_inserted(self, subject: Subject) -> None:
        answer = subject.enqueue("email", {"to": 1}, unique_key="welcome:1")
        assert answer == Enqueued(answer.id, duplicate=False, state="ready")
        assert answer.inserted
        job = subject.existing_job(answer.id)
        assert (job.kind, job.payload, job.unique_key) == ("email", {"to": 1}, "welcome:1")
        assert (job.state, job.attempt, job.fence) == ("ready", 0, 0)

    def test_a_duplicate_is_answered_with_the_holder(self, subject: Subject) -> None:
        """Rule 4."""
        first = subject.enqueue("email", {"to": 1}, unique_key="welcome:1")
        second = subject.enqueue("email", {"to": 1}, unique_key="welcome:1")
        assert second == Enqueued(first.id, duplicate=True, state="ready")
        assert not second.inserted
        assert stored(subject) == 1

    def test_the_answer_says_in_which_state_the_holder_is(self, subject: Subject) -> None:
        subject.enqueue("email", unique_key="k", unique_while="exists")
        job = subject.take_one()
        assert subject.enqueue("email", unique_key="k").state == "running"
        subject.deliveries.finish([job])
        assert subject.enqueue("email", unique_key="k").state == "completed"

    def test_a_derived_key_holds_like_a_given_one(self, subject: Subject) -> None:
        rule = Unique("to")
        first = subject.enqueue("email", {"to": 1, "at": 1}, unique=rule)
        second = subject.enqueue("email", {"to": 1, "at": 2}, unique=rule)
        third = subject.enqueue("email", {"to": 2, "at": 1}, unique=rule)
        assert (second.id, second.duplicate) == (first.id, True)
        assert not third.duplicate
        assert subject.existing_job(first.id).unique_key == rule.key("email", {"to": 1, "at": 1})

    def test_a_field_that_the_payload_does_not_have_is_an_error(self, subject: Subject) -> None:
        fine = NewJob("email", {"userId": 1}, unique=Unique("userId"))
        wrong = NewJob("email", {"userId": 2}, unique=Unique("usrId"))
        with pytest.raises(InvalidInput, match=r"names 'usrId', .*'email'.* It has 'userId'"):
            subject.enqueue("email", {"userId": 2}, unique=Unique("usrId"))
        with pytest.raises(InvalidInput, match="item 1: unique names 'usrId'"):
            subject.enqueue_many([fine, wrong])
        assert stored(subject) == 0
        lenient = Unique("usrId", missing="ignore")
        subject.enqueue("email", {"userId": 2}, unique=lenient)
        assert subject.enqueue("email", {"userId": 3}, unique=lenient).duplicate

    def test_a_key_may_be_computed_by_any_callable(self, subject: Subject) -> None:
        def per_user(kind: str, payload: Any) -> str:
            return f"{kind}/{payload['user']}"

        first = subject.enqueue("email", {"user": 7}, unique=per_user)
        assert subject.enqueue("email", {"user": 7}, unique=per_user).id == first.id
        assert subject.existing_job(first.id).unique_key == "email/7"

    def test_a_given_key_wins_over_a_derived_one(self, subject: Subject) -> None:
        answer = subject.enqueue("email", {"to": 1}, unique=Unique("to"), unique_key="mine")
        assert subject.existing_job(answer.id).unique_key == "mine"

    def test_a_job_is_stored_with_all_it_was_told(self, subject: Subject) -> None:
        run_at, expires_at = subject.clock.now + HOUR, subject.clock.now + DAY
        answer = subject.enqueue(
            "report",
            {"of": "May"},
            queue="slow",
            priority=-5,
            run_at=run_at,
            max_attempts=3,
            expires_at=expires_at,
        )
        job = subject.existing_job(answer.id)
        assert (job.queue, job.priority, job.max_attempts) == ("slow", -5, 3)
        assert (job.run_at, job.expires_at) == (run_at, expires_at)
        assert (job.created_at, job.state) == (subject.clock.now, "scheduled")


RESENT: Final[list[tuple[list[dict[str, Any]], dict[str, Any]]]] = [
    ([{"unique_key": "k"}], {}),
    ([{}, {}], {}),
    ([{"unique_key": "k", "idempotency_key": "publish"}], {}),
    ([{"unique_key": "a"}, {"unique_key": "b"}], {"on_duplicate": "raise"}),
    ([{"unique_key": "a"}], {"on_duplicate": "replace"}),
]


class TestLostAnswers:
    """Rule 12: a request that is sent again after a lost response is the same job."""

    @pytest.mark.parametrize(("new", "options"), RESENT, ids=str)
    def test_it_finds_its_own_jobs_and_calls_them_new(
        self, subject: Subject, new: list[Any], options: Any
    ) -> None:
        jobs = [NewJob("email", **each) for each in new]
        first, again = subject.enqueue_resent(jobs, **options)
        assert again == first
        assert all(answer.inserted for answer in again)
        assert stored(subject) == len(new)


class TestNameSpaces:
    """Rule 1: keys are per tenant and kind, across queues."""

    def test_a_key_is_of_its_kind_on_every_queue_unless_it_is_across_kinds(
        self, subject: Subject
    ) -> None:
        plain = subject.enqueue("email", unique_key="user:1", queue="fast")
        assert subject.enqueue("invoice", unique_key="user:1").inserted
        assert subject.enqueue("email", unique_key="user:1", queue="slow").id == plain.id
        across = subject.enqueue("email", unique_key="user:1", across_kinds=True)
        assert across.inserted, "plain keys and keys across kinds never meet"
        again = subject.enqueue("invoice", unique_key="user:1", across_kinds=True)
        assert (again.id, again.duplicate) == (across.id, True)
        assert subject.enqueue("email", unique_key="user:1").id == plain.id

    def test_tenants_never_meet(self, subject: Subject) -> None:
        acme, umbrella = subject.tenant("acme"), subject.tenant("umbrella")
        first = acme.enqueue("email", unique_key="user:1")
        assert umbrella.enqueue("email", unique_key="user:1").inserted
        assert subject.enqueue("email", unique_key="user:1").inserted
        assert acme.enqueue("email", unique_key="user:1").id == first.id

    def test_keys_are_compared_by_their_bytes(self, subject: Subject) -> None:
        """Keys are compared byte by byte: no collation, no normalization, no trimming."""
        keys = ["straße", "strasse", "STRASSE", "e\u0301", "\u00e9", "a", "a ", " a", "a\n"]
        answers = [subject.enqueue("email", unique_key=key) for key in keys]
        assert all(answer.inserted for answer in answers)
        again = [subject.enqueue("email", unique_key=key) for key in keys]
        assert [answer.id for answer in again] == [answer.id for answer in answers]

    def test_the_parts_of_a_key_do_not_run_into_each_other(self, subject: Subject) -> None:
        subject.tenant("a").enqueue("bc", unique_key="d")
        assert subject.tenant("ab").enqueue("c", unique_key="d").inserted
        assert subject.tenant("a").enqueue("b", unique_key="cd").inserted


class TestMismatch:
    """Rule 8: the same key with another request is flagged or rejected."""

    @pytest.mark.parametrize(
        ("request_", "mismatch"),
        [
            ({"payload": {"to": 2}}, True),
            ({"kind": "letter"}, True),
            ({"queue": "slow", "priority": 3, "delay": HOUR}, False),
        ],
        ids=["payload", "kind", "queue, priority and time"],
    )
    def test_another_payload_or_kind_under_the_same_key_is_flagged_and_nothing_else(
        self, subject: Subject, request_: dict[str, Any], *, mismatch: bool
    ) -> None:
        asked: dict[str, Any] = {"kind": "email", "payload": {"to": 1}, "unique_key": "k"}
        first = subject.enqueue(**asked, across_kinds=True)
        second = subject.enqueue(**{**asked, **request_}, across_kinds=True)
        assert second == Enqueued(first.id, duplicate=True, mismatch=mismatch)
        assert subject.existing_job(first.id).payload == {"to": 1}

    def test_it_is_an_error_where_the_caller_says_so(self, subject: Subject) -> None:
        first = subject.enqueue("email", {"to": 1}, unique_key="k")
        with pytest.raises(KeyReused) as caught:
            subject.enqueue("email", {"to": 2}, unique_key="k", on_mismatch="raise")
        assert caught.value.key == "k"
        assert caught.value.evidence["holder_id"] == first.id
        assert caught.value.status == 422
        assert stored(subject) == 1


class TestPayloads:
    """A payload is returned as it was given, on every database and with every driver."""

    @pytest.mark.parametrize(
        "payload",
        [
            {},
            [],
            0,
            False,
            "text",
            {"nested": {"list": [1, 2.5, None, True, "x"]}},
            {"": "an empty name", "ключ": "значение", "🙂": "🙃"},
            {"escapes": "\x00 \x1f \\ \" ' ; -- %s :name $1 ? \u2028"},
            [2**63, -(2**70), 1e308, 5e-324, -0.5],
            "x" * 100_000,
        ],
        ids=lambda payload: type(payload).__name__,
    )
    def test_it_comes_back_as_it_was_given(self, subject: Subject, payload: Any) -> None:
        answer = subject.enqueue("kind", payload, unique_key="k")
        assert subject.existing_job(answer.id).payload == payload
        assert subject.take_one().payload == payload

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"at": START}, {"at": "2040-01-01T00:00:00Z"}),
            ({"id": UUID(int=7)}, {"id": "00000000-0000-0000-0000-000000000007"}),
            ({1: "one"}, {"1": "one"}),
            ((1, 2), [1, 2]),
        ],
    )
    def test_values_that_json_can_spell_are_spelled(
        self, subject: Subject, given: Any, text: Any
    ) -> None:
        answer = subject.enqueue("kind", given, unique_key="k")
        assert subject.existing_job(answer.id).payload == text
        assert not subject.enqueue("kind", text, unique_key="k").mismatch, "it is one request"
