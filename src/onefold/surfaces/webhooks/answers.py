"""What senders are told. None is told why its signature was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.model.retry_after import whole_seconds
from onefold.surfaces.http.answer import Answer

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.surfaces.http.request import Header


def told(status: int, sentence: str = "", *headers: Header) -> Answer:
    """A short answer: it is read by people in the sender's log, if at all."""
    body = f"{sentence}\n".encode() if sentence else b""
    common: list[Header] = [("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
    if body:
        common.insert(0, ("Content-Type", "text/plain; charset=utf-8"))
    return Answer(status, (*common, *headers), body)


DONE: Final = told(200)
REJECTED: Final = told(401, "The webhook was not accepted.")
REUSED: Final = told(422, "An event with this id was received before, and was another one.")
UNKNOWN: Final = told(409, "What became of this event is being looked into.")
FAILED: Final = told(500, "The event could not be processed. Send it again later.")
TOO_OLD: Final = told(400, "The event is older than what is accepted here.")
NOT_ALLOWED: Final = told(405, "Webhooks are sent by POST.", ("Allow", "POST"))


def echoed(challenge: str) -> Answer:
    """What a sender that tries the endpoint wants to hear, to the byte."""
    body = challenge.encode()
    kind, length = ("Content-Type", "text/plain"), ("Content-Length", str(len(body)))
    return Answer(200, (kind, length), body)


def busy(retry_after: timedelta | float = 1) -> Answer:
    """Never a 2xx: if the first delivery dies, this one must come again."""
    return told(
        409,
        "An earlier delivery of this event is still being processed. Send it again later.",
        ("Retry-After", str(whole_seconds(retry_after))),
    )


def unavailable() -> Answer:
    """It cannot be told whether the event was processed before, so it is not processed."""
    return told(
        503,
        "The event could not be processed at the moment. Send it again later.",
        ("Retry-After", "1"),
    )


def too_large(limit: int) -> Answer:
    """Told before the body is read to its end, or digested."""
    return told(413, f"The body has more than {limit} bytes.")


def refused(headers: tuple[Header, ...]) -> Answer:
    """Not wanted, now or ever."""
    return told(410, "The event is not wanted. Do not send it again.", *headers)
