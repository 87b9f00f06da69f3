"""Many jobs at once: all or nothing, an answer for each, and safe to send again."""

from typing import Any

import pytest

from tests.fixtures.served import Api

JOBS = "/v1/queues/payments/jobs"
BATCH = f"{JOBS}/batch"


async def test_a_batch_that_was_sent_before_is_200(api: Api) -> None:
    await api.queue()
    body = {"items": [{"payload": n} for n in range(3)]}

    first = await api("POST", BATCH, body, Idempotency_Key="batch-1")
    again = await api("POST", BATCH, body, Idempotency_Key="batch-1")

    assert (first.status, again.status) == (201, 200)
    assert [item["id"] for item in again.json["items"]] == [
        item["id"] for item in first.json["items"]
    ]
    assert (again.json["inserted"], again.json["skipped"]) == (0, 3)


async def test_the_header_leaves_items_alone_that_have_a_key(api: Api) -> None:
    await api.queue()
    known = await api.publish(0, idempotencyKey="own")

    reply = await api(
        "POST",
        BATCH,
        {"items": [{"payload": 0, "idempotencyKey": "own"}, {"payload": 1}]},
        Idempotency_Key="batch",
    )

    first, second = reply.json["items"]
    assert (first["id"], first["duplicate"]) == (known["id"], True)
    assert (await api.job(second["id"]))["idempotencyKey"] == "batch␟1"


async def test_no_publish_is_taken_for_an_item_of_a_batch(api: Api) -> None:
    await api.queue()
    own = [{"payload": 3, "idempotencyKey": "a:0"}]

    batch = await api("POST", BATCH, {"items": [{"payload": 1}]}, Idempotency_Key="a")
    single = await api("POST", JOBS, {"payload": 2}, Idempotency_Key="a:0")
    same = await api("POST", JOBS, {"payload": 4}, Idempotency_Key="a")
    again = await api("POST", BATCH, {"items": own}, Idempotency_Key="a")

    assert [reply.status for reply in (batch, single, same, again)] == [201, 201, 201, 200]
    assert again.json["items"][0]["id"] == single.json["id"]


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_a_key_that_reads_like_an_item_s_is_refused(api: Api) -> None:
    await api.queue()
    forged = {"payload": 1, "idempotencyKey": "a␟0"}

    single = await api("POST", JOBS, forged)
    batch = await api("POST", BATCH, {"items": [{"payload": 0}, forged]})

    assert single.problem(400, "invalid_input")["field"] == "idempotencyKey"
    assert batch.problem(400, "invalid_input")["field"] == "items[1].idempotencyKey"
    assert len(await api.onefold.afind()) == 0


async def test_ten_thousand_jobs_are_stored_at_once(api: Api) -> None:
    await api.queue()

    reply = await api("POST", BATCH, {"items": [{"payload": n} for n in range(10_000)]})

    assert (reply.status, reply.json["inserted"]) == (201, 10_000)
    assert len({item["id"] for item in reply.json["items"]}) == 10_000


@pytest.mark.parametrize("dialect", ["sqlite"])
@pytest.mark.parametrize(
    ("bad", "place"),
    [
        ({"payload": 1, "delay": -1}, "items[3].delay"),
        ({"payload": 1, "delay": "soon"}, "items[3].delay"),
        ({"payload": 1, "idempotencyFor": 5}, "items[3].idempotencyFor"),
        ({"payload": 1, "backoff": {"type": "fixed", "cap": 5}}, "items[3].backoff.cap"),
        ({"payload": 1, "queue": "other"}, "items[3].queue"),
        ({"payload": 1, "onDuplicate": "keep"}, "items[3].onDuplicate"),
        ({}, "items[3].payload"),
        (None, "items[3]"),
    ],
)
async def test_one_bad_item_stores_nothing_and_is_named(api: Api, bad: Any, place: str) -> None:
    await api.queue()
    good = [{"payload": n, "idempotencyKey": f"k{n}"} for n in range(3)]

    reply = await api("POST", BATCH, {"items": [*good, bad, {"payload": 4}]})

    told = reply.problem(400, "invalid_input")
    assert told["field"] == place
    assert place in told["detail"]
    assert len(await api.onefold.afind()) == 0
    assert not (await api.onefold.keys.afind(surface="publish")).keys


@pytest.mark.parametrize(
    ("word", "status", "code"),
    [("onDuplicate", 409, "already_enqueued"), ("onMismatch", 422, "key_reused")],
)
async def test_an_item_that_is_to_be_refused_is_named_and_takes_the_whole_batch_back(
    api: Api, word: str, status: int, code: str
) -> None:
    await api.queue()
    held = await api.publish({"n": 1}, uniqueKey="held")
    items = [{"payload": 1, "idempotencyKey": "k"}, {"payload": {"n": 2}, "uniqueKey": "held"}]

    reply = await api("POST", BATCH, {"items": items, word: "raise"})

    assert reply.problem(status, code)["item"] == 1
    assert [job.id for job in await api.onefold.afind()] == [held["id"]]
    assert not (await api.onefold.keys.afind(surface="publish")).keys
