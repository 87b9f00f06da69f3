"""What a receiver says of a delivery: with a fence it speaks for one, without for the current."""

import json
from datetime import timedelta
from typing import Any

import pytest

from onefold.model.job import Job
from onefold.model.wire import iso
from tests.fixtures.colours import Clock
from tests.fixtures.served import Api, Reply

MINUTE = timedelta(minutes=1)


async def delivered(api: Api, **members: Any) -> Job:
    """A job that is being delivered."""
    await api.queue()
    await api.publish(**members)
    job: Job = await api.take()
    return job


async def said(api: Api, job: Job, word: str, body: Any = None, **headers: str) -> Reply:
    said: Any = {} if body is None else body
    return await api("POST", f"/v1/jobs/{job.id}/{word}", said, raw=None, **headers)


async def test_an_ack_finishes_the_job_and_keeps_its_result(api: Api) -> None:
    job = await delivered(api)

    first = await said(api, job, "ack", {"result": {"receipt": 7}})
    again = await said(api, job, "ack", {"result": {"receipt": 7}})

    assert first.status == 200
    assert first.json == {
        "id": job.id, "fence": 1, "status": "accepted", "state": "completed", "retryIn": None,
        "accepted": True,
    }  # fmt: skip
    assert again.json == {**first.json, "status": "already"}
    shown = await api.job(job.id)
    assert (shown["status"], shown["result"]) == ("completed", {"receipt": 7})
    assert [entry["status"] for entry in shown["history"]] == ["success"]


@pytest.mark.parametrize("word", ["ack", "nack", "heartbeat"])
async def test_nothing_need_be_sent(api: Api, word: str) -> None:
    job = await delivered(api)

    reply = await api("POST", f"/v1/jobs/{job.id}/{word}")

    assert (reply.status, reply.json["accepted"]) == (200, True)


@pytest.mark.parametrize(("more", "state"), [({}, "retrying"), ({"retryable": False}, "dead")])
async def test_a_nack_is_told_with_its_reason(api: Api, more: Any, state: str) -> None:
    job = await delivered(api)

    reply = await said(api, job, "nack", {"reason": "card declined", **more})

    assert (reply.json["id"], reply.json["accepted"]) == (job.id, True)
    shown = await api.job(job.id)
    assert (shown["state"], shown["attempts"]) == (state, 1)
    assert shown["lastError"] == "card declined"
    assert [(e["status"], e["error"]) for e in shown["history"]] == [("nacked", "card declined")]


async def test_a_defer_gives_the_attempt_back(api: Api, clock: Clock) -> None:
    job = await delivered(api)

    reply = await said(api, job, "defer", {"retryAfter": 30, "reason": "busy", "scope": "job"})

    assert (reply.json["id"], reply.json["accepted"]) == (job.id, True)
    assert (reply.json["state"], reply.json["retryIn"]) == ("scheduled", 30)
    shown = await api.job(job.id)
    assert (shown["status"], shown["attempts"]) == ("pending", 0)
    assert shown["scheduledFor"] == iso(clock.now + timedelta(seconds=30))
    assert [entry["status"] for entry in shown["history"]] == ["deferred"]


@pytest.mark.parametrize(
    ("scope", "taken"), [({}, 0), ({"scope": "queue"}, 0), ({"scope": "job"}, 1)]
)
async def test_a_defer_holds_the_whole_queue_unless_told(api: Api, scope: Any, taken: int) -> None:
    job = await delivered(api)
    await api.publish({"n": 2})

    await said(api, job, "defer", {"retryAfter": 30, **scope})

    # As workers take: a queue that is held is taken under its own rules.
    found = await api.onefold.deliveries.atake_limited("payments", worker="w", lease=MINUTE)
    assert len(found.jobs) == taken


async def parked(api: Api) -> Job:
    """A job that was pushed in ack mode, and answered with 202."""
    job = await delivered(api, idempotencyKey="k")
    exchange = {"fence": job.fence, "status": 202, "duration": 0.25, "excerpt": "later"}
    ended = await api.onefold.deliveries.apark(
        job, ack_timeout=5 * MINUTE, exchange=json.dumps(exchange)
    )
    assert ended.status == "accepted"
    return job


async def test_a_job_that_waits_for_its_ack_says_so(api: Api) -> None:
    job = await parked(api)

    shown = await api.job(job.id)
    again = await api.publish(idempotencyKey="k")
    await api.publish()
    found = (await api("GET", "/v1/jobs?state=awaiting")).json

    assert [item["id"] for item in found["items"]] == [job.id]
    assert (shown["status"], shown["state"]) == ("awaiting_ack", "awaiting")
    assert shown["history"] == []
    assert (again["id"], again["status"], again["state"]) == (job.id, "awaiting_ack", "awaiting")


@pytest.mark.parametrize("reason", ["busy", None])
async def test_the_history_has_what_was_answered_before_a_defer_after_the_next_push_too(
    api: Api, clock: Clock, reason: str | None
) -> None:
    job = await parked(api)

    await said(api, job, "defer", {"retryAfter": 30, "reason": reason, "scope": "job"})
    clock.advance(MINUTE)
    again = await api.take()
    exchange = {"fence": again.fence, "status": 200, "duration": 0.5, "excerpt": "now"}
    await api.onefold.deliveries.apark(again, ack_timeout=MINUTE, exchange=json.dumps(exchange))
    await said(api, again, "ack")

    deferred, done = (await api.job(job.id))["history"]
    assert (deferred["status"], deferred["error"]) == ("deferred", reason)
    assert deferred["webhookStatusCode"] == 202
    assert (done["status"], done["webhookStatusCode"]) == ("success", 200)
    first, _ = (await api("GET", f"/v1/jobs/{job.id}/attempts")).json["items"]
    assert (first["error"]["status"], first["error"]["excerpt"]) == (202, "later")
    assert first["error"]["duration"] == 0.25


@pytest.mark.parametrize("word", ["ack", "nack", "defer", "heartbeat"])
@pytest.mark.parametrize("by", ["header", "body"])
async def test_a_stale_fence_is_409_and_changes_nothing(
    api: Api, clock: Clock, word: str, by: str
) -> None:
    first = await delivered(api)
    clock.advance(2 * MINUTE)
    await api.onefold.deliveries.arescue()
    clock.advance(timedelta(hours=2))
    second = await api.take()
    assert (first.fence, second.fence) == (1, 2)
    body: dict[str, Any] = {"retryAfter": 5} if word == "defer" else {}

    if by == "header":
        reply = await said(api, first, word, body, Onefold_Fence="1")
    else:
        reply = await said(api, first, word, {**body, "fence": 1})

    assert reply.problem(409, "lease_lost")["fence"] == 1
    shown = await api.job(first.id)
    assert (shown["state"], shown["fence"], shown["attempts"]) == ("running", 2, 2)


async def test_the_right_fence_is_accepted_in_either_place_and_in_both(api: Api) -> None:
    job = await delivered(api)

    for body, header in (({"fence": 1}, ""), ({}, "1"), ({"fence": 1}, "1")):
        reply = await said(api, job, "heartbeat", body, Onefold_Fence=header)
        assert reply.status == 200, reply.body
    two = await said(api, job, "ack", {"fence": 1}, Onefold_Fence="2")
    assert two.problem(400, "invalid_input")["field"] == "fence"
    assert (await api.job(job.id))["state"] == "running"


@pytest.mark.parametrize("dialect", ["sqlite"])
@pytest.mark.parametrize("fence", ["one", "-1", "0", "1.0", "1, 1", "9" * 19, "9" * 400, "٣"])
async def test_a_fence_that_is_none_is_refused(api: Api, fence: str) -> None:
    job = await delivered(api)
    header = ("onefold-fence", fence.encode().decode("latin-1"))

    reply = await api.send("POST", f"/v1/jobs/{job.id}/ack", [b""], [header])

    assert reply.problem(400, "invalid_input")["field"] == "Onefold-Fence"


async def test_the_key_of_one_delivery_does_not_speak_for_another(api: Api) -> None:
    """Also where the fence stands in the header, beside a body that is the same."""
    job = await delivered(api)

    first = await said(api, job, "heartbeat", Idempotency_Key="a1", Onefold_Fence=str(job.fence))
    other = await said(api, job, "heartbeat", Idempotency_Key="a1", Onefold_Fence="2")

    assert first.status == 200
    other.problem(422, "key_reused")
