"""Medians, ratios, targets."""

from __future__ import annotations

import msgspec
import pytest

from bench.values import Target
from bench.verdict import complete, figure, figures, verdicts
from tests.bench.laps import ONEFOLD, PEER, RAW, marked, measurement, run


def test_a_figure_is_the_median_of_its_contestants_runs() -> None:
    runs = [run(ONEFOLD, 100), run(RAW, 7), run(ONEFOLD, 900), run(ONEFOLD, 200)]

    found = figure("onefold", runs)

    assert found.median == pytest.approx(200)
    assert found.lowest == pytest.approx(100)
    assert found.highest == pytest.approx(900)
    assert (found.runs, found.set_aside, found.noisy) == (3, 0, False)


@pytest.mark.parametrize(("quiet", "noisy"), [(1, True), (2, True), (3, False), (4, False)])
def test_a_figure_of_fewer_than_three_quiet_runs_is_noisy(quiet: int, *, noisy: bool) -> None:
    found = figure("onefold", [run(ONEFOLD, 100)] * quiet + [run(ONEFOLD, 1, set_aside=True)] * 2)

    assert found.median == pytest.approx(100)
    assert found.noisy is noisy


def test_a_measurement_that_was_interrupted_has_nothing_to_compare() -> None:
    runs = [run(ONEFOLD, 100), run(RAW, 100)]

    assert complete([measurement()], 1, runs) == []
    assert complete([measurement()], 1, [*runs, run(PEER, 100)]) == [measurement()]
    assert complete([measurement()], 2, [*runs, run(PEER, 100)]) == []


@pytest.mark.parametrize(("rate", "reached"), [(84, False), (85, True), (120, True)])
def test_a_target_is_reached_by_the_ratio_of_medians(rate: float, *, reached: bool) -> None:
    runs = [run(ONEFOLD, rate), run(RAW, 100), run(PEER, 40)]

    (verdict,) = verdicts(measurement(Target("onefold", "raw", 0.85)), runs)

    assert verdict.value == pytest.approx(rate / 100)
    assert verdict.reached is reached


def test_a_reading_other_than_the_rate_is_what_the_run_has_marked() -> None:
    waiting = msgspec.structs.replace(measurement(), readings=("jobs/s", "p50 ms"))
    runs = [marked(ONEFOLD, 2), marked(RAW, 4), marked(PEER, 8), marked(ONEFOLD, 3)]

    found = figures(waiting, runs)

    assert [(each.contestant, each.reading) for each in found] == [
        (name, reading) for reading in ("jobs/s", "p50 ms") for name in ("onefold", "raw", "peer")
    ]
    assert [each.median for each in found[3:]] == pytest.approx([2.5, 4, 8])


@pytest.mark.parametrize(("value", "reached"), [(3.9, True), (4.0, True), (4.1, False)])
def test_a_target_may_be_a_ratio_that_is_not_to_be_more(value: float, *, reached: bool) -> None:
    target = Target("onefold", "raw", at_most=1, reading="p50 ms")

    (verdict,) = verdicts(measurement(target), [marked(ONEFOLD, value), marked(RAW, 4)])

    assert verdict.value == pytest.approx(value / 4)
    assert verdict.reached is reached
