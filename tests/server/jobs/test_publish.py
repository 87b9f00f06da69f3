"""Publish over HTTP: the rules are the engine's, the words are the wire's."""

import asyncio
from datetime import timedelta
from typing import Any

from onefold import Onefold, Retention
from onefold.model.ids import milliseconds_of
from onefold.model.wire import iso_of
from tests.fixtures.colours import Store
from tests.fixtures.patience import HANG
from tests.fixtures.served import Api

SECOND = timedelta(seconds=1)
JOBS = "/v1/queues/payments/jobs"


async def test_a_new_job_is_201_and_a_known_key_200_with_the_same_id(api: Api) -> None:
    await api.queue()
    order = {"payload": {"orderId": "9482"}, "idempotencyKey": "order:9482:charge"}

    first = await api("POST", JOBS, order)
    again = await api("POST", JOBS, order)

    assert (first.status, again.status) == (201, 200)
    assert first.json == {
        "id": first.json["id"],
        "status": "pending",
        "createdAt": iso_of(milliseconds_of(first.json["id"])),
        "duplicate": False,
        "mismatch": False,
        "replaced": False,
        "state": "ready",
    }
    assert again.json == {**first.json, "duplicate": True}


async def test_the_job_has_the_queue_as_its_kind_and_the_settings_of_the_queue(api: Api) -> None:
    await api.queue(
        maxAttempts=3, backoff={"type": "fixed", "base": 7}, retention={"completed": 60, "dead": 90}
    )

    plain = await api.publish()
    own = await api.publish(
        kind="charge", maxAttempts=5, backoff={"type": "fixed", "base": 1}, retention={"dead": 5}
    )

    one, other = await api.onefold.aget(plain["id"]), await api.onefold.aget(own["id"])
    assert one is not None
    assert other is not None
    assert (one.kind, one.queue, one.max_attempts) == ("payments", "payments", 3)
    assert one.retention == Retention(completed=60 * SECOND, dead=90 * SECOND)
    assert (other.kind, other.max_attempts) == ("charge", 5)
    assert other.retention == Retention(completed=60 * SECOND, dead=5 * SECOND)
    engine = api.onefold.deliveries
    ended = await engine.aretry([await api.take(), await api.take()])
    assert [end.retry_in for end in ended] == [7 * SECOND, SECOND]


async def test_any_json_is_a_payload(api: Api) -> None:
    await api.queue()
    payloads: list[Any] = [None, 0, "text", [], [1], {}, True]
    for payload in payloads:
        assert (await api.job((await api.publish(payload))["id"]))["payload"] == payload


async def test_the_header_is_the_key(api: Api) -> None:
    await api.queue()

    first = await api("POST", JOBS, {"payload": {}}, Idempotency_Key="k1")
    again = await api("POST", JOBS, {"payload": {}, "idempotencyKey": "k1"})
    both = await api("POST", JOBS, {"payload": {}, "idempotencyKey": "k1"}, Idempotency_Key="k1")

    assert (first.status, again.status, both.status) == (201, 200, 200)
    assert first.json["id"] == again.json["id"] == both.json["id"]
    assert (await api.job(first.json["id"]))["idempotencyKey"] == "k1"
    differ = await api("POST", JOBS, {"payload": {}, "idempotencyKey": "a"}, Idempotency_Key="b")
    told = differ.problem(400, "invalid_input")
    assert told["field"] == "idempotencyKey"
    assert "Idempotency-Key" in told["detail"]
    assert await _count(api.onefold) == 1


async def test_a_known_key_tells_how_its_job_stands(api: Api) -> None:
    await api.queue()
    said = await api.publish(idempotencyKey="k")
    stands: list[tuple[str, str]] = []

    async def look() -> None:
        again = await api.publish(idempotencyKey="k")
        assert again["id"] == said["id"]
        stands.append((again["status"], again["state"]))

    await look()
    job = await api.take()
    await look()
    await api.onefold.deliveries.afinish([job])
    await look()
    await api.onefold.areplay(said["id"], fresh=True)
    await api.onefold.acancel(said["id"])
    await look()
    await api.onefold.adelete(said["id"])
    await look()

    assert stands == [
        ("pending", "ready"),
        ("processing", "running"),
        ("completed", "completed"),
        ("dead", "cancelled"),
        ("completed", None),
    ]


async def test_an_unknown_queue_is_404_and_stores_nothing(api: Api) -> None:
    reply = await api("POST", "/v1/queues/nobody/jobs", {"payload": {}})

    told = reply.problem(404, "queue_not_found")
    assert told["queue"] == "nobody"
    assert told["detail"].endswith("with: curl -X PUT http://localhost/v1/queues/nobody")
    assert await _count(api.onefold) == 0


async def test_a_job_without_a_kind_is_run_by_the_handler_of_its_queue(store: Store) -> None:
    """As the README says of the job that it publishes."""
    onefold = store.open()
    done = asyncio.Event()

    @onefold.job(kind="payments", queue="payments")
    async def charge(orderId: str, amountCents: int) -> None:  # noqa: N803 - as they come
        assert (orderId, amountCents) == ("9482", 4999)
        done.set()

    api = Api(onefold)
    await api.queue()
    await api.publish({"orderId": "9482", "amountCents": 4999})
    async with onefold.worker(queues=["payments"]), asyncio.timeout(HANG):
        await done.wait()


async def _count(onefold: Onefold) -> int:
    return len(await onefold.afind())
