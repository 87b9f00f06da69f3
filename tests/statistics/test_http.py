"""Statistics and workers over HTTP, and by the client."""

from datetime import timedelta

from onefold.model.ids import new_id
from onefold.operations import workers
from onefold.operations.workers import WorkerRow
from tests.fixtures.colours import Clock
from tests.fixtures.served import Api


async def test_statistics_are_read(api: Api, clock: Clock) -> None:
    await api.queue("payments")
    published = await api.publish()
    clock.advance(timedelta(seconds=3))
    (job,) = await api.onefold.deliveries.atake(
        ["payments"], worker="w", lease=timedelta(minutes=1)
    )
    clock.advance(timedelta(seconds=1.5))
    assert (await api("POST", f"/v1/jobs/{job.id}/ack", {})).status == 200
    assert published["id"] == job.id

    reply = await api("GET", "/v1/statistics?last=600&width=300&queue=payments")

    assert reply.status == 200
    told = reply.json
    assert told["width"] == 300
    assert [one["completed"] for one in told["buckets"]] == [0, 1]
    assert told["buckets"][-1]["at"] == "2019-12-31T23:56:00Z"
    assert (told["total"]["waitedMean"], told["total"]["ranLongest"]) == (3, 1.5)
    assert told["total"]["backlog"] is None
    assert len((await api("GET", "/v1/statistics")).json["buckets"]) == 15
    (await api("GET", "/v1/statistics?width=90")).problem(400, "invalid_input")


async def test_workers_are_listed(api: Api) -> None:
    row = WorkerRow(new_id(), "one", "host", 7, ("default",), ("work",), 5)
    await api.onefold.context.store.atransact(lambda sql: workers.save(sql, row))

    told = (await api("GET", "/v1/workers")).json

    at = "2020-01-01T00:00:00Z"
    shown = {"name": "one", "host": "host", "pid": 7, "queues": ["default"], "kinds": ["work"]}
    assert told == {
        "items": [
            {**shown, "concurrency": 5, "running": 0, "startedAt": at, "seenAt": at, "alive": True}
        ],
        "next": None,
    }
