"""`Chart`: bars or lines over time as shapes of an SVG. Pure.

Positions across are percentages and positions down are pixels, so that a chart fills its place and
its texts keep their size. A template draws the shapes.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from onefold.server.dashboard.rendering import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TOP: Final = 10
"""Pixels above the plot, for half of the label of its highest line."""
PLOT: Final = 120
"""Pixels of the plot."""
BOTTOM: Final = 24
"""Pixels below the plot, for times."""
GRID: Final = 3
"""Lines above the base, at most."""
FILLED: Final = 0.72
"""The part of a bucket that its bar fills."""
SHORTEST: Final = 2.0
"""Pixels of a bar that is not zero, at least: a single failure is visible."""
TIME_STEPS: Final = (
    *(digit * 10**power / 1000 for power in range(4) for digit in (1, 2, 5)),
    *(10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400),
)
"""Seconds between two lines."""
GAP: Final = "\N{EN DASH}"
"""A value that is missing."""


class Series(msgspec.Struct, frozen=True):
    """The values of one line, or of one part of the bars."""

    label: str
    colour: str
    """The name of a colour of the style sheet."""
    values: tuple[float | None, ...]
    """One per bucket; None is a gap."""


class AxisLabel(msgspec.Struct, frozen=True):
    """A label of an axis: pixels from the top, or percent from the left."""

    place: float
    label: str
    at: datetime | None = None
    """The time of a label across."""
    anchor: str = "start"


class ChartBar(msgspec.Struct, frozen=True):
    """A part of a bar."""

    x: float
    y: float
    width: float
    height: float
    series: int


class ChartLine(msgspec.Struct, frozen=True):
    """A line with gaps, in a box of 1000 by `PLOT`."""

    series: int
    path: str
    area: str
    """The area below the line."""
    points: tuple[tuple[float, float], ...]
    """Values with a gap on both sides, as percent and pixels."""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart with its figure and its values as a table."""

    name: str
    title: str
    figure: str
    """The total, in large."""
    note: str
    """A sentence about the figure."""
    kind: Literal["bars", "lines"]
    unit: Literal["count", "time"] = "count"
    series: tuple[Series, ...]
    times: tuple[datetime, ...]
    """The beginning of each bucket."""
    labels: int
    """Buckets between two labels of the time axis."""

    top: int = TOP
    base: int = TOP + PLOT
    height: int = TOP + PLOT + BOTTOM

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to draw."""
        return not any(value for one in self.series for value in one.values)

    @property
    def written(self) -> Callable[[float | None], str]:
        """How a value is written."""
        return count_text if self.unit == "count" else time_text

    @property
    def rows(self) -> Iterator[tuple[datetime, list[str]]]:
        """The values by time, for the table."""
        for at, *values in zip(self.times, *(one.values for one in self.series), strict=True):
            yield at, [self.written(value) for value in values]

    @property
    def steps(self) -> list[float]:
        """The values of the lines across, from the base up."""
        totals = [
            sum(parts) if self.kind == "bars" else max(parts)
            for parts in zip(
                *([value or 0 for value in one.values] for one in self.series), strict=True
            )
        ]
        most = max(totals, default=0)
        step = time_step(most) if self.unit == "time" else count_step(most)
        lines = max(1, -int(-most // step))
        return [step * number for number in range(lines + 1)]

    @property
    def ticks(self) -> list[AxisLabel]:
        """The lines across with their labels."""
        return [AxisLabel(self._y(value), self._axis_text(value)) for value in self.steps[1:]]

    @property
    def moments(self) -> list[AxisLabel]:
        """The labels of the time axis; the last one is now."""
        found = [
            AxisLabel(100 * at / len(self.times), "", self.times[at], "middle" if at else "start")
            for at in range(0, len(self.times), self.labels)
        ]
        return [*found, AxisLabel(100, "now", anchor="end")]

    @property
    def bars(self) -> Iterator[ChartBar]:
        """The parts of the bars, the first series at the bottom."""
        wide = 100 / len(self.times)
        for at in range(len(self.times)):
            bottom = float(self.base)
            for number, one in enumerate(self.series):
                value = one.values[at]
                if not value:
                    continue
                height = max(SHORTEST, self.base - self._y(value))
                bottom -= height
                x = wide * (at + (1 - FILLED) / 2)
                yield ChartBar(
                    _rounded(x), _rounded(bottom), _rounded(wide * FILLED), height, number
                )

    @property
    def lines(self) -> Iterator[ChartLine]:
        """The lines, without the values that have no neighbour."""
        for number, one in enumerate(self.series):
            parts = list(_parts(one.values))
            long = [part for part in parts if len(part) > 1]
            path = "".join(f"M{'L'.join(map(self._point, part))}" for part in long)
            area = "".join(
                f"M{self._across(part[0][0])} {PLOT}L{'L'.join(map(self._point, part))}"
                f"L{self._across(part[-1][0])} {PLOT}Z"
                for part in long
            )
            alone = tuple(
                (self._across(part[0][0]) / 10, self._y(part[0][1]))
                for part in parts
                if len(part) == 1
            )
            yield ChartLine(number, path, area, alone)

    def _axis_text(self, value: float) -> str:
        """Short: all labels of an axis have the unit of its step."""
        for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
            if self.unit == "time" and self.steps[1] >= size:
                return f"{value / size:,g} {unit}"
        return self.written(value).replace(".0 ", " ")

    def _y(self, value: float) -> float:
        return _rounded(self.base - PLOT * value / self.steps[-1])

    def _across(self, at: int) -> float:
        return _rounded(1000 * (at + 0.5) / len(self.times))

    def _point(self, place: tuple[int, float]) -> str:
        at, value = place
        return f"{self._across(at)} {_rounded(self._y(value) - TOP)}"


def _parts(values: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    """The values between gaps, with their places."""
    part: list[tuple[int, float]] = []
    for at, value in enumerate((*values, None)):
        if value is not None:
            part.append((at, value))
        elif part:
            yield part
            part = []


def _rounded(value: float) -> float:
    return round(value, 2)


def count_step(most: float) -> float:
    """1, 2 or 5 times a power of ten, so that at most `GRID` lines reach the largest value."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if most <= digit * power * GRID:
                return digit * power
        power *= 10


def time_step(most: float) -> float:
    """A step in seconds that people read easily."""
    days = 86400 * count_step(most / 86400)
    return next((step for step in TIME_STEPS if most <= step * GRID), days)


def count_text(value: float | None) -> str:
    """`1,240`, `12.5k`, `30M`; a gap is a dash."""
    if value is None:
        return GAP
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= 10 * size:
            return f"{value / size:,.1f}".removesuffix(".0") + unit
    return f"{value:,.0f}"


def time_text(value: float | None) -> str:
    """Seconds as a duration; a gap is a dash."""
    return GAP if value is None else duration(timedelta(seconds=value))
