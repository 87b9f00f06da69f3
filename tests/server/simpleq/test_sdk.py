"""SimpleQ's SDK works unchanged, with our base URL and our key."""

import json
from datetime import timedelta

import pytest

from tests.fixtures.served import Api
from tests.server.simpleq.sdk import SimpleQ, SimpleQError

MINUTE = timedelta(minutes=1)


@pytest.fixture
def key(api: Api) -> str:
    return api.onefold.api_keys.create("acme", scopes=["publish", "work"]).text


@pytest.fixture
def simpleq(api: Api, key: str) -> SimpleQ:
    return SimpleQ(api, key)


async def make_queue(api: Api, name: str = "payments") -> None:
    admin = api.onefold.api_keys.create("acme", scopes=["admin"]).text
    reply = await api("PUT", f"/v1/queues/{name}", {}, authorization=f"Bearer {admin}")
    assert reply.status == 201, reply.body


async def delivered(api: Api, simpleq: SimpleQ) -> str:
    await make_queue(api)
    published = await simpleq.publish("payments", {"n": 1})
    await take(api)
    return published.id


async def take(api: Api) -> int:
    taken = await api.onefold.deliveries.atake_limited("{acme}payments", worker="w", lease=MINUTE)
    return len(taken.jobs)


async def test_a_publish_and_its_retry_are_the_same_job(api: Api, simpleq: SimpleQ) -> None:
    await make_queue(api)

    first = await simpleq.publish("payments", {"orderId": "9482"}, idempotency_key="order:9482")
    again = await simpleq.publish("payments", {"orderId": "9482"}, idempotency_key="order:9482")

    assert first == again
    assert first.status == "pending"


async def test_the_example_of_the_documentation_answers_201_then_200(api: Api, key: str) -> None:
    await make_queue(api)
    body = (
        b'{"payload": {"orderId": "9482", "amountCents": 4999},'
        b' "idempotencyKey": "order:9482:charge"}'
    )
    headers = [("authorization", f"Bearer {key}"), ("content-type", "application/json")]

    replies = [await api.send("POST", "/v1/queues/payments/jobs", [body], headers) for _ in "12"]

    assert [reply.status for reply in replies] == [201, 200]
    assert replies[0].json["id"] == replies[1].json["id"]


async def test_a_job_has_every_member_in_every_state(api: Api, simpleq: SimpleQ) -> None:
    job_id = await delivered(api, simpleq)

    running = await simpleq.get_job(job_id)
    await simpleq.nack(job_id, reason="no")
    pending = await simpleq.get_job(job_id)

    assert (running["status"], running["queue"]) == ("processing", "payments")
    assert (pending["status"], pending["lastError"]) == ("pending", "no")
    assert [entry["status"] for entry in pending["history"]] == ["nacked"]


async def test_an_ack_completes_and_may_be_repeated(api: Api, simpleq: SimpleQ) -> None:
    job_id = await delivered(api, simpleq)

    await simpleq.ack(job_id)
    await simpleq.ack(job_id)

    job = await simpleq.get_job(job_id)
    assert job["status"] == "completed"
    assert job["completedAt"] is not None
    assert [entry["status"] for entry in job["history"]] == ["success"]


async def test_a_bad_request_tells_its_fields(api: Api, simpleq: SimpleQ) -> None:
    await make_queue(api)

    with pytest.raises(SimpleQError, match="delay") as caught:
        await simpleq.publish("payments", {}, delay=-1)

    assert caught.value.status == 400
    assert list(caught.value.fields) == ["delay"]


async def test_too_many_requests_are_told_when_to_come_again(api: Api) -> None:
    await make_queue(api)
    hasty = SimpleQ(api, api.onefold.api_keys.create("acme", scopes=["publish"], rate="1/h").text)

    await hasty.publish("payments", {})
    with pytest.raises(SimpleQError) as caught:
        await hasty.publish("payments", {})

    assert caught.value.status == 429
    assert caught.value.retry_after is not None
    assert 0 < caught.value.retry_after <= 3600
    assert len(hasty.waits) == 2


async def test_a_retry_of_its_own_finds_the_first_try(api: Api, key: str) -> None:
    """The answer of the first try is lost, and the SDK asks again with the same key."""
    await make_queue(api)
    body = json.dumps({"payload": {}, "idempotencyKey": "once"}).encode()
    headers = [("authorization", f"Bearer {key}"), ("content-type", "application/json")]
    lost = await api.send("POST", "/v1/queues/payments/jobs", [body], headers)

    told = await SimpleQ(api, key).publish("payments", {}, idempotency_key="once")

    assert told.id == lost.json["id"]
