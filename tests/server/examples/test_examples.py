"""The examples of the OpenAPI document, sent as they stand."""

from datetime import timedelta
from typing import Any

from onefold.server.app import ROUTES
from onefold.server.openapi import EXAMPLES
from tests.fixtures.colours import Clock
from tests.fixtures.served import Api

BY_NAME = {route.name: route for route in ROUTES}


def test_every_route_that_takes_a_body_has_an_example_and_no_other() -> None:
    assert set(EXAMPLES) == {route.name for route in ROUTES if route.body is not None}


async def test_the_examples_are_accepted_one_after_the_other(api: Api, clock: Clock) -> None:
    async def send(operation: str, **path: str) -> Any:
        route = BY_NAME[operation]
        reply = await api(route.method, route.path.format(**path), EXAMPLES[operation])
        assert reply.status in route.answers, (operation, reply.body)
        return reply.json

    await send("putQueue", name="payments")
    job = (await send("publishJob", name="payments"))["id"]
    await send("publishJobs", name="payments")
    await send("rotateSecret", name="payments")
    await send("putSchedule", name="every-morning")

    taken = await _take(api, clock, job)
    assert taken.fence == 1
    await send("heartbeatJob", id=job)
    await send("putStep", id=job, name="charge")
    await send("deferJob", id=job)
    await _take(api, clock, job)
    await send("nackJob", id=job)
    await _take(api, clock, job)
    ended = await send("acknowledgeJob", id=job)
    assert (ended["id"], ended["accepted"], ended["state"]) == (job, True, "completed")

    other = (await api.publish({"n": 1}))["id"]
    await send("cancelJob", id=other)
    await send("replayJob", id=other)
    await send("replayDead", name="payments")

    claim = (await send("claim"))["id"]
    await send("renewClaim", id=claim)
    await send("settleClaim", id=claim)
    await send("releaseKey", surface="once", key="sha256:9f86d0")
    await send("releaseClaim", id=(await send("claim"))["id"])
    await send("claim")
    await send("settleKey", surface="once", key="sha256:9f86d0")
    lock = (await send("lock"))["id"]
    await send("renewLock", id=lock)
    await send("releaseLock", id=lock)


async def _take(api: Api, clock: Clock, job_id: str) -> Any:
    """Lease the job, and whatever else is due."""
    clock.advance(timedelta(hours=1))
    taken = await api.onefold.deliveries.atake_limited(
        "payments", limit=9, worker="courier", lease=timedelta(hours=9)
    )
    return next(job for job in taken.jobs if job.id == job_id)
