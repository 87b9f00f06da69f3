"""Cron expressions in a time zone: which moments one of them means.

1. cronsim parses the expression and steps through wall-clock times, without a zone.
2. An expression with fixed minutes and hours is a list of appointments: each wall-clock time
   happens once. If the clock jumps over it, it happens right after the jump. If the clock shows it
   twice, the first one counts.
3. An expression whose minute or hour begins with `*` follows the clock: it means every moment at
   which the clock shows such a time. A skipped time does not happen, a repeated one happens twice;
   so an hourly expression continues every hour.

Only this module imports cronsim, and `onefold.model.schedule` imports it only when it is needed.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from onefold.errors import InvalidInput
from onefold.model import checks

if TYPE_CHECKING:
    from datetime import tzinfo

FIELDS: Final = 5
LONGEST: Final = 200
SECOND: Final = timedelta(seconds=1)
DAY: Final = timedelta(days=1)

# The search for the next tick covers fifty years, and a date has four digits.
LAST_YEAR: Final = 9900

NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Cron:
    """An expression in a zone. Not thread-safe: it remembers its position."""

    def __init__(self, expression: str, zone: tzinfo) -> None:
        """Made by `cron_in`, which checks both."""
        self._zone = zone
        self._walls = CronSim(expression, datetime.min)  # noqa: DTZ901 - a wall clock has no zone
        minute, hour, *_ = expression.split()
        self._follows_the_clock = minute.startswith("*") or hour.startswith("*")

    def after(self, moment: datetime) -> datetime | None:
        """The first tick after a moment, in UTC; None if fifty years have none."""
        if moment.year > LAST_YEAR:
            return None
        moment = moment.astimezone(UTC)
        return self._shown(moment) if self._follows_the_clock else self._kept(moment)

    def _kept(self, moment: datetime) -> datetime | None:
        """The first fixed time after a moment."""
        wall = self._next_wall(self._wall(moment))
        while wall is not None:
            # While an hour is repeated, its fixed times are over.
            if (found := self._first_moment_of(wall)) > moment:
                return found
            wall = self._next_wall(wall)
        return None

    def _first_moment_of(self, wall: datetime) -> datetime:
        """When the clock first shows a time, or jumps over it."""
        late = wall.replace(tzinfo=self._zone, fold=0).astimezone(UTC)
        if self._wall(late) == wall:
            return late
        early = wall.replace(tzinfo=self._zone, fold=1).astimezone(UTC)
        return self._change(early, late)

    def _shown(self, moment: datetime) -> datetime | None:
        """The first moment after another at which the clock matches the expression."""
        start = moment.replace(microsecond=0) + SECOND
        while (wall := self._next_wall(self._wall(start) - SECOND)) is not None:
            found = wall.replace(tzinfo=UTC) - self._offset(start)
            end = start + DAY
            changes = self._offset(end) != self._offset(start)
            if changes:
                end = self._change(start, end)
            if found < end:
                return found
            # Without a change of the clock, there is no match before the day of `wall`.
            start = end if changes else max(end, wall.replace(tzinfo=UTC) - DAY)
        return None

    def _change(self, low: datetime, high: datetime) -> datetime:
        """The first moment after `low` at which the offset has changed."""
        before = self._offset(low)
        seconds = range((high - low) // SECOND + 1)
        return low + SECOND * bisect_left(
            seconds, x=True, key=lambda second: self._offset(low + SECOND * second) != before
        )

    def _wall(self, moment: datetime) -> datetime:
        """The wall-clock time."""
        return moment.astimezone(self._zone).replace(tzinfo=None, fold=0)

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self._zone).utcoffset() or timedelta(0)

    def _next_wall(self, wall: datetime) -> datetime | None:
        self._walls.dt = wall.replace(microsecond=0)
        return next(self._walls, None)


def cron_in(expression: object, zone: object) -> Cron:
    """Check an expression and the name of a zone."""
    fields = _fields(expression)
    where = time_zone(zone)
    try:
        return Cron(fields, where)
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        raise InvalidInput(
            "cron", f"is not understood: look at its {field} field, got {expression!r}"
        ) from error


def _fields(expression: object) -> str:
    text = checks.text(expression, "cron", longest=LONGEST)
    fields = NICKNAMES.get(text.strip().lower(), text).split()
    if len(fields) != FIELDS:
        raise InvalidInput(
            "cron",
            "must have five fields (minute, hour, day of month, month, day of week) or be one of"
            f" {', '.join(NICKNAMES)}, got {text!r}",
        )
    return " ".join(fields)


def time_zone(name: object) -> tzinfo:
    """A zone of the IANA database, such as Europe/Berlin."""
    text = checks.text(name, "tz", longest=LONGEST)
    try:
        return UTC if text == "UTC" else ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(
            "tz",
            f"must be the name of a time zone, such as Europe/Berlin, got {text!r}. (A machine"
            " without time zones finds none: pip install tzdata)",
        ) from error
