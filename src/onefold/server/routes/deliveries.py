"""Callbacks of a receiver about its delivery: ack, nack, defer, heartbeat.

A fence names the delivery; without a fence it is the current delivery. Every callback may be sent
again: it is applied once, and the response is the same.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from onefold.model.timestamps import Duration
from onefold.model.wire import Body, Fence
from onefold.server.problems import JOB_NOT_FOUND
from onefold.server.routing import Calls, GivenFence, JobId, RouteTable
from onefold.server.simpleq import SimpleqEnded, simpleq_ended
from onefold.web.problems import LEASE_LOST

ROUTES: Final = RouteTable("deliveries")


class AckBody(Body):
    """The work is done."""

    result: Any = None
    """Stored with the job."""
    fence: Fence | None = None
    """The number of the delivery; also in the header Onefold-Fence."""


class NackBody(Body):
    """The work has failed."""

    retryable: bool = True
    """False moves the job to the dead letters at once."""
    reason: str | None = None
    """What went wrong, for people."""
    fence: Fence | None = None
    """The number of the delivery; also in the header Onefold-Fence."""


class DeferBody(Body):
    """Not now: no attempt is used."""

    retry_after: Duration
    """How long to wait before the next delivery."""
    reason: str | None = None
    """Why not now, for people."""
    scope: Literal["queue", "job"] = "queue"
    """`queue` holds the whole queue, and then gives one job to try."""
    fence: Fence | None = None
    """The number of the delivery; also in the header Onefold-Fence."""


class HeartbeatBody(Body):
    """The work goes on."""

    lease: Duration | None = None
    """From now; by default the ack timeout of the queue."""
    fence: Fence | None = None
    """The number of the delivery; also in the header Onefold-Fence."""


@ROUTES.add("POST", "/v1/jobs/{id}/ack", scope="work", problems=(JOB_NOT_FOUND, LEASE_LOST))
async def acknowledge_job(
    calls: Calls, job_id: JobId, fence: GivenFence, body: AckBody
) -> SimpleqEnded:
    """Acknowledge a delivery: the work is done.

    The fence of the delivery is in the body or in the header Onefold-Fence; without a fence, it is
    the current delivery. 409: the job has another delivery by now.
    """
    ended = await calls.deliveries.aacknowledge(job_id, fence=fence, result=body.result)
    return simpleq_ended(ended)


@ROUTES.add("POST", "/v1/jobs/{id}/nack", scope="work", problems=(JOB_NOT_FOUND, LEASE_LOST))
async def nack_job(calls: Calls, job_id: JobId, fence: GivenFence, body: NackBody) -> SimpleqEnded:
    """Report that a delivery has failed.

    The fence is as for ack.
    """
    ended = await calls.deliveries.anack(
        job_id, retryable=body.retryable, reason=body.reason, fence=fence
    )
    return simpleq_ended(ended)


@ROUTES.add("POST", "/v1/jobs/{id}/defer", scope="work", problems=(JOB_NOT_FOUND, LEASE_LOST))
async def defer_job(
    calls: Calls, job_id: JobId, fence: GivenFence, body: DeferBody
) -> SimpleqEnded:
    """Defer a delivery, without using an attempt.

    The fence is as for ack.
    """
    ended = await calls.deliveries.adefer_job(
        job_id,
        after=body.retry_after,
        reason=body.reason,
        fence=fence,
        hold_queue=body.scope == "queue",
    )
    return simpleq_ended(ended)


@ROUTES.add("POST", "/v1/jobs/{id}/heartbeat", scope="work", problems=(JOB_NOT_FOUND, LEASE_LOST))
async def heartbeat_job(
    calls: Calls, job_id: JobId, fence: GivenFence, body: HeartbeatBody
) -> SimpleqEnded:
    """Extend the lease of a delivery.

    The fence is as for ack.
    """
    ended = await calls.deliveries.aheartbeat_job(job_id, lease=body.lease, fence=fence)
    return simpleq_ended(ended)
