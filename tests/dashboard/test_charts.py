"""The shapes of a chart: scale, gaps, labels."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onefold.server.dashboard.charts import GAP, Chart, Series, count_text, time_text

START = datetime(2026, 5, 4, 12, tzinfo=UTC)


def chart(*values: tuple[float | None, ...], **options: Any) -> Chart:
    given: dict[str, Any] = {"kind": "bars", **options}
    return Chart(
        name="one",
        title="One",
        figure="",
        note="",
        series=tuple(Series("Series", "blue", one) for one in values),
        times=tuple(START + timedelta(minutes=at) for at in range(len(values[0]))),
        labels=5,
        **given,
    )


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (0, ["1"]),
        (1, ["1"]),
        (3, ["1", "2", "3"]),
        (7, ["5", "10"]),
        (1_240, ["500", "1,000", "1,500"]),
        (123_000, ["50k", "100k", "150k"]),
    ],
)
def test_the_lines_of_a_chart_are_round_numbers(most: int, labels: list[str]) -> None:
    assert [tick.label for tick in chart((most, 0)).ticks] == labels


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (0.012, ["5 ms", "10 ms", "15 ms"]),
        (2.4, ["1 s", "2 s", "3 s"]),
        (70, ["30 s", "1 min", "1 min 30 s"]),
        (5_000, ["30 min", "1 h", "1 h 30 min"]),
        (200_000, ["1 d", "2 d", "3 d"]),
    ],
)
def test_the_lines_of_times_are_times_that_people_use(most: float, labels: list[str]) -> None:
    found = chart((most,), kind="lines", unit="time")

    assert [tick.label for tick in found.ticks] == labels


def test_a_gap_interrupts_a_line_and_a_value_alone_is_a_point() -> None:
    (line,) = chart((1.0, 2.0, None, 2.0, None, 0.0, 1.0), kind="lines").lines

    assert line.path.count("M") == 2
    assert line.path.count("L") == 2
    assert len(line.points) == 1


def test_the_parts_of_a_bar_stand_on_each_other_and_one_failure_is_visible() -> None:
    found = chart((1, 0), (1_000, 5))
    first, second, third = found.bars

    assert first.height == 2
    assert first.y + first.height == found.base
    assert second.y + second.height == pytest.approx(first.y)
    assert third.y + third.height == found.base


def test_a_label_of_the_time_axis_is_at_its_bucket() -> None:
    found = chart(tuple(range(15)))

    assert [(tick.place, tick.at) for tick in found.moments[:-1]] == [
        (0, START),
        (pytest.approx(100 / 3), START + timedelta(minutes=5)),
        (pytest.approx(200 / 3), START + timedelta(minutes=10)),
    ]
    assert (found.moments[-1].place, found.moments[-1].label) == (100, "now")


def test_a_missing_value_is_a_dash() -> None:
    assert (count_text(None), time_text(None)) == (GAP, GAP)
    assert (count_text(0), time_text(0)) == ("0", "0 ms")
    assert (count_text(9_999), count_text(12_500), count_text(25_000_000)) == (
        "9,999",
        "12.5k",
        "25M",
    )
