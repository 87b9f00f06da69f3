"""The watch: what is stolen, and what is measured."""

from __future__ import annotations

import pytest

from bench.stopwatch import Stopwatch, Ticks

# user nice system idle iowait irq softirq steal guest guest_nice
EARLIER = "cpu  100 0 50 800 20 0 10 20 60 0\ncpu0 50 0 25 400 10 0 5 10 30 0\n"
LATER = "cpu  150 0 70 1000 20 0 10 50 90 0\ncpu0 75 0 35 500 10 0 5 25 45 0\n"


def test_the_machines_time_is_the_first_line_without_the_guests() -> None:
    assert Ticks.parse(EARLIER) == Ticks(total=1000, stolen=20)


def test_steal_is_a_share_of_the_time_that_has_passed() -> None:
    assert Ticks.parse(LATER).steal_since(Ticks.parse(EARLIER)) == pytest.approx(30 / 300)


def test_work_that_failed_has_no_lap() -> None:
    watch = Stopwatch()

    with pytest.raises(ZeroDivisionError), watch.running(7):
        _ = 1 / 0

    assert watch.lap is None
