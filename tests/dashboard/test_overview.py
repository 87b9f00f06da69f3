"""The overview: charts, failing kinds, backlogs, workers."""

import json
import shlex
import time
from urllib.request import Request, urlopen

import pytest

from onefold import Onefold
from onefold.model.statistics import MINUTE, Tally
from onefold.operations import statistics
from tests.dashboard.seed import Seeded
from tests.dashboard.shop_day import fill_day
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
