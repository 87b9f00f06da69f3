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
    facts_table,
    figures_table,
    file_system,
    number,
    ratios_table,
    title,
)
from bench.values import Target
from tests.bench.laps import ONEFOLD, PEER, RAW, costly, marked, measurement, quiet_runs, run

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_ratio_of_noisy_figures_says_so() -> None:
    noisy = [run(ONEFOLD, 100), *quiet_runs(RAW, 100), *quiet_runs(PEER, 10)]

    found = rows(ratios_table([MEASUREMENT], noisy))

    assert [row[-1] for row in found if row[0] == MEASUREMENT.name] == ["yes (noisy)"] * 2


@pytest.mark.parametrize("rounds", [1, 2])
def test_what_ran_in_too_few_rounds_is_noisy_everywhere(rounds: int) -> None:
    few = [each for each in RUNS if each.turn < rounds]

    (found,) = json.loads(document(FACTS, [MEASUREMENT], few))["measurements"]

    assert printed(figures_table(MEASUREMENT, few)).count("(noisy)") == 3
    assert printed(ratios_table([MEASUREMENT], few)).count("(noisy)") == 2
    assert [figure["noisy"] for figure in found["figures"]] == [True] * 3
    assert [verdict["noisy"] for verdict in found["verdicts"]] == [True] * 2


def test_the_figures_say_how_many_runs_were_set_aside() -> None:
    lines = printed(figures_table(MEASUREMENT, RUNS)).splitlines()

    wanted = ["onefold", "jobs/s", "100", "100", "100", "3", "1", "0.0", "0.00"]
    assert wanted in [line.split() for line in lines]


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


def test_a_ratio_of_which_nothing_is_wanted_is_reported() -> None:
    found = rows(ratios_table([measurement(Target("onefold", "raw"))], RUNS))

    assert [MEASUREMENT.name, "onefold", "raw", "jobs/s", "0.50", "none"] in found


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.034, "0.03"), (9.991, "9.99"), (45.67, "45.7"), (456.7, "457"), (12345.6, "12,346")],
)
def test_a_figure_has_three_digits_or_all_before_the_point(value: float, text: str) -> None:
    assert number(value) == text


def test_what_is_wanted_at_most_and_against_nobody_is_said() -> None:
    wanted = measurement(Target("onefold", None, at_most=2.5, reading="p50 ms"))

    found = rows(ratios_table([wanted], [marked(ONEFOLD, 3)]))

    assert [wanted.name, "onefold", "", "p50 ms", "3.00", "≤ 2.50", "no (noisy)"] in found


def test_a_title_counts_jobs_where_there_are_any() -> None:
    assert title(MEASUREMENT).endswith("bulk enqueue; 100 jobs")
    assert title(msgspec.structs.replace(MEASUREMENT, jobs=0)).endswith("bulk enqueue")


def test_the_facts_are_printed() -> None:
    assert "cores 2" in printed(facts_table(FACTS))


def test_the_json_has_the_facts_the_rule_and_every_run() -> None:
    content = json.loads(document(FACTS, [MEASUREMENT], RUNS))

    assert content["machine"] == {"cores": 2}
    assert content["rule"] == {"tolerated_steal": 0.1, "extra_rounds": 2, "quiet_runs": 3}
    assert len(content["runs"]) == len(RUNS)
    assert content["runs"][-1]["set_aside"] is True
    assert set(content["runs"][0]) == {
        *("measurement", "contestant", "turn", "rate", "lap", "load", "set_aside"),
    }
    assert set(content["runs"][0]["lap"]) == {
        *("jobs", "seconds", "steal", "cpu_seconds", "marks"),
        *("server_seconds", "background_seconds", "wal_bytes"),
    }


def test_the_json_has_figures_and_verdicts_of_every_measurement() -> None:
    (found,) = json.loads(document(FACTS, [MEASUREMENT], RUNS))["measurements"]

    assert found["measurement"]["name"] == "postgres.enqueue.bulk"
    assert [figure["contestant"] for figure in found["figures"]] == ["onefold", "raw", "peer"]
    assert [verdict["reached"] for verdict in found["verdicts"]] == [False, True]


def test_a_folder_lies_on_some_file_system(tmp_path: Path) -> None:
    assert file_system(tmp_path)
