"""Medians, ratios, targets. Pure."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from bench.values import Measurement, Run, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

ENOUGH: Final = 3
"""Quiet runs, for a median that says something."""


class Figure(msgspec.Struct, frozen=True):
    """What a contestant made, in jobs a second."""

    contestant: str
    median: float
    lowest: float
    highest: float
    runs: int
    set_aside: int
    load: float
    """The highest load average at which one of the runs began."""
    noisy: bool
    """Fewer runs were quiet than are enough; where none was, it is made of those set aside."""


class Verdict(msgspec.Struct, frozen=True):
    """A target and what came of it."""

    measurement: str
    target: Target
    ratio: float
    reached: bool
    noisy: bool
    """One of the two figures is: then `reached` says little."""


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


def figure(contestant: str, runs: Sequence[Run]) -> Figure:
    """The median over quiet runs; over all of them only where none was quiet."""
    mine = [run for run in runs if run.contestant == contestant]
    quiet = [run for run in mine if not run.set_aside]
    rates = [run.lap.rate for run in quiet or mine]
    return Figure(
        contestant,
        median=median(rates),
        lowest=min(rates),
        highest=max(rates),
        runs=len(rates),
        set_aside=len(mine) - len(quiet),
        load=max(run.load for run in quiet or mine),
        noisy=len(quiet) < ENOUGH,
    )


def figures(measurement: Measurement, runs: Sequence[Run]) -> dict[str, Figure]:
    """Every contestant's figure, by name."""
    mine = [run for run in runs if run.measurement == measurement.name]
    return {each.name: figure(each.name, mine) for each in measurement.contestants}


def verdicts(measurement: Measurement, runs: Sequence[Run]) -> list[Verdict]:
    """What came of the measurement's targets."""
    found = figures(measurement, runs)
    return [_judge(measurement, target, found) for target in measurement.targets]


def _judge(measurement: Measurement, target: Target, found: dict[str, Figure]) -> Verdict:
    mine, theirs = found[target.contestant], found[target.against]
    ratio = mine.median / theirs.median
    return Verdict(
        measurement.name,
        target,
        ratio,
        reached=ratio >= target.at_least,
        noisy=mine.noisy or theirs.noisy,
    )
