"""What people write, on a command line or in a file: durations and moments."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from onefold import InvalidInput

UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_DURATION: Final = re.compile(r"(?P<count>[0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(?P<unit>ms|s|m|h|d)?")


def duration(text: str, field: str) -> timedelta:
    """30s, 5m, 1.5h, 250ms, 7d; a number alone is seconds."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(field, f"must be like 30s, 5m or 250ms, or seconds, got {text!r}")
    try:
        return float(found["count"]) * UNITS[found["unit"] or "s"]
    except OverflowError:
        raise InvalidInput(field, f"is longer than anybody could wait, got {text!r}") from None


def moment(text: str, field: str) -> datetime:
    """A day, a day and a time (in UTC unless it says otherwise), or so long ago: 2h."""
    if _DURATION.fullmatch(text.strip()) and not text.strip().isdigit():
        try:
            return datetime.now(UTC) - duration(text, field)
        except OverflowError:
            raise InvalidInput(field, f"is before the year 1, got {text!r}") from None
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(
            field,
            "must be a moment like 2026-03-29 or 2026-03-29T12:00:00+02:00, or how long ago, like"
            f" 2h, got {text!r}",
        ) from None
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)
