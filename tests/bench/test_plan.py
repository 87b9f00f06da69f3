"""The measurements, as data."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench import contestants
from bench.contestants.crowd import CALLERS
from bench.payloads import BYTES, batches, encode, keys, payloads, unique_keys
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


def test_every_measurement_has_a_name_of_its_own() -> None:
    names = [each.name for each in MEASUREMENTS]

    assert len(set(names)) == len(names)


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


@each_measurement
def test_a_name_chooses_its_measurement_alone(measurement: Measurement) -> None:
    assert chosen(measurement.name) == [measurement]


def test_a_name_and_a_word_choose_both() -> None:
    assert [each.name for each in chosen("keyed,postgres.take")] == [
        "postgres.enqueue.keyed",
        "postgres.take",
    ]


def test_an_empty_word_chooses_nothing() -> None:
    assert [each.name for each in chosen("sqlite.take,")] == ["sqlite.take"]
    assert chosen(",") == []


@pytest.mark.parametrize("scale", [0.0001, 0.1, 1.0, 1.7])
def test_sizes_are_whole_takes_at_any_scale(scale: float) -> None:
    with_jobs = [each for each in MEASUREMENTS if each.jobs]

    for each in scaled(with_jobs, scale):
        assert each.jobs >= TAKEN
        assert each.jobs % TAKEN == 0


def test_what_has_no_jobs_has_none_at_any_scale() -> None:
    idle = chosen("idle")

    assert [each.jobs for each in scaled(idle, 1.7)] == [0] * len(idle)
    assert scaled(idle, 0.1) == idle


def test_at_scale_one_the_callers_of_a_crowd_have_equal_shares() -> None:
    for each in scaled(chosen("concurrent"), 1.0):
        assert each.jobs % CALLERS == 0


def test_a_payload_has_a_hundred_bytes() -> None:
    contents = payloads(1000)

    assert {len(encode(content)) for content in contents} == {BYTES}
    assert len({encode(content) for content in contents}) == 1000


def test_half_of_the_keys_are_duplicates() -> None:
    wanted = keys(1000)

    assert len(wanted) == 1000
    assert len(set(wanted)) == 500
    assert wanted == keys(1000)


def test_keys_without_duplicates_are_all_different() -> None:
    assert len(set(unique_keys(1000))) == 1000


def test_batches_leave_nothing_out() -> None:
    items = list(range(10))

    assert [list(batch) for batch in batches(items, 4)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]
    assert [list(batch) for batch in batches(items, 0)] == [items]
