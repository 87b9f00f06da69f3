"""Many jobs at once: all or nothing, an answer for each, and safe to send again."""

from typing import Any

import pytest

from tests.fixtures.served import Api

JOBS = "/v1/queues/payments/jobs"
BATCH = f"{JOBS}/batch"


async def test_each_item_is_answered_in_order(api: Api) -> None:
    await api.queue()
    known = await api.publish({"n": 0}, idempotencyKey="k0")
    items = [
        {"payload": {"n": 1}},
        {"payload": {"n": 0}, "idempotencyKey": "k0"},
        {"payload": {"n": 2}, "uniqueKey": "u"},
        {"payload": {"n": 3}, "uniqueKey": "u"},
    ]

    reply = await api("POST", BATCH, {"items": items})

    assert reply.status == 201
    said = reply.json
    assert (said["inserted"], said["skipped"]) == (2, 2)
    assert [item["duplicate"] for item in said["items"]] == [False, True, False, True]
    assert said["items"][1]["id"] == known["id"]
    assert said["items"][3]["id"] == said["items"][2]["id"]
    assert said["items"][3]["mismatch"] is True
    assert set(said["items"][0]) == set(known) - {"status", "createdAt"}


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


async def test_no_items_are_no_jobs(api: Api) -> None:
    await api.queue()

    reply = await api("POST", BATCH, {"items": []})

    assert (reply.status, reply.json) == (
        200,
        {"items": [], "inserted": 0, "skipped": 0, "next": None},
    )


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
        ({"payload": 1, "uniqueWhile": "active"}, "items[3].uniqueWhile"),
        ({"payload": 1, "uniqueKey": ""}, "items[3].uniqueKey"),
        ({"payload": 1, "uniqueKey": "a\0b"}, "items[3].uniqueKey"),
        ({"payload": 1, "kind": "a*b"}, "items[3].kind"),
        ({"payload": 1, "idempotencyFor": 5}, "items[3].idempotencyFor"),
        ({"payload": 1, "delay": 1, "runAt": "2020-01-01T00:00:00Z"}, "items[3].delay"),
        ({"payload": 1, "backoff": {"type": "fixed", "cap": 5}}, "items[3].backoff.cap"),
        ({"payload": 1, "queue": "other"}, "items[3].queue"),
        ({}, "items[3].payload"),
        (7, "items[3]"),
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


async def test_a_duplicate_that_is_to_be_refused_takes_the_whole_batch_back(api: Api) -> None:
    await api.queue()
    held = await api.publish(uniqueKey="held")
    items = [
        {"payload": 1, "idempotencyKey": "k"},
        {"payload": 2, "uniqueKey": "new"},
        {"payload": 3, "uniqueKey": "held"},
    ]

    reply = await api("POST", BATCH, {"items": items, "onDuplicate": "raise"})

    told = reply.problem(409, "already_enqueued")
    assert (told["item"], told["holderId"]) == (2, held["id"])
    assert [job.id for job in await api.onefold.afind()] == [held["id"]]
    assert not (await api.onefold.keys.afind(surface="publish")).keys


async def test_a_mismatch_that_is_to_be_refused_takes_the_whole_batch_back(api: Api) -> None:
    await api.queue()
    known = await api.publish({"n": 1}, idempotencyKey="k")
    items = [{"payload": 1}, {"payload": {"n": 2}, "idempotencyKey": "k"}]

    reply = await api("POST", BATCH, {"items": items, "onMismatch": "raise"})

    assert reply.problem(422, "key_reused")["item"] == 1
    assert [job.id for job in await api.onefold.afind()] == [known["id"]]
