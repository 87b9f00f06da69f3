"""Durations on the wire: seconds, as a number."""

from __future__ import annotations

from datetime import timedelta

from onefold.errors import InvalidInput
from onefold.model.moment import span


def duration(seconds: float, field: str, *, least: timedelta = timedelta(0)) -> timedelta:
    """So many seconds; refused by the name of the field where they are none."""
    try:
        length = timedelta(seconds=seconds)
    except (OverflowError, ValueError) as error:
        raise InvalidInput(field, f"must be a number of seconds, got {seconds!r}") from error
    span(length, field, least=least)
    return length


def optional_duration(seconds: float | None, field: str) -> timedelta | None:
    """The same, where it may be left out."""
    return None if seconds is None else duration(seconds, field)
