"""Responses to senders: a status and one sentence for their logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.model.retry import whole_seconds
from onefold.web.http import HttpResponse
from onefold.web.webhooks.provider import MOST_SIGNATURES

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.web.http import Header


def short_response(status: int, sentence: str = "", *headers: Header) -> HttpResponse:
    """A response with one sentence, for the log of the sender."""
    body = f"{sentence}\n".encode() if sentence else b""
    common: list[Header] = [("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
    if body:
        common.insert(0, ("Content-Type", "text/plain; charset=utf-8"))
    return HttpResponse(status, (*common, *headers), body)


DONE: Final = short_response(200)
REJECTED: Final = short_response(401, "The webhook was not accepted.")
TOO_MANY_SIGNATURES: Final = short_response(
    400, f"The header has more than {MOST_SIGNATURES} signatures."
)
REUSED: Final = short_response(422, "Another event with this id was received before.")
UNKNOWN: Final = short_response(409, "The outcome of this event is unknown. An operator decides.")
FAILED: Final = short_response(500, "The event could not be processed. Send it again later.")
TOO_OLD: Final = short_response(400, "The event is too old.")
UNAVAILABLE: Final = short_response(
    503, "The event could not be processed now. Send it again later.", ("Retry-After", "1")
)
ACCEPTED: Final = short_response(202)
NOT_ALLOWED: Final = short_response(405, "Webhooks are sent by POST.", ("Allow", "POST"))


def echoed(challenge: str) -> HttpResponse:
    """The response to a challenge, byte for byte."""
    body = challenge.encode()
    kind, length = ("Content-Type", "text/plain"), ("Content-Length", str(len(body)))
    return HttpResponse(200, (kind, length), body)


def busy(retry_after: timedelta | float = 1) -> HttpResponse:
    """Never 2xx: if the first delivery dies, this one must be sent again."""
    return short_response(
        409,
        "An earlier delivery of this event is still being processed. Send it again later.",
        ("Retry-After", str(whole_seconds(retry_after))),
    )


def too_large(limit: int) -> HttpResponse:
    """Sent before the whole body is read."""
    return short_response(413, f"The body has more than {limit} bytes.")


def refused(headers: tuple[Header, ...]) -> HttpResponse:
    """The sender must not send the event again."""
    return short_response(410, "The event is rejected. Do not send it again.", *headers)
