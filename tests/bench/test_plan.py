"""The measurements as data, raw SQL beside that of Onefold, and what the meter reads."""

from __future__ import annotations

import ast
import re
from importlib.resources import files
from pathlib import Path

import pytest

from bench import contestants, sqlite_stage
from bench.contestants import http_raw, raw_postgres
from bench.plan import MEASUREMENTS, TAKEN, chosen, scaled
from bench.stopwatch import Ticks

# user nice system idle iowait irq softirq steal guest guest_nice
EARLIER = "cpu  100 0 50 800 20 0 10 20 60 0\ncpu0 50 0 25 400 10 0 5 10 30 0\n"
LATER = "cpu  150 0 70 1000 20 0 10 50 90 0\ncpu0 75 0 35 500 10 0 5 25 45 0\n"


def functions(module: str) -> set[str]:
    """Read, not imported: the peers are not installed here."""
    path = Path(contestants.__path__[0]) / f"{module}.py"
    tree = ast.parse(path.read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, functions)}


def test_what_a_measurement_names_exists() -> None:
    for measurement in MEASUREMENTS:
        names = {contestant.name for contestant in measurement.contestants}
        assert len(names) == len(measurement.contestants)
        for target in measurement.targets:
            assert {target.contestant, target.against} - {None} <= names
            assert target.reading in measurement.readings
        for contestant in measurement.contestants:
            module, function = contestant.plays.split(".")
            assert function in functions(module)
            if worker := contestant.options.get("worker"):
                more = {"sender"} if contestant.plays == "workers.latency" else set[str]()
                assert {"load", "rest", "work", *more} <= functions(str(worker))


def test_a_part_is_chosen_by_any_of_its_words_and_scaled_to_whole_takes() -> None:
    assert chosen("") == list(MEASUREMENTS)
    assert {each.name for each in chosen("sqlite.take, keyed")} == {
        "sqlite.take",
        "postgres.enqueue.keyed",
    }
    for scale in (0.0001, 0.1, 1.0, 1.7):
        for each in scaled([each for each in MEASUREMENTS if each.jobs], scale):
            assert each.jobs >= TAKEN
            assert each.jobs % TAKEN == 0


def columns(statement: str) -> set[str]:
    """The columns that a statement of Onefold's own inserts."""
    text = (files("onefold.sql") / f"{statement}.sql").read_text()
    found = re.search(r"insert into [\w.]+ \(([^)]*)\)", text)
    assert found is not None
    return {name.strip() for name in found[1].split(",")}


@pytest.mark.parametrize(
    ("statement", "ours"),
    [
        ("postgres/store_jobs", raw_postgres.MANY),
        ("postgres/insert_job", raw_postgres.ONE),
        ("sqlite/insert_job", sqlite_stage.COLUMNS),
        ("postgres/insert_claims", http_raw.COLUMNS),
        ("sqlite/insert_claims", http_raw.COLUMNS),
    ],
)
def test_the_columns_are_those_of_onefolds_own_insert(
    statement: str, ours: dict[str, str] | tuple[str, ...]
) -> None:
    assert set(ours) == columns(statement)


def test_steal_is_a_share_of_the_machines_time_without_the_guests() -> None:
    assert Ticks.parse(LATER).steal_since(Ticks.parse(EARLIER)) == pytest.approx(30 / 300)
