"""What an enqueue makes of its answers, and of batches that are too large for one request."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from onefold import NewJob, Unique
from onefold.client import publish
from onefold.errors import InvalidInput, KeyReused
from onefold.model.job import Job
from onefold.model.job_options import encode_options
from onefold.model.wire import encode
from tests.client.conftest import Connect
from tests.client.scripted import Asked, Cut, Scripted, answer, problem
from tests.fixtures.rows import job_row

JOB = "0199d0a0-0000-7000-8000-000000000001"
MADE = answer(201, {"id": JOB, "duplicate": False, "state": "ready"})
KNOWN = answer(200, {"id": JOB, "duplicate": True, "state": "running"})


def test_a_job_that_a_lost_try_made_is_no_duplicate(connect: Connect) -> None:
    with Scripted([Cut(), KNOWN]) as server:
        enqueued = connect(server.url).enqueue("mail", queue="email")

    assert (enqueued.inserted, enqueued.state) == (True, "running")


def test_a_key_of_the_callers_own_may_be_anybodys_who_made_the_job(connect: Connect) -> None:
    with Scripted([Cut(), KNOWN]) as server:
        enqueued = connect(server.url).enqueue("mail", queue="email", idempotency_key="k")

    assert enqueued.duplicate


@pytest.mark.parametrize("mine", [True, False])
def test_whether_a_lost_try_met_a_holder_is_told_by_the_job(
    connect: Connect, *, mine: bool
) -> None:
    keys: list[str | None] = []

    def script(asked: Asked) -> Any:
        if asked.method == "GET":
            key = keys[0] if mine else "another"
            options = encode_options(NewJob("mail", idempotency_key=key), exists=False)
            job = Job.from_row(job_row(JOB, queue="email", options_text=options))
            return answer(200, json.loads(encode(job)))
        keys.append(asked.key)
        return Cut() if len(keys) == 1 else KNOWN

    with Scripted(script) as server:
        enqueued = connect(server.url).enqueue("mail", queue="email", unique_key="u")

    assert enqueued.inserted is mine


def test_a_first_answer_is_taken_at_its_word(connect: Connect) -> None:
    with Scripted([KNOWN]) as server:
        assert connect(server.url).enqueue("mail", queue="email", unique_key="u").duplicate


def recipient(_: str, payload: Any) -> str:
    found: str = payload["to"]
    return found


def test_a_rule_for_keys_is_computed_here(connect: Connect) -> None:
    payload = {"to": "test@test.com", "subject": "Example"}
    with Scripted([MADE, MADE]) as server:
        client = connect(server.url)
        client.enqueue("example_job", payload, queue="email", unique=Unique("to"))
        client.enqueue("example_job", payload, queue="email", unique=recipient)

    assert [json.loads(asked.body)["uniqueKey"] for asked in server.asked] == [
        "example_job:b5c4c35eeacf8bbf2034b0ed8b0e2f9ac3e7da66b79b543e9c6c124d90c371a3",
        "test@test.com",
    ]


def test_a_key_of_a_field_that_is_not_there_is_refused_before_anything_is_sent(
    connect: Connect,
) -> None:
    wrong = NewJob("mail", {"userId": 1}, queue="email", unique=Unique("usrId"))
    with Scripted([]) as server:
        client = connect(server.url)
        with pytest.raises(InvalidInput, match=r"^unique names 'usrId'"):
            client.enqueue("mail", {"userId": 1}, queue="email", unique=Unique("usrId"))
        with pytest.raises(InvalidInput, match=r"^item 0: unique names 'usrId'"):
            client.enqueue_many([wrong])

    assert server.asked == []


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tick": datetime(2026, 1, 1, tzinfo=UTC)}, "tick"),
        ({"trace": {"traceparent": "00"}}, "trace"),
        ({"run_at": datetime(2026, 1, 1)}, "run_at"),  # noqa: DTZ001 - that is the point
        ({"delay": 3}, "delay"),
        ({"unique": 3}, "unique"),
        ({"quue": "a"}, "quue"),
        ({"payload": {1j}}, "payload"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_before_anything_is_sent(
    connect: Connect, options: dict[str, Any], field: str
) -> None:
    with Scripted([]) as server, pytest.raises(InvalidInput) as refused:
        connect(server.url).enqueue("mail", **{"queue": "email", **options})

    assert refused.value.field == field


def batches(asked: Asked) -> bytes:
    """Answers each item with its own number, and calls even ones duplicates."""
    items = json.loads(asked.body)["items"]
    told = [
        {"id": f"{asked.path}:{item['payload']['n']}", "duplicate": item["payload"]["n"] % 2 == 0}
        for item in items
    ]
    return answer(201, {"items": told, "inserted": 0, "skipped": 0})


def test_a_batch_is_answered_in_the_order_of_the_call_whatever_the_queues(connect: Connect) -> None:
    new_jobs = [NewJob("mail", {"n": n}, queue="ab"[n % 2]) for n in range(6)]
    with Scripted(batches) as server:
        many = connect(server.url).enqueue_many(new_jobs)

    assert [item.id.rpartition(":")[2] for item in many] == ["0", "1", "2", "3", "4", "5"]
    assert (many.inserted, many.skipped) == (3, 3)
    assert {asked.path for asked in server.asked} == {
        "/v1/queues/a/jobs/batch",
        "/v1/queues/b/jobs/batch",
    }


@pytest.mark.parametrize(
    ("limit", "most", "sizes"), [("MOST", 4, [4, 4, 2]), ("MOST_BYTES", 700, [2, 2, 2, 2, 2])]
)
def test_more_than_a_request_takes_are_several(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(publish, limit, most)
    new_jobs = [NewJob("mail", {"n": n, "text": "x" * 200}, queue="a") for n in range(10)]
    with Scripted(batches) as server:
        client = connect(server.url)
        many = client.enqueue_many(new_jobs)
        assert len(client.enqueue_many([])) == 0

    assert len(many) == 10
    assert [len(json.loads(asked.body)["items"]) for asked in server.asked] == sizes
    assert len({asked.key for asked in server.asked}) == len(sizes)


def test_a_retried_batch_has_the_same_key_and_its_plain_items_are_no_duplicates(
    connect: Connect,
) -> None:
    acts: list[Any] = [Cut()]

    def script(asked: Asked) -> Any:
        return acts.pop() if acts else batches(asked)

    new_jobs = [NewJob("mail", {"n": n}, queue="a") for n in (0, 1)]
    new_jobs += [NewJob("mail", {"n": n}, queue="a", unique_key="u") for n in (2, 3)]
    with Scripted(script) as server:
        many = connect(server.url).enqueue_many(new_jobs)

    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 1
    assert [item.duplicate for item in many] == [False, False, True, False]


def test_an_error_names_the_item_by_its_place_in_the_call(connect: Connect) -> None:
    reused = problem(422, "key_reused", key="k", item=1)
    new_jobs = [NewJob("mail", {"n": n}, queue="ab"[n % 2]) for n in range(4)]
    two = answer(201, {"items": [{"id": "1"}, {"id": "2"}], "inserted": 2, "skipped": 0})
    with Scripted([two, reused]) as server, pytest.raises(KeyReused) as raised:
        connect(server.url).enqueue_many(new_jobs)

    assert raised.value.item == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("new_job", "field"),
    [
        (NewJob("mail", queue=""), "queue"),
        (NewJob("mail", {1j}, queue="a"), "payload"),
        (NewJob("mail", queue="a", request_id="r"), "request_id"),
        ("mail", "job"),
    ],
)
def test_a_bad_item_is_named_and_nothing_is_sent(
    connect: Connect, new_job: Any, field: str
) -> None:
    with Scripted([]) as server, pytest.raises(InvalidInput) as refused:
        connect(server.url).enqueue_many([NewJob("mail", queue="a"), new_job])

    assert (refused.value.field, refused.value.item) == (field, 1)


def test_a_default_that_nobody_said_is_the_queues_to_say(connect: Connect) -> None:
    many = answer(201, {"items": [{"id": JOB}], "inserted": 1, "skipped": 0})
    with Scripted([MADE, many]) as server:
        client = connect(server.url)
        client.enqueue("mail", queue="a")
        client.enqueue_many([NewJob("mail", queue="a")])

    bodies = [json.loads(asked.body) for asked in server.asked]
    assert set(bodies[0]) == {"kind", "payload", "idempotencyKey"}
    assert bodies[1]["items"] == [{"kind": "mail", "payload": {}}]
