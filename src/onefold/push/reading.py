"""What an answer means for the job, and what it says of the endpoint. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from onefold.model.failure import printable
from onefold.model.outcome import PRESSED, UNTOLD
from onefold.model.retry_after import parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onefold.model.served_queue import Mode

GONE: Final = 410
SOONEST: Final = timedelta(seconds=1)
"""Who says "at once" beside a 429 is not believed: it costs no attempt, and might never end."""
EXCERPT_BYTES: Final = 1_024

# What a terminal would obey rather than show.
_UNSEEN: Final = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


class Answered(msgspec.Struct, frozen=True):
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


Exchange: TypeAlias = Answered | Unanswered


class Finish(msgspec.Struct, frozen=True):
    """The job is done."""


class Park(msgspec.Struct, frozen=True):
    """The receiver has it, and will say how it went."""


class Defer(msgspec.Struct, frozen=True):
    """Not now. Neither this job nor any other of the queue, and no attempt is burned."""

    after: timedelta


class Gone(msgspec.Struct, frozen=True):
    """Nothing is wanted there any more: the queue is paused, and no attempt is burned."""


class Fail(msgspec.Struct, frozen=True):
    """The attempt has failed."""

    is_down: bool
    """Whether it is the endpoint that failed, rather than this job at it."""


Meaning: TypeAlias = Finish | Park | Defer | Gone | Fail


def meaning_of(exchange: Exchange, *, mode: Mode, now: datetime) -> Meaning:
    """What is to be done about an exchange. A redirect is not followed: it is a failure."""
    if isinstance(exchange, Unanswered):
        return Fail(is_down=True)
    status = exchange.status
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's own
        return Park() if mode == "ack" else Finish()
    if status in PRESSED:
        return Defer(_wait(exchange.headers, now))
    if status == GONE:
        return Gone()
    return Fail(is_down=status >= 500)  # noqa: PLR2004 - HTTP's own


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


def noted(exchange: Exchange, fence: int) -> dict[str, Any]:
    """An exchange that went well, as the job tells of it."""
    return {"fence": fence, **_facts(exchange)}


def failure(exchange: Exchange, meaning: Meaning) -> Mapping[str, Any]:
    """The same of one that did not: an error as attempts have them."""
    failed = isinstance(meaning, Fail)
    return {
        "type": "PushFailed" if failed else "PushDeferred",
        "message": sentence(exchange, meaning),
        **_facts(exchange),
    }


def sentence(exchange: Exchange, meaning: Meaning) -> str:
    """What happened, in a few words."""
    if isinstance(exchange, Unanswered):
        return exchange.why
    said = f"answered {exchange.status}"
    if isinstance(meaning, Defer):
        return f"{said}: left alone for {meaning.after.total_seconds():g} s"
    if isinstance(meaning, Gone):
        return f"{said}: the queue is paused"
    if 300 <= exchange.status < 400:  # noqa: PLR2004 - HTTP's own
        return f"{said}, and redirects are not followed"
    return said


def _facts(exchange: Exchange) -> dict[str, Any]:
    duration = round(exchange.duration, 6)
    if isinstance(exchange, Unanswered):
        return {"duration": duration}
    return {"status": exchange.status, "duration": duration, "excerpt": exchange.excerpt}
