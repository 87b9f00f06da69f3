"""From runs to what a reader gets: who runs when, medians, ratios, targets, costs."""

from __future__ import annotations

from collections import defaultdict
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console

from bench.report import ratios_table
from bench.rounds import measure
from bench.values import Contestant, Lap, Measurement, Run, Target
from bench.verdict import ENOUGH, complete

if TYPE_CHECKING:
    from rich.table import Table

ONEFOLD = Contestant("onefold", "ours.bulk")
RAW = Contestant("raw", "raw_postgres.bulk")
PEER = Contestant("peer", "pgqueuer_peer.bulk")


def measurement(*targets: Target) -> Measurement:
    return Measurement(
        "postgres.enqueue.bulk",
        "bulk enqueue",
        "postgres",
        jobs=100,
        contestants=(ONEFOLD, RAW, PEER),
        targets=targets,
    )


def lap(rate: float, *, steal: float = 0.0) -> Lap:
    return Lap(jobs=100, seconds=100 / rate, steal=steal, cpu_seconds=0.0)


def quiet_runs(contestant: Contestant, rate: float) -> list[Run]:
    """As many as are enough."""
    return [run(contestant, rate, turn=turn) for turn in range(ENOUGH)]


def run(contestant: Contestant, rate: float, *, turn: int = 0, set_aside: bool = False) -> Run:
    return Run(
        "postgres.enqueue.bulk",
        contestant.name,
        turn,
        lap(rate),
        load=0.0,
        set_aside=set_aside,
    )


SET_ASIDE = run(ONEFOLD, 1, turn=3, set_aside=True)
RUNS = [*quiet_runs(ONEFOLD, 100), *quiet_runs(RAW, 200), *quiet_runs(PEER, 50), SET_ASIDE]
MEASUREMENT = measurement(Target("onefold", "raw", 0.85), Target("onefold", "peer", 1.5))
QUIET, STORM = 0.0, 0.5


def measured(rounds: int, steal: dict[str, list[float]]) -> list[Run]:
    """The runs of a measurement in which contestants meet these shares of steal, in turn."""
    met: dict[str, list[float]] = defaultdict(list)

    def play(contestant: Contestant) -> Lap:
        turns = steal.get(contestant.name, [])
        turn = len(met[contestant.name])
        met[contestant.name].append(turns[turn] if turn < len(turns) else QUIET)
        return lap(1000, steal=met[contestant.name][-1])

    return list(measure(measurement(), rounds, play))


def test_contestants_alternate_and_a_run_that_was_stolen_from_is_repeated() -> None:
    runs = measured(3, {"raw": [QUIET, STORM]})

    assert [run.contestant for run in runs] == [*["onefold", "raw", "peer"] * 3, "raw"]
    assert [run.turn for run in runs if run.set_aside] == [1]


def printed(table: Table) -> str:
    console = Console(file=StringIO(), width=120)
    console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def rows(table: Table) -> list[list[str]]:
    lines = [line.strip(" │").split("│") for line in printed(table).splitlines()]
    return [[cell.strip() for cell in line] for line in lines]


def test_the_ratios_say_what_was_wanted_and_whether_it_is_reached() -> None:
    found = rows(ratios_table([MEASUREMENT], RUNS))

    assert [MEASUREMENT.name, "onefold", "raw", "jobs/s", "0.50", "≥ 0.85", "no"] in found
    assert [MEASUREMENT.name, "onefold", "peer", "jobs/s", "2.00", "≥ 1.50", "yes"] in found
    assert complete([MEASUREMENT], 3, RUNS) == [MEASUREMENT]
    assert complete([MEASUREMENT], 4, RUNS) == [], "it was interrupted"
