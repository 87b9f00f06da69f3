"""Schedules and workers: their pages, and what other pages say of them."""

import asyncio
import os
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from onefold import Onefold
from onefold.model.ids import new_id
from onefold.model.queue import QueueSettings
from onefold.operations import workers
from onefold.operations.workers import WorkerRow
from onefold.server.dashboard.pages.schedules import in_words
from tests.dashboard.seed import HOSTILE
from tests.dashboard.seed_keys import save_workers
from tests.dashboard.visiting import Visitor
from tests.fixtures.colours import Store
from tests.worker.stage import working


@pytest.fixture
def scheduled(onefold: Onefold) -> Onefold:
    """A database with schedules."""
    onefold.schedules.save("report", "30 6 * * 1-5", kind="send_report", tz="Europe/Berlin")
    onefold.schedules.save("tidy", "*/15 * * * *", kind="tidy_up", queue="chores")
    onefold.schedules.save(
        "odd", "5 4 1,15 2-5 *", kind="audit", payload={"note": HOSTILE}, catch_up="all"
    )
    onefold.schedules.pause("odd")
    return onefold


def test_a_schedule_shows_its_words_zone_and_next_five_ticks(
    scheduled: Onefold, visit: Visitor
) -> None:
    page = visit.open("/schedules")

    report, tidy, odd = page.row("report"), page.row("tidy"), page.row("odd")
    assert "Monday to Friday at 06:30" in report.text
    assert "Europe/Berlin" in report.text
    assert re.search(r"06:30:00 CES?T", report.one(".ticks").text)
    assert "every 15 minutes" in tidy.text
    assert "chores" in tidy.text
    moments = [tick.all("time")[0]["datetime"] for tick in tidy.all(".ticks li")]
    ticks = [datetime.fromisoformat(moment) for moment in moments]
    assert len(ticks) == 5
    assert ticks[-1] > datetime.now(UTC)
    assert {later - tick for tick, later in pairwise(ticks)} == {timedelta(minutes=15)}
    assert odd.one(".badge").text == "paused"
    assert "5 4 1,15 2-5 *" in odd.text
    assert "None while it is paused." in odd.text


def test_many_schedules_have_pages(onefold: Onefold, visit: Visitor) -> None:
    for number in range(33):
        onefold.schedules.save(f"s{number:02}", "@daily", kind="report")
    visit.open("/schedules")
    assert visit.page.texts(".schedule h2")[-1] == "s31"

    assert visit.click("Next page").texts(".schedule h2") == ["s32"]
    visit.click("First page")
    assert visit.at == "/schedules"


def test_a_double_click_on_run_now_enqueues_one_job(scheduled: Onefold, visit: Visitor) -> None:
    visit.open("/schedules")

    visit.press("Run now", within=visit.page.row("report"))

    assert visit.notice == "The schedule report has enqueued this job."
    assert visit.page.one("h1").text == "send_report"
    assert len(scheduled.find(kind="send_report")) == 1


def test_a_schedule_is_paused_and_resumed_once(scheduled: Onefold, visit: Visitor) -> None:
    visit.open("/schedules")

    visit.press("Pause", within=visit.page.row("tidy"))
    assert "tidy is paused." in visit.notice
    assert visit.page.row("tidy").one(".badge").text == "paused"
    assert {one.name for one in scheduled.schedules.find() if one.paused} == {"odd", "tidy"}

    visit.press("Resume", within=visit.page.row("tidy"))
    assert "tidy continues from now." in visit.notice
    assert visit.page.row("tidy").one(".badge").text == "active"


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("*/7 * * * *", None),
        ("0 * * * *", "every hour"),
        ("5 * * * *", "every hour at minute 5"),
        ("@daily", "every day at 00:00"),
        ("0 3 * * *", "every day at 03:00"),
        ("30 6 * * 1-5", "Monday to Friday at 06:30"),
        ("30 6 * * mon-fri", "Monday to Friday at 06:30"),
        ("0 9 * * 7", "every Sunday at 09:00"),
        ("0 9 * * 1", "every Monday at 09:00"),
        ("0 9 1 * *", "on day 1 of each month at 09:00"),
        ("0 9 1 * 1", None),
        ("0 9 L * *", None),
        ("0 9 * * 1#2", None),
        ("0 9 * 2 *", None),
    ],
)
def test_a_simple_expression_is_in_words(cron: str, words: str | None) -> None:
    assert in_words(cron) == words


def test_a_worker_appears_with_the_job_that_it_runs_and_disappears_when_it_stops(
    store: Store, visit: Visitor
) -> None:
    onefold = store.open()

    async def play() -> None:
        started, stop = asyncio.Event(), asyncio.Event()

        @onefold.job
        async def build_report() -> None:
            started.set()
            await stop.wait()

        async with working(onefold, name="builder", concurrency=3):
            await build_report.aenqueue()
            await started.wait()
            await asyncio.to_thread(visit.open, "/workers")
            stop.set()
        await onefold.aclose()

    asyncio.run(play())

    (row,) = visit.page.all("tbody tr")
    assert row.one(".badge").text == "alive"
    for text in ("builder", f"process {os.getpid()}", "1 of 3", "default", "build_report"):
        assert text in row.text
    page = visit.open("/workers")
    assert page.one("main h2").text == "No worker runs"
    assert page.one(".empty pre").text == "onefold worker MODULE:APP"


def test_only_the_operator_sees_workers(onefold: Onefold, visit: Visitor) -> None:
    save_workers(onefold)
    for app in (onefold, onefold.tenant("acme")):
        app.enqueue("count", {})
    visit.log_in("read")
    overview = visit.page.part("Workers")
    assert (overview.one(".figure").text, "web-1:3120" in overview.text) == ("2", True)
    visit.click("Workers")
    assert len(visit.page.keys) == 2
    assert visit.main.all("form") == []

    visit.log_in("admin", "acme")

    assert "Largest backlogs" in visit.page.texts("h2")
    assert "Workers" not in visit.page.texts("nav a") + visit.page.texts("h2")
    visit.open("/workers")
    assert visit.status == 403
    assert "web-1" not in visit.page.raw


def test_a_job_that_waits_says_why_on_its_page_and_its_queue_whether_it_is_served(
    onefold: Onefold, visit: Visitor
) -> None:
    onefold.queues.save("payments", QueueSettings())
    job = onefold.enqueue("charge", queue="payments").id
    paths = (f"/jobs/{job}", "/queues/payments")

    alone = [visit.open(path).text for path in paths]
    save_workers(onefold)
    served = [visit.open(path).text for path in paths]
    onefold.queues.pause("payments")
    paused = visit.open(paths[0]).part("Why it waits").text

    assert "No live worker serves the queue payments." in alone[0]
    assert "No worker that is alive takes them" in alone[1]
    assert "A worker takes it when it has a place for the queue payments." in served[0]
    assert "workers take its jobs" in served[1]
    assert "No worker that is alive" not in served[1]
    assert "The queue payments is paused. Its jobs start when it is resumed." in paused


def test_the_overview_and_the_queues_know_that_a_push_worker_needs_an_endpoint(
    onefold: Onefold, visit: Visitor
) -> None:
    row = WorkerRow(new_id(), "pusher", "web-1", 1, ("hooks",), None, 5)
    onefold.context.store.transact(lambda sql: workers.save(sql, row))
    onefold.queues.save("hooks", QueueSettings(endpoint="http://127.0.0.1:9/"))
    onefold.enqueue("charge", queue="hooks")
    onefold.enqueue("charge", queue="payments")

    overview = visit.open("/").part("Workers").text

    assert "0 alive, and 1 that pushes to endpoints" in overview
    assert "No worker runs for queues without an endpoint." in overview
    assert "No worker that is alive takes the due jobs of payments." in overview
    assert "0 workers, 1 push worker alive" in visit.open("/workers").text
    assert "any: pushes to endpoints" in visit.page.text
