"""A clock that moves only when a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from onefold.errors import InvalidInput
from onefold.model.timestamps import span, to_micros

# Far from the present, so that a test fails if the code reads another clock.
START: Final = datetime(2040, 1, 1, tzinfo=UTC)


class Clock:
    """The time of `Onefold(clock=…)`. It stands still until `advance` moves it."""

    def __init__(self, start: datetime = START) -> None:
        """`start` is the first moment; it needs a time zone."""
        to_micros(start, "start")
        self._now = start

    def __call__(self) -> datetime:
        """The time now."""
        return self._now

    @property
    def now(self) -> datetime:
        """The time now."""
        return self._now

    def advance(self, duration: timedelta) -> datetime:
        """Move on by `duration`; returns the new time. It never goes back."""
        span(duration, "duration")
        self._now += duration
        return self._now

    def set(self, moment: datetime) -> None:
        """Move on to a moment that is not in the past."""
        to_micros(moment, "moment")
        if moment < self._now:
            raise InvalidInput("moment", f"must not be before {self._now}, got {moment}")
        self._now = moment

    def __repr__(self) -> str:
        """The time of the clock."""
        return f"Clock({self._now.isoformat()})"
