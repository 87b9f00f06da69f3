"""The requests of the reference, sent one after the other, and the responses to them.

`python -m tests.server.examples.walk` writes the responses into the examples of the package.
"""

import asyncio
import json
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from onefold import Onefold
from onefold.operations import workers
from onefold.operations.workers import WorkerRow
from onefold.server.app import ROUTES
from onefold.server.openapi import EXAMPLES
from tests.fixtures.colours import Clock
from tests.fixtures.served import Api

BY_NAME = {route.name: route for route in ROUTES}
WORKER = "019a8f3c-5b2e-7a41-9c3d-2f6e8d1b4a71"
STREAM = (
    "retry: 3000\n: listening\n\nid: 6f2c-1\nevent: job.enqueued\n"
    'data: {"id":"019a8f3c-5b2e-7a41-9c3d-2f6e8d1b4a70","queue":"payments"}\n\n'
)


class Walk:
    """A client that takes down what it receives."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self.api = api
        self.clock = clock
        self.seen: dict[str, Any] = {}
        """By operation: the values of its path, and the first response of each status."""

    async def send(
        self,
        operation: str,
        body: str = "usual",
        query: Mapping[str, Any] | None = None,
        **path: str,
    ) -> Any:
        """Send the example of an operation."""
        route = BY_NAME[operation]
        url = route.path.format(**{name: quote(value, safe="") for name, value in path.items()})
        if query:
            url += f"?{urlencode(query)}"
        given = [] if route.body is None else [EXAMPLES["operations"][operation]["bodies"][body]]
        reply = await self.api(route.method, url, *given)
        assert reply.status in route.answers, (operation, reply.body)
        seen = self.seen.setdefault(operation, {"path": path, "answers": {}})
        if reply.body:
            seen["answers"].setdefault(str(reply.status), reply.json)
        return reply.json if reply.body else None

    async def take(self, job_id: str) -> Any:
        """Lease the job, and whatever else is due."""
        self.clock.advance(timedelta(hours=1))
        taken = await self.api.onefold.deliveries.atake_limited(
            "payments", limit=9, worker="courier", lease=timedelta(hours=9)
        )
        return next(job for job in taken.jobs if job.id == job_id)


async def walk(api: Api, clock: Clock) -> dict[str, Any]:
    """Send every example. The responses, by operation."""
    this = Walk(api, clock)
    send = this.send
    for body in ("usual", "usual", "full"):
        await send("putQueue", body, name="payments")
    job = (await send("publishJob", name="payments"))["id"]
    await send("publishJob", name="payments")
    await send("publishJob", "full", name="payments")
    await send("publishJobs", name="payments")
    await send("publishJobs", name="payments")
    await send("getQueue", name="payments")
    await send("listQueues")
    await send("rotateSecret", name="payments")
    await send("getSecret", name="payments")
    await _schedules(send)
    await _deliveries(this, job)
    await _dead(this)
    await _claims(this)
    await _workers(this)
    for change in ("pauseQueue", "resumeQueue"):
        await send(change, name="payments")
    await send("deleteQueue", query={"force": "true"}, name="payments")
    this.seen["streamEvents"] = {"path": {}, "answers": {"200": STREAM}}
    return this.seen


async def _schedules(send: Any) -> None:
    for _ in range(2):
        await send("putSchedule", name="every-morning")
    await send("putSchedule", "full", name="every-morning")
    await send("listSchedules")
    for operation in ("getSchedule", "pauseSchedule", "resumeSchedule", "deleteSchedule"):
        await send(operation, name="every-morning")


async def _deliveries(this: Walk, job: str) -> None:
    send = this.send
    assert (await this.take(job)).fence == 1
    await send("heartbeatJob", id=job)
    await send("putStep", id=job, name="charge")
    await send("putStep", "finish", id=job, name="charge")
    await send("putStep", "fail", id=job, name="receipt")
    await send("getStep", id=job, name="charge")
    await send("listSteps", id=job)
    await send("deferJob", id=job)
    await this.take(job)
    await send("nackJob", id=job)
    await this.take(job)
    await send("acknowledgeJob", id=job)
    await send("getJob", id=job)
    await send("getAttempts", id=job)
    await send("findJobs", query={"state": "completed"})


async def _dead(this: Walk) -> None:
    send = this.send
    other = (await this.api.publish({"n": 1}))["id"]
    await send("cancelJob", id=other)
    await send("replayJob", id=other)
    await this.take(other)
    await send("nackJob", "final", id=other)
    await send("listDead", name="payments")
    await send("replayDead", name="payments")
    await this.take(other)
    await send("nackJob", "final", id=other)
    await send("deleteDead", name="payments")
    await send("deleteJob", id=(await this.api.publish({"n": 2}))["id"])


async def _claims(this: Walk) -> None:
    send = this.send
    await send("why", query={"key": "order:9482:charge"})
    claim = (await send("claim"))["id"]
    await send("renewClaim", id=claim)
    await send("settleClaim", id=claim)
    await send("claim")
    await send("listKeys")
    place: Any = {"surface": "once", "key": "sha256:9f86d0"}
    await send("getKey", **place)
    await send("releaseKey", **place)
    await send("releaseClaim", id=(await send("claim"))["id"])
    await send("claim")
    await send("settleKey", **place)
    lock = (await send("lock"))["id"]
    await send("renewLock", id=lock)
    await send("releaseLock", id=lock)
    await send("deleteLock", id=(await send("lock"))["id"])


async def _workers(this: Walk) -> None:
    row = WorkerRow(WORKER, "shop-1:4711", "shop-1", 4711, ("payments", "default"), ("charge",), 20)
    await this.api.onefold.context.store.atransact(lambda sql: workers.save(sql, row))
    await this.send("listWorkers")
    await this.send("readStatistics", query={"last": 120})


def record() -> None:
    """Write the responses into the examples."""
    clock = Clock(datetime(2026, 11, 16, 9, 30, tzinfo=UTC))
    with (
        tempfile.TemporaryDirectory() as folder,
        Onefold(f"sqlite:///{folder}/onefold.db", clock=clock) as onefold,
    ):
        onefold.migrate()
        seen = asyncio.run(walk(Api(onefold), clock))
    examples: dict[str, Any] = json.loads(json.dumps(EXAMPLES))
    for name, found in seen.items():
        examples["operations"].setdefault(name, {}).update(found)
    path = Path(str(files("onefold.server").joinpath("examples.json")))
    path.write_text(json.dumps(examples, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    record()
