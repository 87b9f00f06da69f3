"""Callbacks of a receiver about its delivery: ack, nack, defer, heartbeat.

A fence names the delivery; without a fence it is the current delivery. Every callback may be sent
again: it is applied once, and the response is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from onefold.errors import ConflictingOptions
from onefold.model.wire import (
    Answer,
    BadBody,
    Body,
    Fence,
    Seconds,
    Yes,
    duration,
    optional_duration,
)
from onefold.server.request_context import FENCE, Reply, Route
from onefold.server.routes.jobs import job_id_of

if TYPE_CHECKING:
    from onefold.model.delivery import Ended
    from onefold.server.request_context import RequestContext

_DIGITS: Final = 19
"""The largest integer of the database."""
_LARGEST: Final = 2**63 - 1


class AckBody(Body):
    """The work is done."""

    result: Any = None
    """Stored with the job."""
    fence: Fence | None = None


class NackBody(Body):
    """The work has failed."""

    retryable: bool = True
    """False moves the job to the dead letters at once."""
    reason: str | None = None
    fence: Fence | None = None


class DeferBody(Body):
    """Not now: no attempt is used."""

    retry_after: Seconds
    reason: str | None = None
    scope: Literal["queue", "job"] = "queue"
    """`queue` holds the whole queue, and then gives one job to try."""
    fence: Fence | None = None


class HeartbeatBody(Body):
    """The work goes on."""

    lease: Seconds | None = None
    """From now; by default the ack timeout of the queue."""
    fence: Fence | None = None


class Accepted(Answer, omit_defaults=True):
    """The callback was accepted."""

    id: str
    accepted: Yes
    already: bool = False
    """True if this delivery had ended in this way before."""


async def acknowledge(asking: RequestContext) -> Reply:
    """Acknowledge the delivery: the work is done."""
    body: AckBody = asking.body
    job_id = job_id_of(asking)
    ended = await asking.calls.deliveries.aacknowledge(
        job_id, fence=fence_of(asking, body.fence), result=body.result
    )
    return _accepted(job_id, ended)


async def nack(asking: RequestContext) -> Reply:
    """Report that the delivery has failed."""
    body: NackBody = asking.body
    job_id = job_id_of(asking)
    ended = await asking.calls.deliveries.anack(
        job_id,
        retryable=body.retryable,
        reason=body.reason,
        fence=fence_of(asking, body.fence),
    )
    return _accepted(job_id, ended)


async def defer(asking: RequestContext) -> Reply:
    """Defer the delivery."""
    body: DeferBody = asking.body
    job_id = job_id_of(asking)
    ended = await asking.calls.deliveries.adefer_job(
        job_id,
        after=duration(body.retry_after, "retry_after"),
        reason=body.reason,
        fence=fence_of(asking, body.fence),
        hold_queue=body.scope == "queue",
    )
    return _accepted(job_id, ended)


async def heartbeat(asking: RequestContext) -> Reply:
    """Extend the lease of the delivery."""
    body: HeartbeatBody = asking.body
    job_id = job_id_of(asking)
    ended = await asking.calls.deliveries.aheartbeat_job(
        job_id,
        lease=optional_duration(body.lease, "lease"),
        fence=fence_of(asking, body.fence),
    )
    return _accepted(job_id, ended)


def fence_of(asking: RequestContext, said: int | None) -> int | None:
    """The fence of the body or of the header; two different fences are an error."""
    given = asking.headers.get(FENCE)
    if given is None:
        return said
    if not (given.isascii() and given.isdecimal() and len(given) <= _DIGITS):
        raise BadBody("Onefold-Fence", f"must be a whole number, got {given[:50]!r}", of="header")
    number = int(given)
    if not 1 <= number <= _LARGEST:
        raise BadBody("Onefold-Fence", f"must be from 1 to {_LARGEST}, got {number}", of="header")
    if said is not None and said != number:
        raise ConflictingOptions(
            "fence", "is another than the header Onefold-Fence: send one, or the same"
        )
    return number


def _accepted(job_id: str, ended: Ended) -> Reply:
    return Reply(200, Accepted(id=job_id, accepted=True, already=ended.status == "already"))


def _route(word: str, name: str, summary: str, endpoint: Any, body: type) -> Route:
    return Route(
        method="POST",
        path=f"/v1/jobs/{{id}}/{word}",
        name=name,
        summary=summary,
        description=(
            "The fence of the delivery may stand in the body or in the header Onefold-Fence; one"
            " that is no longer the job's is 409. Without it, the current delivery is meant."
        ),
        scope="work",
        endpoint=endpoint,
        body=body,
        body_optional=body is not DeferBody,
        answers={200: Accepted},
        problems=(404, 409),
    )


ROUTES: Final = (
    _route("ack", "acknowledgeJob", "Acknowledge a delivery", acknowledge, AckBody),
    _route("nack", "nackJob", "Say that a delivery failed", nack, NackBody),
    _route("defer", "deferJob", "Put a delivery off", defer, DeferBody),
    _route("heartbeat", "heartbeatJob", "Ask for more time", heartbeat, HeartbeatBody),
)
