"""Schedules: their ticks, and run now, pause, resume."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from onefold import Onefold
from onefold.server.dashboard.pages.schedules import in_words
from tests.dashboard.seed import HOSTILE
from tests.dashboard.visiting import Visitor


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
