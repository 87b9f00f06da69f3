"""The measurements, as data."""

from __future__ import annotations

import ast
from pathlib import Path

from bench import contestants
from bench.plan import MEASUREMENTS, TAKEN, chosen, scaled


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
