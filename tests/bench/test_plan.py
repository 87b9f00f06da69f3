"""The measurements, as data."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench import contestants
from bench.plan import MEASUREMENTS, TAKEN, chosen, scaled

if TYPE_CHECKING:
    from bench.values import Measurement

each_measurement = pytest.mark.parametrize(
    "measurement", MEASUREMENTS, ids=[each.name for each in MEASUREMENTS]
)


def functions(module: str) -> set[str]:
    """Read, not imported: the peers are not installed here."""
    path = Path(contestants.__path__[0]) / f"{module}.py"
    tree = ast.parse(path.read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, functions)}


@each_measurement
def test_a_contestant_plays_a_function_that_exists(measurement: Measurement) -> None:
    for contestant in measurement.contestants:
        module, function = contestant.plays.split(".")

        assert function in functions(module)


@each_measurement
def test_a_worker_has_what_is_asked_of_it(measurement: Measurement) -> None:
    for contestant in measurement.contestants:
        if worker := contestant.options.get("worker"):
            wanted = {"load", "rest", "work"}
            if contestant.plays == "workers.latency":
                wanted.add("sender")

            assert wanted <= functions(str(worker))


@each_measurement
def test_a_target_names_contestants_of_its_measurement(measurement: Measurement) -> None:
    names = {contestant.name for contestant in measurement.contestants}

    assert len(names) == len(measurement.contestants)
    for target in measurement.targets:
        assert {target.contestant, target.against} - {None} <= names
        assert target.reading in measurement.readings
        assert target.says


def test_a_part_is_chosen_by_any_of_its_words() -> None:
    assert chosen("") == list(MEASUREMENTS)
    assert {each.name for each in chosen("sqlite.take, keyed")} == {
        "sqlite.take",
        "postgres.enqueue.keyed",
    }
    assert chosen("no such thing") == []
    for measurement in MEASUREMENTS:
        assert chosen(measurement.name) == [measurement]


@pytest.mark.parametrize("scale", [0.0001, 0.1, 1.0, 1.7])
def test_sizes_are_whole_takes_at_any_scale(scale: float) -> None:
    with_jobs = [each for each in MEASUREMENTS if each.jobs]

    for each in scaled(with_jobs, scale):
        assert each.jobs >= TAKEN
        assert each.jobs % TAKEN == 0
