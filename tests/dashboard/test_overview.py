"""The overview: charts, failing kinds, backlogs, workers."""

import json
import shlex
import time
from itertools import pairwise
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from onefold import Onefold
from onefold.model.statistics import MINUTE, Tally
from onefold.operations import statistics
from onefold.testing.jobs import drain
from tests.dashboard.conftest import LogIn
from tests.dashboard.seed import Seeded, in_thread
from tests.dashboard.shop_day import fill_day, save_workers
from tests.fixtures.colours import Dialect

BOTH: list[Dialect] = ["sqlite", "postgres"]


def add(onefold: Onefold, back: int, **counts: int) -> None:
    """Counts of the minute that is this many minutes ago."""
    now = time.time_ns() // 1000
    minute = now - now % MINUTE - back * MINUTE
    tallies: dict[tuple[int | None, str], Tally] = {(minute, "email"): Tally(**counts)}
    in_thread(lambda: onefold.context.store.transact(lambda sql: statistics.add(sql, tallies)))


def card(page: Page, title: str) -> Locator:
    return page.get_by_role("figure", name=title)


@pytest.mark.parametrize("dialect", BOTH)
def test_the_charts_have_the_numbers_of_the_last_minutes_or_of_the_last_day(
    onefold: Onefold, url: str, page: Page
) -> None:
    add(onefold, 3, completed=1200, duplicates=34, measured=2, waited_total=4_000_000, backlog=7)
    add(onefold, 300, completed=55, retried=4, dead=2)
    page.goto(url)

    expect(card(page, "Completed").locator(".figure")).to_have_text("1,200")
    expect(card(page, "Duplicates suppressed").locator(".figure")).to_have_text("34")
    expect(card(page, "Latency").locator(".figure")).to_have_text("2.0 s")
    expect(card(page, "Backlog")).to_contain_text("at most 7")
    expect(card(page, "Failures").locator("svg.chart")).to_contain_text("Nothing in this time")

    page.get_by_role("link", name="24 hours").click()
    page.wait_for_url("**/?last=24h")

    expect(page.get_by_role("link", name="24 hours")).to_have_attribute("aria-current", "true")
    expect(card(page, "Completed").locator(".figure")).to_have_text("1,255")
    expect(card(page, "Failures").locator(".figure")).to_have_text("6")
    expect(card(page, "Failures")).to_contain_text("2 dead, 4 retried")
    expect(card(page, "Completed").locator("rect.chart-bar")).to_have_count(2)


@pytest.mark.parametrize("dialect", BOTH)
def test_work_that_ends_appears_in_the_charts_by_itself(
    onefold: Onefold, seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(url)
    expect(page.locator("#live")).to_have_text("Live")
    before = int(card(page, "Duplicates suppressed").locator(".figure").inner_text())

    def twice() -> None:
        for _ in range(2):
            onefold.enqueue("late", {}, unique_key="late:1")

    in_thread(twice)

    expect(card(page, "Duplicates suppressed").locator(".figure")).to_have_text(str(before + 1))


def test_the_charts_move_on_without_events(onefold: Onefold, url: str, page: Page) -> None:
    add(onefold, 1, completed=5)
    page.clock.install()
    page.goto(url)
    expect(page.locator("#live")).to_have_text("Live")

    # What another process writes behind is no event.
    add(onefold, 0, completed=3)
    page.clock.run_for(12_000)

    expect(card(page, "Completed").locator(".figure")).to_have_text("8")


def test_a_chart_shows_its_values_by_pointer_and_by_keyboard(
    onefold: Onefold, url: str, page: Page
) -> None:
    in_thread(lambda: fill_day(onefold))
    page.goto(f"{url}/?last=24h")
    page.wait_for_selector("html[data-ready]")
    rows = (
        card(page, "Latency")
        .locator("tbody tr")
        .evaluate_all("all => all.map(row => [...row.cells].map(cell => cell.textContent.trim()))")
    )
    tip = page.locator(".chart-tip")

    def expected(at: int) -> str:
        moment, waited, ran = rows[at]
        return f"{moment}\nWaited: {waited}\nRan: {ran}"

    chart = card(page, "Latency").get_by_role("img")
    chart.hover(position={"x": 2, "y": 60})
    assert tip.inner_text() == expected(0)
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()

    card(page, "Duplicates suppressed").locator("summary").focus()
    page.keyboard.press("Tab")
    assert tip.inner_text() == expected(47)
    page.keyboard.press("ArrowLeft")
    assert tip.inner_text() == expected(46)
    page.keyboard.press("Home")
    assert tip.inner_text() == expected(0)
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_a_chart_is_also_a_table_and_its_series_differ_without_colour(
    onefold: Onefold, url: str, page: Page
) -> None:
    in_thread(lambda: fill_day(onefold))
    page.goto(url)

    card(page, "Failures").get_by_text("Show as a table").click()
    table = card(page, "Failures").get_by_role("table")
    expect(table.get_by_role("columnheader")).to_have_text(["From", "Dead", "Retried"])
    expect(table.locator("tbody tr")).to_have_count(15)
    expect(table.locator("tbody tr").last).to_contain_text("so far")
    failures = card(page, "Failures").locator("svg.chart")
    assert failures.locator('rect[fill="url(#hatch-failures)"]').count() > 0
    expect(card(page, "Latency").locator("svg.chart .dashed")).to_have_count(1)


@pytest.mark.parametrize("dialect", BOTH)
def test_failing_kinds_show_their_last_error_and_lead_to_their_jobs(
    seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(url)
    failing = page.get_by_role("region", name="Failing kinds")
    assert failing.locator(".row-link").all_inner_texts() == [
        "import_catalog",
        "render_invoice",
        "sync_inventory",
        "charge_card",
    ]
    charge = failing.locator('[data-key="charge_card"]')
    expect(charge).to_contain_text("the bank has declined 20.0 EUR")

    charge.get_by_role("link", name="dead").click()

    page.wait_for_url("**/jobs?state=dead&kind=charge_card")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_the_largest_backlogs_come_first(
    onefold: Onefold, seeded: Seeded, url: str, page: Page
) -> None:
    in_thread(lambda: [onefold.enqueue("count", {}, queue="long") for _ in range(9)])
    page.goto(url)

    found = page.get_by_role("region", name="Largest backlogs").locator("li")
    expect(found.first).to_contain_text("long")
    expect(found.first).to_contain_text("9 due")
    expect(found.nth(1)).to_contain_text("email")


def test_the_operator_sees_workers_and_a_tenant_does_not(
    onefold: Onefold, url: str, page: Page, log_in: LogIn
) -> None:
    in_thread(lambda: save_workers(onefold))
    in_thread(lambda: onefold.enqueue("count", {}))
    in_thread(lambda: onefold.tenant("acme").enqueue("count", {}))
    log_in("read")
    workers = page.get_by_role("region", name="Workers")
    expect(workers.locator(".figure")).to_have_text("2")
    expect(workers).to_contain_text("web-1:3120")
    page.get_by_role("button", name="Log out").click()

    log_in("read", "acme")

    expect(page.get_by_role("heading", name="Largest backlogs")).to_be_visible()
    expect(workers).to_have_count(0)


def test_an_empty_overview_has_examples_that_work(onefold: Onefold, url: str, page: Page) -> None:
    page.goto(url)
    expect(page.get_by_role("heading", name="Enqueue your first job")).to_be_visible()
    python = page.locator("#python-example").inner_text()
    commands = page.locator("#curl-example").inner_text().replace("\\\n", " ").splitlines()

    for command in commands:
        words = shlex.split(command)
        options = dict(zip(words[1::2], words[2::2], strict=False))
        place = next(word for word in words if word.startswith(url))
        body = words[words.index("-d") + 1].encode()
        request = Request(place, body, {"content-type": "application/json"}, method=options["-X"])
        with urlopen(request) as response:
            assert response.status == 201
            assert json.load(response)
    in_thread(lambda: exec(f"{python}\nonefold.close()", {}))

    (job,) = in_thread(lambda: onefold.find(queue="email").jobs)
    assert job.unique_key == "welcome:42"
    expect(card(page, "Backlog").locator(".figure")).not_to_have_text("0")


def test_the_times_below_a_narrow_chart_do_not_overlap(
    seeded: Seeded, url: str, browser: Browser
) -> None:
    visitor = browser.new_context(viewport={"width": 1100, "height": 800}, locale="en-US")
    page = visitor.new_page()
    page.goto(url)
    page.wait_for_selector("html[data-ready]")
    labels = page.locator("#chart-latency .chart > .chart-label[y='148']").filter(visible=True)
    boxes: list[tuple[float, float]] = labels.evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(box => [box.left, box.right])"
    )
    visitor.close()

    assert len(boxes) == 3
    assert all(one[1] < other[0] for one, other in pairwise(boxes))


def test_a_worker_that_completes_a_job_is_in_the_throughput(
    onefold: Onefold, url: str, page: Page
) -> None:
    @onefold.job
    def greet() -> None:
        return None

    in_thread(greet.enqueue)
    in_thread(lambda: drain(onefold))

    page.goto(url)

    expect(card(page, "Completed").locator(".figure")).to_have_text("1")
