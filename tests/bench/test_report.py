"""What a reader gets."""

from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from rich.console import Console

from bench.report import (
    document,
    figures_table,
    ratios_table,
)
from bench.values import Target
from tests.bench.laps import ONEFOLD, PEER, RAW, costly, measurement, quiet_runs, run

if TYPE_CHECKING:
    from rich.table import Table

FACTS: dict[str, dict[str, Any]] = {"machine": {"cores": 2}, "versions": {"python": "3.11"}}
SET_ASIDE = run(ONEFOLD, 1, turn=3, set_aside=True)
RUNS = [*quiet_runs(ONEFOLD, 100), *quiet_runs(RAW, 200), *quiet_runs(PEER, 50), SET_ASIDE]
MEASUREMENT = measurement(Target("onefold", "raw", 0.85), Target("onefold", "peer", 1.5))


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


@pytest.mark.parametrize("rounds", [1, 2])
def test_what_ran_in_too_few_rounds_is_noisy_everywhere(rounds: int) -> None:
    few = [each for each in RUNS if each.turn < rounds]

    (found,) = json.loads(document(FACTS, [MEASUREMENT], few))["measurements"]

    assert printed(figures_table(MEASUREMENT, few)).count("(noisy)") == 3
    assert printed(ratios_table([MEASUREMENT], few)).count("(noisy)") == 2
    assert [figure["noisy"] for figure in found["figures"]] == [True] * 3
    assert [verdict["noisy"] for verdict in found["verdicts"]] == [True] * 2


def test_the_figures_say_what_a_job_costs() -> None:
    used = {"cpu_seconds": 0.02, "server_seconds": 0.01, "background_seconds": 0.001}
    runs = [costly(ONEFOLD, turn=turn, wal_bytes=50_000 * turn, **used) for turn in (1, 2, 3)]
    found = msgspec.structs.replace(MEASUREMENT, contestants=(ONEFOLD,), targets=())

    lines = [line.split() for line in printed(figures_table(found, runs)).splitlines()]
    (written,) = json.loads(document(FACTS, [found], runs))["measurements"]

    assert lines[0][-6:] == ["client", "µs", "server", "µs", "WAL", "bytes"]
    assert lines[1][-3:] == ["200", "100", "1,000"]
    assert written["figures"][0]["costs"] == {
        "client_us": pytest.approx(200),
        "server_us": pytest.approx(100),
        "background_us": pytest.approx(10),
        "wal_bytes": 1000,
    }
