"""What a worker says about a delivery, over HTTP. The fence says which one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onefold.client import wire
from onefold.client.flow import place, post
from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.model.checks import REASON_BYTES
from onefold.model.ids import parse_id
from onefold.model.json_text import encode_payload

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.client.flow import Ask, Flow
    from onefold.client.jobs import Accepted
    from onefold.model.job import Json


class Told(wire.Said, frozen=True, kw_only=True):
    """What the server answers to a callback."""

    accepted: bool = True
    already: bool = False


def acknowledge(ask: Ask, job_id: str, *, fence: int | None, result: Json) -> Flow[Accepted]:
    """The delivery is done."""
    stored = None if result is None else msgspec.Raw(encode_payload(result).encode())
    return (yield from _say(ask, job_id, "ack", fence, {"result": stored}))


def nack(
    ask: Ask, job_id: str, *, retryable: bool, reason: str | None, fence: int | None
) -> Flow[Accepted]:
    """The delivery failed."""
    body = {"retryable": checks.flag(retryable, "retryable"), "reason": _reason(reason)}
    return (yield from _say(ask, job_id, "nack", fence, body))


def defer(
    ask: Ask,
    job_id: str,
    *,
    after: timedelta,
    reason: str | None,
    fence: int | None,
    hold_queue: bool,
) -> Flow[Accepted]:
    """Not now."""
    body = {
        "retry_after": wire.seconds(after, "after"),
        "reason": _reason(reason),
        "scope": "queue" if checks.flag(hold_queue, "hold_queue") else "job",
    }
    return (yield from _say(ask, job_id, "defer", fence, body))


def heartbeat(
    ask: Ask, job_id: str, *, lease: timedelta | None, fence: int | None
) -> Flow[Accepted]:
    """Still at work."""
    body = {"lease": wire.seconds(lease, "lease")}
    return (yield from _say(ask, job_id, "heartbeat", fence, body))


def _say(
    ask: Ask, job_id: str, word: str, fence: int | None, members: dict[str, Any]
) -> Flow[Accepted]:
    if fence is not None and (type(fence) is not int or fence < 0):
        raise InvalidInput("fence", f"must be the number of a delivery, got {fence!r}")
    body = wire.said({**members, "fence": fence})
    reply = yield from ask(post(place("jobs", parse_id(job_id), word), body))
    return "already" if wire.read(reply, Told).already else "accepted"


def _reason(reason: str | None) -> str | None:
    return None if reason is None else checks.text(reason, "reason", longest=REASON_BYTES)
