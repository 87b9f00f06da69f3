"""Time as the database stores it: whole microseconds since the epoch, in UTC.

Both databases compare, add and index this integer in the same way. Users see aware `datetime`s and
`timedelta`s; only this module converts them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec

from onefold.errors import InvalidInput

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

Iso: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
"""A moment on the wire: ISO 8601 in UTC, with milliseconds and Z."""

Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with a zone: on the wire ISO 8601, in UTC."""

if TYPE_CHECKING:
    Duration: TypeAlias = timedelta
else:

    class Duration(timedelta):
        """A timedelta that `model.wire` reads and writes as a number of seconds.

        msgspec itself writes a timedelta as ISO 8601. Type checkers see a plain timedelta.
        """

        __slots__ = ()

        def __repr__(self) -> str:
            # As users write it.
            return super().__repr__().replace("Duration", "datetime.timedelta", 1)


def as_duration(length: timedelta) -> Duration:
    """The same length as a value for the wire."""
    return Duration(length.days, length.seconds, length.microseconds)


def duration_field(**length: float) -> Any:
    """A field of a struct with this default: msgspec puts no plain default into a JSON Schema."""
    return msgspec.field(default_factory=lambda: as_duration(timedelta(**length)))


def set_durations(value: msgspec.Struct, *fields: str) -> None:
    """Make a `Duration` of each timedelta in these fields of a new struct."""
    for field in fields:
        given = getattr(value, field)
        if type(given) is timedelta:
            msgspec.structs.force_setattr(value, field, as_duration(given))


# The range of a datetime in UTC.
EARLIEST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
LATEST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND

# Far enough for any schedule, and small enough that adding two of them still fits 64 bits.
LONGEST = timedelta(days=365 * 200)


def to_micros(moment: datetime, field: str) -> int:
    """Microseconds since the epoch; a naive datetime is rejected, since its zone is unknown."""
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(field, f"needs a datetime, got {moment!r}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidInput(field, f"needs a time zone, got the naive datetime {moment!r}")
    micros = (moment - EPOCH) // MICROSECOND
    if not EARLIEST <= micros <= LATEST:
        raise InvalidInput(field, f"must be in the years 1 to 9999 of UTC, got {moment!r}")
    return micros


def from_micros(micros: int) -> datetime:
    """The moment as an aware datetime in UTC, limited to the range of that type."""
    try:
        return EPOCH + micros * MICROSECOND
    except OverflowError:
        return EPOCH + timedelta(microseconds=EARLIEST if micros < 0 else LATEST)


def seconds(length: timedelta) -> str:
    """A duration in a message: `0.1 s`, `90 s`."""
    return f"{length.total_seconds():.10g} s"


def span(duration: object, field: str, *, least: timedelta = timedelta(0)) -> int:
    """A duration in microseconds; negative, endless or non-timedelta ones are rejected."""
    if not isinstance(duration, timedelta):
        raise InvalidInput(field, f"needs a timedelta, got {duration!r}")
    if duration < least:
        bound = "negative" if not least else f"shorter than {seconds(least)}"
        raise InvalidInput(field, f"must not be {bound}, got {seconds(duration)}")
    if duration > LONGEST:
        raise InvalidInput(
            field, f"must not be longer than {LONGEST.days} days, got {seconds(duration)}"
        )
    return duration // MICROSECOND
