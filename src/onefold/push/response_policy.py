"""What an answer means for the job, and what it says of the endpoint. Pure.

What went wrong with an exchange, in words for whoever owns the endpoint.

They do not tell what only we should know, such as the addresses that a name has in this network.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from onefold.errors import Needs
from onefold.model.failure import printable
from onefold.model.outcome import PRESSED, UNTOLD
from onefold.model.retry import parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onefold.model.queue import Mode


GONE: Final = 410
SOONEST: Final = timedelta(seconds=1)
"""Who says "at once" beside a 429 is not believed: it costs no attempt, and might never end."""
EXCERPT_BYTES: Final = 1_024

# What a terminal would obey rather than show.
_UNSEEN: Final = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


class PushAnswered(msgspec.Struct, frozen=True):
    """The endpoint has answered."""

    status: int
    headers: tuple[tuple[str, str], ...]
    excerpt: str
    duration: float
    """Seconds from the first byte that was sent to the end of the answer's headers."""


class Unanswered(msgspec.Struct, frozen=True):
    """It has not, and why."""

    why: str
    duration: float


PushExchange: TypeAlias = PushAnswered | Unanswered


class PushFinish(msgspec.Struct, frozen=True):
    """The job is done."""


class PushPark(msgspec.Struct, frozen=True):
    """The receiver has it, and will say how it went."""


class PushDefer(msgspec.Struct, frozen=True):
    """Not now. Neither this job nor any other of the queue, and no attempt is burned."""

    after: timedelta


class PushGone(msgspec.Struct, frozen=True):
    """Nothing is wanted there any more: the queue is paused, and no attempt is burned."""


class PushFail(msgspec.Struct, frozen=True):
    """The attempt has failed."""

    is_down: bool
    """Whether it is the endpoint that failed, rather than this job at it."""


Meaning: TypeAlias = PushFinish | PushPark | PushDefer | PushGone | PushFail


def meaning_of(exchange: PushExchange, *, mode: Mode, now: datetime) -> Meaning:
    """What is to be done about an exchange. A redirect is not followed: it is a failure."""
    if isinstance(exchange, Unanswered):
        return PushFail(is_down=True)
    status = exchange.status
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's own
        return PushPark() if mode == "ack" else PushFinish()
    if status in PRESSED:
        return PushDefer(_wait(exchange.headers, now))
    if status == GONE:
        return PushGone()
    return PushFail(is_down=status >= 500)  # noqa: PLR2004 - HTTP's own


def _wait(headers: tuple[tuple[str, str], ...], now: datetime) -> timedelta:
    said = {name.lower(): text for name, text in reversed(headers)}
    asked = said.get("retry-after")
    if asked is None:
        return UNTOLD
    wait = parse_retry_after(asked, now=now, date=said.get("date"), fractions=True)
    return UNTOLD if wait is None else max(wait, SOONEST)


def excerpt_of(start: bytes) -> str:
    """The beginning of an answer's body as text that can be stored and shown."""
    text = start[:EXCERPT_BYTES].decode("utf-8", "replace")
    return printable(text.translate(_UNSEEN), EXCERPT_BYTES)


def noted(exchange: PushExchange, fence: int) -> dict[str, Any]:
    """An exchange that went well, as the job tells of it."""
    return {"fence": fence, **_facts(exchange)}


def failure(exchange: PushExchange, meaning: Meaning) -> Mapping[str, Any]:
    """The same of one that did not: an error as attempts have them."""
    failed = isinstance(meaning, PushFail)
    return {
        "type": "PushFailed" if failed else "PushDeferred",
        "message": sentence(exchange, meaning),
        **_facts(exchange),
    }


def sentence(exchange: PushExchange, meaning: Meaning) -> str:
    """What happened, in a few words."""
    if isinstance(exchange, Unanswered):
        return exchange.why
    said = f"answered {exchange.status}"
    if isinstance(meaning, PushDefer):
        return f"{said}: left alone for {meaning.after.total_seconds():g} s"
    if isinstance(meaning, PushGone):
        return f"{said}: the queue is paused"
    if 300 <= exchange.status < 400:  # noqa: PLR2004 - HTTP's own
        return f"{said}, and redirects are not followed"
    return said


def _facts(exchange: PushExchange) -> dict[str, Any]:
    duration = round(exchange.duration, 6)
    if isinstance(exchange, Unanswered):
        return {"duration": duration}
    return {"status": exchange.status, "duration": duration, "excerpt": exchange.excerpt}


with Needs("onefold[server]"):
    import aiohttp


def told(error: Exception) -> str:
    """The sentence for an error of the exchange."""
    for kind, sentence in _SENTENCES:
        if isinstance(error, kind):
            return sentence(error)
    return f"the exchange failed: {type(error).__name__}"


def _no_address(error: Any) -> str:
    return f"could not connect: the name {error.host} has no address"


def _certificate(error: Any) -> str:
    reason = getattr(error.certificate_error, "verify_message", None)
    return f"could not connect: its certificate is not valid ({reason or 'not verified'})"


def _tls(error: Any) -> str:
    reason = getattr(error.os_error, "reason", None)
    return f"could not connect: TLS failed ({reason or type(error.os_error).__name__})"


def _not_connected(error: Any) -> str:
    # Of several addresses that were tried, the sentence has them all.
    reason = error.os_error.strerror if error.os_error.errno else None
    plain = reason if reason and "(" not in reason else "nobody answers there"
    return f"could not connect: {plain}"


def _broken_off(error: Any) -> str:
    return f"broke the connection off: {error.strerror or type(error).__name__}"


_SENTENCES: Final[tuple[tuple[type[Exception], Callable[[Any], str]], ...]] = (
    (aiohttp.ClientConnectorDNSError, _no_address),
    (aiohttp.ClientConnectorCertificateError, _certificate),
    (aiohttp.ClientConnectorSSLError, _tls),
    (aiohttp.ClientConnectorError, _not_connected),
    (aiohttp.ServerDisconnectedError, lambda _: "closed the connection without an answer"),
    (OSError, _broken_off),
    (
        aiohttp.ClientResponseError,
        lambda _: "answered with what is not HTTP, or has too long a head",
    ),
)
"""The first that fits: some are kinds of others."""
