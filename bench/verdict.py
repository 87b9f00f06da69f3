"""Medians, ratios, targets. Pure."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from bench.values import RATE, Costs, Measurement, Run, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

ENOUGH: Final = 3
"""Quiet runs, for a median that says something."""


class Figure(msgspec.Struct, frozen=True):
    """What a contestant made, by one reading of its laps."""

    contestant: str
    reading: str
    median: float
    lowest: float
    highest: float
    runs: int
    set_aside: int
    load: float
    """The highest load average at which one of the runs began."""
    noisy: bool
    """Fewer runs were quiet than are enough; where none was, it is made of those set aside."""
    costs: Costs
    """The median of each."""


class Verdict(msgspec.Struct, frozen=True):
    """A target and what came of it."""

    measurement: str
    target: Target
    value: float
    """The ratio of medians, or the median by itself, as the target wants."""
    reached: bool
    noisy: bool
    """One of its figures is: then `reached` says little."""


def complete(
    measurements: Sequence[Measurement], rounds: int, runs: Sequence[Run]
) -> list[Measurement]:
    """Those that were not interrupted: every contestant has run in every round."""
    ran = Counter((run.measurement, run.contestant) for run in runs)
    return [
        each
        for each in measurements
        if all(ran[each.name, contestant.name] >= rounds for contestant in each.contestants)
    ]


def figure(contestant: str, runs: Sequence[Run], reading: str = RATE) -> Figure:
    """The median over quiet runs; over all of them only where none was quiet."""
    mine = [run for run in runs if run.contestant == contestant]
    quiet = [run for run in mine if not run.set_aside]
    values = [run.lap.read(reading) for run in quiet or mine]
    return Figure(
        contestant,
        reading,
        median=median(values),
        lowest=min(values),
        highest=max(values),
        runs=len(values),
        set_aside=len(mine) - len(quiet),
        load=max(run.load for run in quiet or mine),
        noisy=len(quiet) < ENOUGH,
        costs=_median_costs([run.lap.costs for run in quiet or mine]),
    )


def _median_costs(found: Sequence[Costs]) -> Costs:
    columns = zip(*map(msgspec.structs.astuple, found), strict=True)
    return Costs(*(None if None in column else median(column) for column in columns))


def figures(measurement: Measurement, runs: Sequence[Run]) -> list[Figure]:
    """Every contestant's figures, reading by reading."""
    mine = [run for run in runs if run.measurement == measurement.name]
    return [
        figure(each.name, mine, reading)
        for reading in measurement.readings
        for each in measurement.contestants
    ]


def verdicts(measurement: Measurement, runs: Sequence[Run]) -> list[Verdict]:
    """What came of the measurement's targets."""
    mine = [run for run in runs if run.measurement == measurement.name]
    return [_judge(measurement, target, mine) for target in measurement.targets]


def _judge(measurement: Measurement, target: Target, runs: Sequence[Run]) -> Verdict:
    names = [target.contestant] if target.against is None else [target.contestant, target.against]
    found = [figure(name, runs, target.reading) for name in names]
    value = found[0].median if target.against is None else found[0].median / found[1].median
    return Verdict(
        measurement.name,
        target,
        value,
        reached=target.is_reached_by(value),
        noisy=any(each.noisy for each in found),
    )
