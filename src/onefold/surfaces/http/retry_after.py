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
# The longest HTTP-date is "Wednesday, 30-Sep-2026 23:59:59 GMT".
_LONGEST_DATE: Final = 40


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
    """An HTTP-date of any of the three spellings, all of which are in GMT."""
    if len(text) > _LONGEST_DATE or not text[:1].isalpha() or not text.isascii():
        return None
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    if found.tzinfo is None:
        return found.replace(tzinfo=UTC)
    try:
        return found.astimezone(UTC)
    except OverflowError:
        return None


def _seconds(wait: timedelta | float) -> float:
    return wait.total_seconds() if isinstance(wait, timedelta) else wait
