"""Who runs when, and what is set aside."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from bench.rounds import EXTRA, measure
from tests.bench.laps import lap, measurement

if TYPE_CHECKING:
    from bench.values import Contestant, Lap, Run

QUIET = 0.0
STORM = 0.5


def measured(rounds: int, steal: dict[str, list[float]]) -> list[Run]:
    """The runs of a measurement in which contestants meet these shares of steal, in turn."""
    met: dict[str, list[float]] = defaultdict(list)

    def play(contestant: Contestant) -> Lap:
        turns = steal.get(contestant.name, [])
        turn = len(met[contestant.name])
        met[contestant.name].append(turns[turn] if turn < len(turns) else QUIET)
        return lap(1000, steal=met[contestant.name][-1])

    return list(measure(measurement(), rounds, play))


def test_contestants_alternate() -> None:
    runs = measured(2, {})

    assert [run.contestant for run in runs] == ["onefold", "raw", "peer"] * 2
    assert [run.turn for run in runs] == [0, 0, 0, 1, 1, 1]


def test_a_run_that_was_stolen_from_is_set_aside_and_repeated_in_an_extra_round() -> None:
    runs = measured(3, {"raw": [QUIET, STORM]})

    assert [run.contestant for run in runs[9:]] == ["raw"]
    assert [run.turn for run in runs if run.set_aside] == [1]
    assert len([run for run in runs if run.contestant == "raw" and not run.set_aside]) == 3


def test_nobody_runs_more_than_the_extra_rounds_and_every_run_is_kept() -> None:
    runs = measured(3, {"raw": [STORM] * 99})

    assert len([run for run in runs if run.contestant == "raw"]) == 3 + EXTRA
    assert len([run for run in runs if run.set_aside]) == 3 + EXTRA
    assert len(runs) == 9 + EXTRA
