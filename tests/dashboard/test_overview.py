"""The overview: charts and their shapes, failing kinds, backlogs."""

import json
import shlex
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.request import Request, urlopen

import pytest

from onefold import Onefold
from onefold.model.statistics import MINUTE, Tally
from onefold.operations import statistics
from onefold.server.dashboard.charts import GAP, Chart, Series, count_text, time_text
from onefold.server.dashboard.pages.overview import rate
from tests.dashboard.seed import Seeded
from tests.dashboard.seed_keys import fill_day
from tests.dashboard.visiting import Visitor, parsed


def add(onefold: Onefold, back: int, **counts: int) -> None:
    """Counts of the minute that is this many minutes ago."""
    now = time.time_ns() // 1000
    minute = now - now % MINUTE - back * MINUTE
    tallies: dict[tuple[int | None, str], Tally] = {(minute, "email"): Tally(**counts)}
    onefold.context.store.transact(lambda sql: statistics.add(sql, tallies))


def figure(visit: Visitor, title: str) -> str:
    return visit.page.part(title).one(".figure").text


def test_the_charts_have_the_numbers_of_the_last_minutes_or_of_the_last_day(
    onefold: Onefold, visit: Visitor
) -> None:
    add(onefold, 3, completed=1200, duplicates=34, measured=2, waited_total=4_000_000, backlog=7)
    add(onefold, 300, completed=55, retried=4, dead=2)
    visit.open("/")

    assert figure(visit, "Completed") == "1,200"
    assert figure(visit, "Duplicates suppressed") == "34"
    assert figure(visit, "Latency") == "2.0 s"
    assert "at most 7" in visit.page.part("Backlog").text
    assert "Nothing in this time" in visit.page.part("Failures").one("svg.chart").text

    visit.click("24 hours")

    assert visit.at == "/?last=24h"
    assert visit.page.one(".switch [aria-current]").text == "24 hours"
    assert figure(visit, "Completed") == "1,255"
    assert figure(visit, "Failures") == "6"
    assert "2 dead, 4 retried" in visit.page.part("Failures").text
    assert len(visit.page.part("Completed").all("rect.chart-bar")) == 2


@pytest.mark.parametrize(
    ("jobs", "hours", "said"),
    [
        (0, 24, "no job in this time"),
        (1, 24, "1.0 jobs per day"),
        (70, 24, "2.9 jobs per hour"),
        (3000, 1, "50.0 jobs per minute"),
    ],
)
def test_a_rate_has_a_unit_in_which_it_is_not_zero(jobs: int, hours: int, said: str) -> None:
    assert rate(jobs, timedelta(hours=hours)) == said


def test_a_chart_is_also_a_table_and_its_series_differ_without_colour(
    onefold: Onefold, visit: Visitor
) -> None:
    fill_day(onefold)
    failures = visit.open("/").part("Failures")

    assert failures.texts("th") == ["From", "Dead", "Retried"]
    rows = failures.texts("tbody tr")
    assert len(rows) == 15
    assert "so far" in rows[-1]
    assert failures.all('svg.chart rect[fill="url(#hatch-failures)"]')
    assert len(visit.page.part("Latency").all("svg.chart .dashed")) == 1


def test_failing_kinds_show_their_last_error_and_lead_to_their_jobs(
    onefold: Onefold, seeded: Seeded, visit: Visitor
) -> None:
    # Ids of one millisecond are in any order.
    failed = [*onefold.find(state="retrying"), *onefold.find(state="dead")]
    newest = sorted(failed, key=lambda job: job.id, reverse=True)
    kinds = list(dict.fromkeys(job.kind for job in newest))

    failing = visit.open("/").part("Failing kinds")

    assert {*kinds} == {"import_catalog", "render_invoice", "sync_inventory", "charge_card"}
    assert failing.texts(".row-link") == kinds
    charge = failing.row("charge_card")
    assert "the bank has declined 20.0 EUR" in charge.text

    visit.open(charge.link("dead 1"))

    assert visit.at == "/jobs?state=dead&kind=charge_card"
    assert len(visit.page.keys) == 1


def test_the_largest_backlogs_come_first(onefold: Onefold, seeded: Seeded, visit: Visitor) -> None:
    for _ in range(9):
        onefold.enqueue("count", {}, queue="long")

    first, second, *_ = visit.open("/").part("Largest backlogs").texts("li")

    assert "long" in first
    assert "9 due" in first
    assert "email" in second


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_an_empty_overview_has_examples_that_work(
    onefold: Onefold, visit: Visitor, url: str
) -> None:
    with urlopen(url) as response:
        page = parsed(response.read().decode())
    python = page.one("#python-example").raw
    commands = page.one("#curl-example").raw.replace("\\\n", " ").splitlines()

    for command in commands:
        words = shlex.split(command)
        options = dict(zip(words[1::2], words[2::2], strict=False))
        place = next(word for word in words if word.startswith(url))
        body = words[words.index("-d") + 1].encode()
        request = Request(place, body, {"content-type": "application/json"}, method=options["-X"])
        with urlopen(request) as response:
            assert response.status == 201
            assert json.load(response)
    exec(f"{python}\nonefold.close()", {})

    (job,) = onefold.find(queue="email").jobs
    assert job.unique_key == "welcome:42"
    visit.open("/")
    assert figure(visit, "Backlog") != "0"


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
        (70, ["30 s", "60 s", "90 s"]),
        (5_000, ["30 min", "60 min", "90 min"]),
        (90_000, ["12 h", "24 h", "36 h"]),
        (200_000, ["1 d", "2 d", "3 d"]),
    ],
)
def test_the_lines_of_times_are_times_that_people_use(most: float, labels: list[str]) -> None:
    found = chart((most,), kind="lines", unit="time")

    assert [tick.label for tick in found.ticks] == labels


def test_no_label_of_times_has_more_than_the_six_characters_that_an_axis_has_room_for() -> None:
    mosts = [0.001 * 1.3**number for number in range(80)]
    charts = [chart((most,), kind="lines", unit="time") for most in mosts]

    assert max(len(tick.label) for one in charts for tick in one.ticks) == 6


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
