"""Callbacks of a receiver about its delivery: ack, nack, defer, heartbeat.

A fence names the delivery; without a fence it is the current delivery. Every callback may be sent
again: it is applied once, and the response is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from onefold.model.timestamps import Duration
from onefold.model.wire import Body, Fence
from onefold.server.problems import JOB_NOT_FOUND
from onefold.server.request_context import Reply, RouteTable
from onefold.server.routes.jobs import job_id_of
from onefold.server.simpleq import SimpleqEnded, simpleq_ended
from onefold.web.problems import LEASE_LOST

if TYPE_CHECKING:
    from onefold.server.request_context import RequestContext

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


@ROUTES.add(
    "POST",
    "/v1/jobs/{id}/ack",
    scope="work",
    body=AckBody,
    answers={200: SimpleqEnded},
    problems=(JOB_NOT_FOUND, LEASE_LOST),
)
async def acknowledge_job(request: RequestContext) -> Reply:
    """Acknowledge a delivery: the work is done.

    The fence of the delivery is in the body or in the header Onefold-Fence; without a fence, it is
    the current delivery. 409: the job has another delivery by now.
    """
    body: AckBody = request.body
    job_id = job_id_of(request)
    ended = await request.calls.deliveries.aacknowledge(
        job_id, fence=request.fence(body.fence), result=body.result
    )
    return Reply(200, simpleq_ended(ended))


@ROUTES.add(
    "POST",
    "/v1/jobs/{id}/nack",
    scope="work",
    body=NackBody,
    answers={200: SimpleqEnded},
    problems=(JOB_NOT_FOUND, LEASE_LOST),
)
async def nack_job(request: RequestContext) -> Reply:
    """Report that a delivery has failed.

    The fence is as for ack.
    """
    body: NackBody = request.body
    job_id = job_id_of(request)
    ended = await request.calls.deliveries.anack(
        job_id,
        retryable=body.retryable,
        reason=body.reason,
        fence=request.fence(body.fence),
    )
    return Reply(200, simpleq_ended(ended))


@ROUTES.add(
    "POST",
    "/v1/jobs/{id}/defer",
    scope="work",
    body=DeferBody,
    answers={200: SimpleqEnded},
    problems=(JOB_NOT_FOUND, LEASE_LOST),
)
async def defer_job(request: RequestContext) -> Reply:
    """Defer a delivery, without using an attempt.

    The fence is as for ack.
    """
    body: DeferBody = request.body
    job_id = job_id_of(request)
    ended = await request.calls.deliveries.adefer_job(
        job_id,
        after=body.retry_after,
        reason=body.reason,
        fence=request.fence(body.fence),
        hold_queue=body.scope == "queue",
    )
    return Reply(200, simpleq_ended(ended))


@ROUTES.add(
    "POST",
    "/v1/jobs/{id}/heartbeat",
    scope="work",
    body=HeartbeatBody,
    answers={200: SimpleqEnded},
    problems=(JOB_NOT_FOUND, LEASE_LOST),
)
async def heartbeat_job(request: RequestContext) -> Reply:
    """Extend the lease of a delivery.

    The fence is as for ack.
    """
    body: HeartbeatBody = request.body
    job_id = job_id_of(request)
    ended = await request.calls.deliveries.aheartbeat_job(
        job_id, lease=body.lease, fence=request.fence(body.fence)
    )
    return Reply(200, simpleq_ended(ended))
