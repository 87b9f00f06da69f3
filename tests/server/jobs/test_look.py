"""A job as it is shown: SimpleQ's members, ours beside them, and how each delivery ended."""

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from msgspec import to_builtins

from onefold.model.ids import milliseconds_of
from onefold.model.wire import iso, iso_of
from tests.fixtures.colours import Clock
from tests.fixtures.served import Api

SECOND = timedelta(seconds=1)
NOBODY = "0196a000-0000-7000-8000-000000000000"


async def test_a_new_job_is_shown_in_simpleqs_words_too(api: Api) -> None:
    await api.queue()
    said = await api.publish({"orderId": "9482"}, idempotencyKey="order:9482")

    told = await api.job(said["id"])

    expected: dict[str, Any] = {
        "id": said["id"],
        "status": "pending",
        "attempts": 0,
        "idempotencyKey": "order:9482",
        "payload": {"orderId": "9482"},
        "scheduledFor": "2020-01-01T00:00:00.000Z",
        "lastError": None,
        "createdAt": iso_of(milliseconds_of(said["id"])),
        "completedAt": None,
        "runAt": "2020-01-01T00:00:00Z",
        "history": [],
    }
    assert {name: told[name] for name in expected} == expected


async def test_the_history_has_each_delivery_that_ended(api: Api, clock: Clock) -> None:
    await api.queue()
    said = await api.publish()
    engine = api.onefold.deliveries

    first = await api.take()
    clock.advance(SECOND)
    failure = {"type": "PushFailed", "message": "answered 500", "status": 500, "duration": 0.25}
    await engine.aretry([first], after=timedelta(0), error={**failure, "excerpt": "oh no"})
    second = await api.take()
    await engine.adefer([second], after=timedelta(0))
    third = await api.take()
    running = await api.job(said["id"])
    clock.advance(SECOND)
    await engine.afinish([third], results={said["id"]: {"receipt": 7}})
    job = await api.job(said["id"])

    assert (running["status"], running["state"]) == ("processing", "running")
    assert running["attempts"] == 2
    assert len(running["history"]) == 2
    assert running["leaseUntil"] == to_builtins(clock.now + timedelta(seconds=59))
    assert (job["status"], job["attempts"], job["fence"]) == ("completed", 2, 3)
    assert (job["completedAt"], job["endedAt"]) == (iso(clock.now), to_builtins(clock.now))
    assert job["result"] == {"receipt": 7}
    assert job["leaseUntil"] is None
    assert [
        (entry["attempt"], entry["status"], entry["error"], entry["webhookStatusCode"])
        for entry in job["history"]
    ] == [
        (1, "failed", "answered 500", 500),
        (2, "deferred", None, None),
        (2, "success", None, None),
    ]
    assert job["history"][2]["timestamp"] == iso(clock.now)


async def test_a_push_that_finished_its_job_is_not_its_result(api: Api) -> None:
    await api.queue()
    said = await api.publish()
    exchange = {"fence": 1, "status": 204, "duration": 0.5, "excerpt": "thanks"}
    await api.onefold.deliveries.afinish(
        [await api.take()], results={said["id"]: {"pushed": exchange}}
    )

    job = await api.job(said["id"])

    assert "result" not in job
    assert job["pushed"] == exchange
    (entry,) = job["history"]
    assert (entry["status"], entry["webhookStatusCode"]) == ("success", 204)
    looks_alike: list[Any] = [{"pushed": 1}, {"pushed": {"fence": 9}}, {"pushed": {}, "a": 1}]
    for result in looks_alike:
        said = await api.publish()
        await api.onefold.deliveries.afinish([await api.take()], results={said["id"]: result})
        job = await api.job(said["id"])
        assert job["result"] == result
        assert job["history"][0]["webhookStatusCode"] is None


@pytest.mark.parametrize("dialect", ["sqlite"])
@pytest.mark.parametrize("job_id", ["nonsense", NOBODY, "%00", "..", "a" * 5000, quote("é")])
@pytest.mark.parametrize(
    ("method", "after"),
    [
        ("GET", ""),
        ("GET", "/attempts"),
        ("DELETE", ""),
        ("POST", "/cancel"),
        ("POST", "/ack"),
        ("POST", "/nack"),
        ("POST", "/replay"),
    ],
)
async def test_what_names_no_job_is_404(api: Api, method: str, after: str, job_id: str) -> None:
    reply = await api(method, f"/v1/jobs/{job_id}{after}")

    reply.problem(404, "job_not_found")


async def test_jobs_are_found_by_filter_a_page_at_a_time(api: Api) -> None:
    await api.queue("payments")
    await api.queue("refunds")
    numbers: dict[str, int] = {}
    for n in range(5):
        said = await api.publish({"n": n}, queue="payments", tags=["odd" if n % 2 else "even"])
        numbers[said["id"]] = n
    said = await api.publish({"n": 5}, queue="refunds", kind="refund", uniqueKey="u")
    # Ids of one millisecond sort by the hashes of their keys.
    every = [({**numbers, said["id"]: 5})[job_id] for job_id in sorted([*numbers, said["id"]])]
    odd = [number for number in every if number in {1, 3}]

    async def found(query: str) -> list[int]:
        reply = await api("GET", f"/v1/jobs{query}")
        assert reply.status == 200, reply.body
        return [item["payload"]["n"] for item in reply.json["items"]]

    assert await found("") == every
    assert await found("?newestFirst=true&limit=2") == every[:-3:-1]
    assert await found("?queue=refunds") == [5]
    assert await found("?queue=nobody") == []
    assert await found("?kind=refund") == [5]
    assert await found("?uniqueKey=u") == [5]
    assert await found("?tag=odd") == odd
    assert await found("?text=3&tag=odd") == [3]
    refund = said["id"]
    assert await found(f"?id={refund}") == await found(f"?id={refund[:8]}&kind=refund") == [5]
    assert await found("?state=ready") == every
    assert await found("?state=dead&state=completed") == []
    assert await found("?createdFrom=2020-01-01T00:00:00Z") == every
    assert await found("?createdBefore=2020-01-01T00:00:00Z") == []


async def test_a_job_that_waits_says_why_with_the_name_of_its_queue_as_its_tenant_knows_it(
    api: Api,
) -> None:
    await api.queue()
    job = await api.publish(1)
    waits = (await api("GET", f"/v1/jobs/{job['id']}")).json["waiting"]
    await api("POST", f"/v1/jobs/{job['id']}/cancel", {})

    assert (waits["code"], waits["facts"]["queue"]) == ("no_worker", "payments")
    assert waits["facts"]["workers"] == 0
    assert waits["text"].startswith("No live worker serves the queue payments.")
    assert (await api("GET", f"/v1/jobs/{job['id']}")).json["waiting"] is None
