"""A payload is stored, shown and pushed as the bytes that came."""

import json
from datetime import timedelta

from onefold import Onefold
from tests.fixtures.colours import Clock
from tests.fixtures.served import Api, Reply

JOBS = "/v1/queues/payments/jobs"
PAYLOAD = (
    b'{"exact": 0.12345678901234567890, "e": 1e5,"E": 1E+05, "tiny":1e-400, "whole":\n'
    b'123456789012345678901234567890, "zero": -0, "text": "\\u00e9\\/"}'
)


async def stored(onefold: Onefold, job_id: str) -> bytes:
    job = await onefold.aget(job_id)
    assert job is not None
    return bytes(job.payload_json)


def shown(reply: Reply) -> bytes:
    """The payload in an answer, as it is on the wire."""
    assert PAYLOAD in reply.body, reply.body
    return PAYLOAD


async def publish(api: Api, payload: bytes, **members: object) -> Reply:
    more = b"".join(f', "{name}": {json.dumps(said)}'.encode() for name, said in members.items())
    reply = await api("POST", JOBS, raw=b'{"payload": ' + payload + more + b"}")
    assert reply.status in {200, 201}, reply.body
    return reply


async def test_a_publish_keeps_its_bytes_and_so_does_a_replay(api: Api) -> None:
    await api.queue(maxAttempts=1)

    job_id = (await publish(api, PAYLOAD)).json["id"]

    assert await stored(api.onefold, job_id) == PAYLOAD
    assert shown(await api("GET", f"/v1/jobs/{job_id}"))
    assert shown(await api("GET", "/v1/jobs"))
    await api.onefold.deliveries.abury([await api.take()], reason="bad")
    assert (await api("POST", f"/v1/jobs/{job_id}/replay", {})).status == 200
    assert bytes((await api.take()).payload_json) == PAYLOAD


async def test_so_do_every_item_of_a_batch_a_replacement_and_a_rerun(api: Api) -> None:
    await api.queue()
    raw = b'{"items": [{"payload": 1.10}, {"payload": %s, "uniqueKey": "u"}]}' % PAYLOAD
    reply = await api("POST", f"{JOBS}/batch", raw=raw)
    first, second = [item["id"] for item in reply.json["items"]]
    assert await stored(api.onefold, first) == b"1.10"
    assert await stored(api.onefold, second) == PAYLOAD

    await publish(api, b'{"n": 1}', uniqueKey="u", onDuplicate="replace")
    await publish(api, PAYLOAD, uniqueKey="u", onDuplicate="replace")
    assert await stored(api.onefold, second) == PAYLOAD

    await api.onefold.acancel(first)
    running = await api.take()
    await publish(api, b'{"n": 2}', uniqueKey="u", onDuplicate="rerun")
    await publish(api, PAYLOAD, uniqueKey="u", onDuplicate="rerun")
    await api.onefold.deliveries.afinish([running])
    assert bytes((await api.take()).payload_json) == PAYLOAD


async def test_so_does_a_schedule(api: Api, clock: Clock) -> None:
    await api.queue()
    raw = b'{"cron": "* * * * *", "queue": "payments", "payload": %s}' % PAYLOAD
    assert shown(await api("PUT", "/v1/schedules/often", raw=raw))

    clock.advance(timedelta(minutes=1))
    await api.onefold.deliveries.atick()

    assert bytes((await api.take()).payload_json) == PAYLOAD


async def test_two_spellings_of_the_same_values_are_the_same_request(api: Api) -> None:
    await api.queue()
    first = await publish(api, b'{"a": 1e5, "b": 0.10}', idempotencyKey="k", uniqueKey="u")

    again = await publish(api, b'{"b":0.1,"a":100000.0}', idempotencyKey="k", uniqueKey="u")
    other = await publish(api, b'{"b":0.2,"a":100000.0}', idempotencyKey="k", uniqueKey="u")

    assert again.json["id"] == other.json["id"] == first.json["id"]
    assert (again.json["mismatch"], other.json["mismatch"]) == (False, True)
    assert await stored(api.onefold, first.json["id"]) == b'{"a": 1e5, "b": 0.10}'


async def test_white_space_counts_towards_the_size(api: Api) -> None:
    await api.queue()
    wide = b"[" + b" " * (1024 * 1024) + b"]"

    reply = await api("POST", JOBS, raw=b'{"payload": %s}' % wide)

    assert "at most 1048576 bytes" in reply.problem(400, "invalid_input")["detail"]
