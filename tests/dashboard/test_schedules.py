"""Schedules: their ticks, and run now, pause, resume."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from playwright.sync_api import Page, expect

from onefold import Onefold
from onefold.server.dashboard.pages.schedules import in_words
from tests.dashboard.conftest import LogIn
from tests.dashboard.seed import HOSTILE, in_thread
from tests.fixtures.colours import Dialect, Store

BOTH: list[Dialect] = ["sqlite", "postgres"]


@pytest.fixture
def scheduled(store: Store) -> Onefold:
    """A database with schedules."""
    onefold = store.open()

    def save() -> None:
        onefold.schedules.save("report", "30 6 * * 1-5", kind="send_report", tz="Europe/Berlin")
        onefold.schedules.save("tidy", "*/15 * * * *", kind="tidy_up", queue="chores")
        onefold.schedules.save(
            "odd", "5 4 1,15 2-5 *", kind="audit", payload={"note": HOSTILE}, catch_up="all"
        )
        onefold.schedules.pause("odd")

    in_thread(save)
    return onefold


def card(page: Page, name: str) -> str:
    return page.locator(f'[data-key="{name}"]').inner_text()


@pytest.mark.parametrize("dialect", BOTH)
def test_a_schedule_shows_its_words_zone_and_next_five_ticks(
    scheduled: Onefold, url: str, page: Page
) -> None:
    page.goto(f"{url}/schedules")

    assert "Monday to Friday at 06:30" in card(page, "report")
    assert "Europe/Berlin" in card(page, "report")
    assert "every 15 minutes" in card(page, "tidy")
    assert "chores" in card(page, "tidy")
    moments: list[str] = page.locator(
        '[data-key="tidy"] .ticks li > time:first-child'
    ).evaluate_all("all => all.map(time => time.dateTime)")
    ticks = [datetime.fromisoformat(moment) for moment in moments]
    assert len(ticks) == 5
    assert ticks[0] > datetime.now(UTC)
    assert {later - tick for tick, later in pairwise(ticks)} == {timedelta(minutes=15)}
    odd = page.locator('[data-key="odd"]')
    expect(odd.locator(".badge")).to_have_text("paused")
    expect(odd).to_contain_text("5 4 1,15 2-5 *")
    expect(odd).to_contain_text("None while it is paused.")


@pytest.mark.parametrize("dialect", BOTH)
def test_a_double_click_on_run_now_enqueues_one_job(
    scheduled: Onefold, url: str, page: Page
) -> None:
    page.goto(f"{url}/schedules")

    page.locator('[data-key="report"]').get_by_role("button", name="Run now").dblclick()

    expect(page.locator(".toast")).to_contain_text("The schedule report has enqueued this job.")
    expect(page.locator("h1")).to_have_text("send_report")
    assert len(scheduled.find(kind="send_report")) == 1


@pytest.mark.parametrize("dialect", BOTH)
def test_a_schedule_is_paused_and_resumed_once(scheduled: Onefold, url: str, page: Page) -> None:
    page.goto(f"{url}/schedules")

    page.locator('[data-key="tidy"]').get_by_role("button", name="Pause").dblclick()
    expect(page.locator(".toast")).to_contain_text("tidy is paused.")
    expect(page.locator('[data-key="tidy"] .badge')).to_have_text("paused")
    assert {one.name for one in scheduled.schedules.find() if one.paused} == {"odd", "tidy"}

    page.locator('[data-key="tidy"]').get_by_role("button", name="Resume").dblclick()
    expect(page.locator(".toast")).to_contain_text("tidy continues from now.")
    expect(page.locator('[data-key="tidy"] .badge')).to_have_text("active")


def test_a_schedule_that_was_removed_is_an_error_on_the_page(
    scheduled: Onefold, url: str, page: Page
) -> None:
    page.goto(f"{url}/schedules")
    in_thread(lambda: scheduled.schedules.delete("tidy"))

    page.locator('[data-key="tidy"]').get_by_role("button", name="Pause").click()

    expect(page.locator(".toast.failed")).to_contain_text("tidy")
    expect(page.locator('[data-key="tidy"]')).to_have_count(0)


def test_a_visitor_who_may_only_read_sees_no_action(
    scheduled: Onefold, url: str, page: Page, log_in: LogIn
) -> None:
    log_in("read")
    page.goto(f"{url}/schedules")

    assert "every 15 minutes" in card(page, "tidy")
    assert page.locator("main form").count() == 0


def test_a_tenant_sees_its_own_schedules_only(
    scheduled: Onefold, url: str, page: Page, log_in: LogIn
) -> None:
    in_thread(lambda: scheduled.tenant("acme").schedules.save("own", "@daily", kind="own"))
    log_in("admin", "acme")
    page.goto(f"{url}/schedules")

    assert page.locator(".schedule h2").all_inner_texts() == ["own"]


def test_without_schedules_the_page_says_how_to_make_one(url: str, page: Page) -> None:
    page.goto(f"{url}/schedules")

    expect(page.locator(".empty")).to_contain_text("onefold.schedules.save(")


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
