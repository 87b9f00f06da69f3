"""What a response means for the job and for its endpoint, and the errors that are stored. Pure.

The text of an error is for the owner of the endpoint. It does not contain addresses of our network.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from onefold.errors import Needs
from onefold.model.failure import printable
from onefold.model.outcome import DEFAULT_RETRY_AFTER, OVERLOADED_STATUSES
from onefold.model.retry import parse_retry_after

with Needs("onefold[server]"):
    import aiohttp
    from aiohttp.http import HttpProcessingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onefold.model.queue import Mode


GONE: Final = 410
SHORTEST_DEFER: Final = timedelta(seconds=1)
"""A deferral costs no attempt: with `Retry-After: 0` it would be repeated without end."""
EXCERPT_BYTES: Final = 1_024

# Control characters: a terminal would execute them.
_CONTROLS: Final = {
    code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"
}


class PushResponse(msgspec.Struct, frozen=True):
    """The response of an endpoint."""

    status: int
    headers: tuple[tuple[str, str], ...]
    excerpt: str
    duration: float
    """Seconds from the first byte of the request to the end of the response's headers."""


class NoResponse(msgspec.Struct, frozen=True):
    """A request without a response, and the reason."""

    why: str
    duration: float


PushExchange: TypeAlias = PushResponse | NoResponse


class PushOutcome(msgspec.Struct, frozen=True):
    """What becomes of the job.

    `await_ack`: the receiver has the job and acknowledges it later. `defer`: the whole queue waits,
    and no attempt is charged. `pause`: the endpoint is gone, and the queue is paused.
    """

    action: Literal["finish", "await_ack", "defer", "pause", "fail"]
    after: timedelta = DEFAULT_RETRY_AFTER
    """How long a deferred job waits."""
    endpoint_failed: bool = False
    """True for a failure of the endpoint, False for a failure of this job."""


def outcome_of(exchange: PushExchange, *, mode: Mode, now: datetime) -> PushOutcome:
    """What an exchange means. A redirect is a failure: it is not followed."""
    if isinstance(exchange, NoResponse):
        return PushOutcome("fail", endpoint_failed=True)
    status = exchange.status
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's own
        return PushOutcome("await_ack" if mode == "ack" else "finish")
    if status in OVERLOADED_STATUSES:
        return PushOutcome("defer", _retry_after(exchange.headers, now))
    if status == GONE:
        return PushOutcome("pause")
    return PushOutcome("fail", endpoint_failed=status >= 500)  # noqa: PLR2004 - HTTP's own


def _retry_after(headers: tuple[tuple[str, str], ...], now: datetime) -> timedelta:
    first = {name.lower(): text for name, text in reversed(headers)}
    text = first.get("retry-after")
    if text is None:
        return DEFAULT_RETRY_AFTER
    wait = parse_retry_after(text, now=now, date=first.get("date"), fractions=True)
    return DEFAULT_RETRY_AFTER if wait is None else max(wait, SHORTEST_DEFER)


def excerpt_of(start: bytes) -> str:
    """The beginning of a response's body as text that can be stored and printed."""
    text = start[:EXCERPT_BYTES].decode("utf-8", "replace")
    return printable(text.translate(_CONTROLS), EXCERPT_BYTES)


def exchange_record(exchange: PushExchange, fence: int) -> dict[str, Any]:
    """A successful exchange as it is stored with the job."""
    return {"fence": fence, **_fields(exchange)}


def exchange_error(exchange: PushExchange, outcome: PushOutcome) -> Mapping[str, Any]:
    """Any other exchange, in the form of an attempt's error."""
    return {
        "type": "PushFailed" if outcome.action == "fail" else "PushDeferred",
        "message": _message(exchange, outcome),
        **_fields(exchange),
    }


def _message(exchange: PushExchange, outcome: PushOutcome) -> str:
    if isinstance(exchange, NoResponse):
        return exchange.why
    answered = f"answered {exchange.status}"
    if outcome.action == "defer":
        return f"{answered}: no pushes for {outcome.after.total_seconds():g} s"
    if outcome.action == "pause":
        return f"{answered}: the queue is paused"
    if 300 <= exchange.status < 400:  # noqa: PLR2004 - HTTP's own
        return f"{answered}, and redirects are not followed"
    return answered


def _fields(exchange: PushExchange) -> dict[str, Any]:
    duration = round(exchange.duration, 6)
    if isinstance(exchange, NoResponse):
        return {"duration": duration}
    return {"status": exchange.status, "duration": duration, "excerpt": exchange.excerpt}


def connection_error(error: Exception) -> str:  # noqa: PLR0911 - a case per class
    """The text for an error without a response. Some of the classes are subclasses of others."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"could not connect: the name {error.host} has no address"
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, "verify_message", None) or "not verified"
            return f"could not connect: its certificate is not valid ({reason})"
        case aiohttp.ClientSSLError():
            reason = getattr(error.os_error, "reason", None) or type(error.os_error).__name__
            return f"could not connect: TLS failed ({reason})"
        case aiohttp.ClientConnectorError():
            # After several addresses were tried, the reason contains all of them.
            reason = error.os_error.strerror if error.os_error.errno else None
            plain = reason if reason and "(" not in reason else "none of its addresses answers"
            return f"could not connect: {plain}"
        case aiohttp.ServerDisconnectedError():
            return "closed the connection without an answer"
        case OSError():
            return f"closed the connection: {error.strerror or type(error).__name__}"
        case HttpProcessingError():
            return "the response is not HTTP, or its headers are too long"
        case _:
            return f"the exchange failed: {type(error).__name__}"
