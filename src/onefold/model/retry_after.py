"""Retry-After: how long to wait, read from others and written for others."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

LONGEST: Final = timedelta(days=1)
"""Who says a year is asked again tomorrow."""

# ASCII only: `\d` and float() would also take the digits of other scripts.
_SECONDS: Final = re.compile(r"[0-9]{1,400}")
_FRACTION: Final = re.compile(r"[0-9]{1,400}\.[0-9]{1,400}")
# The three spellings of RFC 9110. What else the parser of mail would take is no HTTP-date.
_DATE: Final = re.compile(
    r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [1-9][0-9]{3} [0-9:]{8} GMT"
    r"|[A-Z][a-z]{5,8}, [0-9]{2}-[A-Z][a-z]{2}-[0-9]{2} [0-9:]{8} GMT"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [1-9][0-9]{3}"
)


def whole_seconds(
    wait: timedelta | float, *, least: int = 1, most: timedelta | float = LONGEST
) -> int:
    """A wait as the header has it: whole seconds, rounded up, never negative."""
    seconds, limit = _seconds(wait), _seconds(most)
    if math.isnan(seconds):
        return least
    return max(least, 0, math.ceil(min(seconds, limit)))


def parse_retry_after(
    text: str,
    *,
    now: datetime,
    date: str | None = None,
    longest: timedelta = LONGEST,
    fractions: bool = False,
) -> timedelta | None:
    """The wait that a server asks for; None where it does not say one, so that yours holds.

    `date` is the Date of the same response, if it had one: the server's own idea of now, which a
    date in Retry-After is counted from. `fractions` rounds `1.5` up instead of refusing it.
    """
    text = text.strip(" \t")
    if _SECONDS.fullmatch(text) or (fractions and _FRACTION.fullmatch(text)):
        return min(timedelta(seconds=whole_seconds(float(text), least=0, most=longest)), longest)
    until = _parse_date(text)
    if until is None:
        return None
    since = (None if date is None else _parse_date(date.strip(" \t"))) or now
    return min(max(until - since, timedelta(0)), longest)


def _parse_date(text: str) -> datetime | None:
    if not _DATE.fullmatch(text):
        return None
    try:
        # Who names no zone uses the third spelling; all three are in GMT.
        return parsedate_to_datetime(text).replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError):
        return None


def _seconds(wait: timedelta | float) -> float:
    return wait.total_seconds() if isinstance(wait, timedelta) else wait
