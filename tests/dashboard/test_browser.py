"""What needs a browser: scripts, the policy of content, live pages, the keyboard, double clicks."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from onefold import Onefold
from onefold.server.dashboard.navigation import NAVIGATION
from onefold.server.dashboard.pages import dead
from onefold.testing.jobs import drain
from tests.dashboard.conftest import LogIn
from tests.dashboard.seed import Seeded, bury, in_thread, states
from tests.dashboard.seed_keys import detail, fill_day, pages, seed_keys
from tests.dashboard.visiting import SECRET
from tests.fixtures.browser import PATIENCE
from tests.fixtures.colours import Dialect, Store
from tests.fixtures.serving import serving


@pytest.fixture
def dialect() -> Dialect:
    """The scripts do not know the database."""
    return "sqlite"


@pytest.fixture
def plain(browser: Browser) -> Iterator[Page]:
    """A tab without scripts."""
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


def rows(page: Page) -> list[str]:
    """The keys of the rows of a table."""
    found: list[str] = page.locator("tbody tr").evaluate_all("all => all.map(r => r.dataset.key)")
    return found


def live(page: Page, url: str) -> None:
    """Open a page that refreshes by itself."""
    page.goto(url)
    expect(page.locator("#live")).to_have_text("Live")


def width(page: Page) -> int:
    found: int = page.evaluate("document.documentElement.scrollWidth")
    return found


# --- all pages ------------------------------------------------------------------------------------


UNNAMED = """
() => {
  const visible = (element) => element.checkVisibility();
  const nameOf = (element) => [
    element.ariaLabel ?? "",
    ...[...(element.labels ?? [])].map((label) => label.textContent),
    element.matches("a, button, summary") ? element.textContent : "",
  ].join("").trim();
  const count = (selector) => [...document.querySelectorAll(selector)].filter(visible).length;
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  const wrong = [...document.querySelectorAll("a, button, summary, input, select, textarea")]
    .filter((element) => visible(element) && !nameOf(element)).map((element) => element.outerHTML);
  for (const [selector, wanted] of [["h1", 1], ["main", 1], ["img:not([alt])", 0]])
    if (count(selector) !== wanted) wrong.push(`${count(selector)} ${selector}`);
  if (document.documentElement.lang !== "en") wrong.push("lang");
  if (!/^\\S.* · Onefold$/.test(document.title)) wrong.push(`title ${document.title}`);
  if (new Set(ids).size !== ids.length) wrong.push("ids repeat");
  return wrong;
}
"""
"""What a screen reader cannot tell apart, and what it looks for in vain."""


def test_every_page_fits_the_screen_and_names_all_that_can_be_used_and_loads_nothing_else(
    seeded: Seeded, url: str, page: Page, log_in: LogIn
) -> None:
    wrong: dict[str, object] = {}
    errors: list[str] = []
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda got: errors.append(got.text) if got.type == "error" else None)
    page.goto(f"{url}/login")
    wrong["/login"] = page.evaluate(UNNAMED)
    log_in()
    for path in pages(seeded):
        response = page.goto(url + path)
        assert response is not None
        if response.status >= 400:
            errors.clear()  # The browser reports the status.
        if "text/html" not in response.headers["content-type"]:
            continue
        inline = page.locator("style, [style], script:not([src]), [onclick]").count()
        page.set_viewport_size({"width": 375, "height": 812})
        phone = width(page)
        page.set_viewport_size({"width": 1100, "height": 800})
        found = (page.evaluate(UNNAMED), inline, phone, width(page))
        if found != ([], 0, 375, 1100):
            wrong[path] = found

    assert {path: found for path, found in wrong.items() if found} == {}
    assert errors == []
    assert [found for found in asked if not found.startswith(url)] == []


def test_pages_without_data_fit_a_phone_and_show_the_focus(url: str, page: Page) -> None:
    page.goto(f"{url}/queues")
    page.wait_for_selector("html[data-ready]")
    hidden: list[str] = []
    for _ in range(page.locator("a, button, input, summary").count()):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "[document.activeElement.outerHTML, getComputedStyle(document.activeElement).outline]"
        )
        if "solid 2px" not in focused[1]:
            hidden.append(focused[0])
        if "<body" in focused[0]:
            break

    assert [found for found in hidden if "<body" not in found] == []

    page.set_viewport_size({"width": 375, "height": 812})
    widths: dict[str, int] = {}
    for item in NAVIGATION:
        page.goto(url + item.path)
        widths[item.path] = width(page)

    assert set(widths.values()) == {375}, widths


def background(page: Page) -> str:
    found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def test_the_theme_follows_the_system_until_the_visitor_chooses_and_so_does_motion(
    url: str, page: Page, seeded: Seeded
) -> None:
    light, dark = "rgb(246, 247, 249)", "rgb(12, 15, 20)"
    page.emulate_media(color_scheme="dark")
    page.goto(f"{url}/jobs")
    assert background(page) == dark
    page.emulate_media(color_scheme="light")
    assert background(page) == light

    page.get_by_role("button", name="Light or dark").click()
    assert background(page) == dark
    page.reload()
    assert background(page) == dark

    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{url}/jobs/{seeded.ready}")

    page.get_by_role("button", name="Cancel").click()

    assert page.locator(".toast").evaluate("e => getComputedStyle(e).animationName") == "none"


# --- the keyboard ---------------------------------------------------------------------------------


def test_a_list_is_operated_by_keyboard(store: Store, seeded: Seeded, url: str, page: Page) -> None:
    seed_keys(store)
    page.goto(f"{url}/jobs")
    keys = rows(page)
    for key in ("j", "j", "k", "j"):
        page.keyboard.press(key)
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url(f"{url}/jobs/{keys[1]}")

    for path, first in (
        ("/queues", f"{url}/queues/default"),
        ("/dead?queue=payments", f"{url}/jobs/{seeded.dead}"),
        ("/keys", f"{url}/keys/detail?*"),
    ):
        page.goto(url + path)
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url(first)


def test_the_keyboard_searches_and_opens_the_help_and_skips_to_the_content(
    seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/jobs")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"

    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)

    page.keyboard.press("/")
    page.keyboard.type("render_invoice")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{url}/jobs?kind=render_invoice")


# --- double clicks and dialogs --------------------------------------------------------------------


def test_a_page_works_without_scripts(
    onefold: Onefold, seeded: Seeded, url: str, plain: Page
) -> None:
    plain.goto(f"{url}/jobs/{seeded.ready}")
    plain.get_by_role("button", name="Cancel").dblclick()
    expect(plain.locator(".toast")).to_contain_text("The job is cancelled.")

    made = in_thread(lambda: bury(onefold, 3))
    plain.goto(f"{url}/dead?queue=many")
    for job_id in made[:2]:
        plain.locator(f'[data-key="{job_id}"] input').check()
    plain.get_by_role("button", name="Drop selected").click()
    expect(plain.locator("main")).to_contain_text("This cannot be undone.")
    plain.get_by_role("button", name="Continue").click()
    expect(plain.locator(".toast")).to_contain_text("2 dead letters dropped.")
    assert rows(plain) == made[2:]


def test_a_double_click_creates_one_api_key_and_shows_its_text(
    onefold: Onefold, url: str, page: Page, log_in: LogIn
) -> None:
    own = log_in()
    page.goto(f"{url}/api-keys")
    page.get_by_text("Create a key").click()
    page.locator('input[name="scope"][value="work"]').check()
    page.locator('main input[name="name"]').fill("Worker 7")
    page.get_by_role("button", name="Create", exact=True).dblclick()
    text = page.locator("#secret").inner_text()
    (made,) = [key for key in onefold.api_keys.find() if key.id != own]
    assert in_thread(lambda: onefold.api_keys.check(text)).key == made


def test_a_refused_dialog_asks_again_and_its_double_click_does_not_reach_the_row_behind_it(
    onefold: Onefold, url: str, page: Page
) -> None:
    made = in_thread(lambda: bury(onefold, 20))
    page.goto(f"{url}/dead")

    for answer in ("Keep", "Continue"):
        page.get_by_role("button", name="Drop all").click()
        expect(page.get_by_role("dialog")).to_contain_text("This cannot be undone.")
        assert states(onefold, made) == {"dead"}
        page.get_by_role("dialog").get_by_role("button", name=answer).dblclick()

    expect(page.locator("#progress")).to_contain_text("20 dead letters dropped")


def test_all_on_this_page_are_selected_by_one_tick(onefold: Onefold, url: str, page: Page) -> None:
    made = in_thread(lambda: bury(onefold, 3))
    page.goto(f"{url}/dead")

    page.get_by_label("Select all on this page").check()
    page.locator(f'[data-key="{made[0]}"] input').uncheck()
    page.get_by_role("button", name="Replay selected").dblclick()

    expect(page.locator(".toast")).to_contain_text("2 dead letters queued again.")
    assert rows(page) == made[:1]


def test_a_script_repeats_the_batches_and_the_page_counts_them(
    onefold: Onefold, url: str, page: Page
) -> None:
    made = in_thread(lambda: bury(onefold, 2 * dead.BATCH + 5))
    page.goto(f"{url}/dead?kind=ship")
    posted: list[str] = []
    page.on("request", lambda got: posted.append(got.url) if got.method == "POST" else None)

    page.get_by_role("button", name="Replay all that match").click()
    page.get_by_role("dialog").get_by_role("button", name="Continue").dblclick()

    expect(page.locator("#progress")).to_contain_text(f"{len(made)} dead letters queued again")
    expect(page.get_by_role("progressbar")).to_have_attribute("value", "1")
    assert states(onefold, made) == {"ready"}
    assert posted == [f"{url}/dead/all"] * 3


def test_the_text_of_a_form_survives_a_dialog(
    store: Store, onefold: Onefold, url: str, page: Page
) -> None:
    seed_keys(store)
    page.goto(url + detail("once", "charge", "o-1043"))

    page.get_by_label("Result (JSON)").fill('{"charge": "<by hand>"}')
    page.get_by_role("button", name="Settle").click()
    page.get_by_role("dialog").get_by_role("button", name="Continue").dblclick()

    expect(page.locator(".toast")).to_contain_text("The key is settled")
    (key,) = onefold.keys.find(key="o-1043", results=True)
    assert key.result == {"charge": "<by hand>"}


# --- live -----------------------------------------------------------------------------------------


def test_a_new_job_appears_by_itself_and_the_focus_stays(
    onefold: Onefold, seeded: Seeded, url: str, page: Page
) -> None:
    live(page, f"{url}/jobs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    focused = page.evaluate("document.activeElement.closest('tr').dataset.key")

    made = in_thread(lambda: onefold.enqueue("late", {}))

    expect(page.locator(f'[data-key="{made.id}"]')).to_be_visible()
    assert rows(page)[0] == made.id
    assert page.evaluate("document.activeElement.closest('tr').dataset.key") == focused


def test_a_job_of_a_worker_elsewhere_changes_by_itself(
    seeded: Seeded, url: str, store: Store, page: Page
) -> None:
    live(page, f"{url}/jobs/{seeded.running}")
    elsewhere = store.open()

    in_thread(lambda: elsewhere.deliveries.acknowledge(seeded.running))

    expect(page.locator(".heading .badge")).to_have_text("completed")


def test_a_new_dead_letter_appears_and_the_ticks_stay(
    onefold: Onefold, url: str, page: Page
) -> None:
    (first,) = in_thread(lambda: bury(onefold, 1))
    live(page, f"{url}/dead")
    page.locator(f'[data-key="{first}"] input').check()

    @onefold.job(max_attempts=1)
    def fail() -> None:
        raise ValueError("no address")

    def failed() -> str:
        job_id = fail.enqueue().id
        drain(onefold, raises=False)
        return job_id

    second = in_thread(failed)

    expect(page.locator(f'[data-key="{second}"]')).to_be_visible()
    expect(page.locator(f'[data-key="{first}"] input')).to_be_checked()
    expect(page.locator(f'[data-key="{second}"] input')).not_to_be_checked()


def test_a_revoked_key_ends_the_session_of_an_open_page(
    onefold: Onefold, log_in: LogIn, url: str, page: Page
) -> None:
    key_id = log_in()
    expect(page.locator("#live")).to_have_text("Live")

    onefold.api_keys.revoke(key_id)
    onefold.enqueue("any", {})

    page.wait_for_url(f"{url}/login")


def test_with_a_secret_an_open_page_continues_after_a_restart_of_the_server(
    store: Store, onefold: Onefold, page: Page, tmp_path: Path
) -> None:
    key = in_thread(lambda: onefold.api_keys.create(scopes=["admin"], name="Ada"))
    with serving(store.url, folder=tmp_path, ONEFOLD_SERVE_SECRET=SECRET) as server:
        url = server.url
        page.goto(f"{url}/login?next=/jobs")
        page.get_by_label("API key").fill(key.text)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{url}/jobs")
        expect(page.locator("#live")).to_have_text("Live")

        server.kill()
        expect(page.locator("#live")).to_have_text("Offline")
        made = in_thread(lambda: onefold.enqueue("late", {}))
        server.start()

        expect(page.locator(f'[data-key="{made.id}"]')).to_be_visible()
        expect(page.locator("#live")).to_have_text("Live")
        assert page.url == f"{url}/jobs"


def test_a_page_whose_stream_a_proxy_refuses_refreshes_by_itself(
    onefold: Onefold, url: str, page: Page
) -> None:
    page.clock.install()
    page.route("**/events", lambda route: route.fulfill(status=502))
    page.goto(f"{url}/jobs")
    expect(page.locator("#live")).to_have_text("Offline")

    made = in_thread(lambda: onefold.enqueue("late", {}))
    page.clock.run_for(7_000)

    expect(page.locator(f'[data-key="{made.id}"]')).to_be_visible()
    expect(page.locator("#live")).to_have_text("Live")


# --- charts ---------------------------------------------------------------------------------------


def card(page: Page, title: str) -> Locator:
    return page.get_by_role("figure", name=title)


def test_work_appears_in_the_charts_by_itself_with_an_event_and_without_one(
    onefold: Onefold, store: Store, seeded: Seeded, url: str, page: Page
) -> None:
    def twice(app: Onefold) -> None:
        for _ in range(2):
            app.enqueue("late", {}, unique_key="late:1")
        app.context.duplicate_log.flush()

    page.clock.install()
    live(page, url)
    figure = card(page, "Duplicates suppressed").locator(".figure")
    before = int(figure.inner_text())
    in_thread(lambda: twice(onefold))
    page.clock.run_for(2_000)
    expect(figure).to_have_text(str(before + 1))

    # What another process writes is no event here.
    in_thread(lambda: twice(store.open()))
    page.clock.run_for(12_000)
    expect(figure).not_to_have_text(str(before + 1))


def test_a_chart_shows_its_values_by_pointer_and_by_keyboard(
    onefold: Onefold, url: str, page: Page
) -> None:
    in_thread(lambda: fill_day(onefold))
    page.goto(f"{url}/?last=24h")
    page.wait_for_selector("html[data-ready]")
    cells = (
        card(page, "Latency")
        .locator("tbody tr")
        .evaluate_all("all => all.map(row => [...row.cells].map(cell => cell.textContent.trim()))")
    )
    tip = page.locator(".chart-tip")

    def expected(at: int) -> str:
        moment, waited, ran = cells[at]
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


def test_the_times_below_a_narrow_chart_do_not_overlap(
    seeded: Seeded, url: str, browser: Browser
) -> None:
    narrow: BrowserContext = browser.new_context(
        viewport={"width": 1100, "height": 800}, locale="en-US"
    )
    page = narrow.new_page()
    page.goto(url)
    page.wait_for_selector("html[data-ready]")
    labels = page.locator("#chart-latency .chart > .chart-label[y='148']").filter(visible=True)
    boxes: list[tuple[float, float]] = labels.evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(box => [box.left, box.right])"
    )
    values = page.locator("#chart-latency .chart-axis text")
    starts: list[float] = values.evaluate_all("all => all.map(one => one.getBBox().x)")
    narrow.close()

    assert min(starts) >= 0
    assert len(boxes) == 3
    assert all(one[1] < other[0] for one, other in pairwise(boxes))


def test_times_are_the_visitors_and_ticks_those_of_the_schedule(
    onefold: Onefold, seeded: Seeded, url: str, browser: Browser
) -> None:
    in_thread(lambda: onefold.schedules.save("tidy", "0 3 * * *", kind="t", tz="Europe/Berlin"))
    abroad: BrowserContext = browser.new_context(timezone_id="Asia/Tokyo", locale="de-DE")
    abroad.set_default_timeout(PATIENCE)
    page = abroad.new_page()
    page.goto(f"{url}/schedules")
    page.wait_for_selector("html[data-ready]")
    ticks = page.locator(".ticks time:not([data-time])").all_inner_texts()
    page.goto(f"{url}/dead")
    page.wait_for_selector("html[data-ready]")
    ended = page.locator("tbody tr time").first
    shown, title = ended.inner_text(), ended.get_attribute("title")

    typed = shown[:16].replace(" ", "T")
    page.get_by_label("Ended from (Asia/Tokyo)").fill(typed)
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**/dead?*")
    page.wait_for_selector("html[data-ready]")
    kept = page.get_by_label("Ended from (Asia/Tokyo)").input_value()
    found = rows(page)
    abroad.close()

    assert len(ticks) == 5
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d 03:00:00 CES?T", tick) for tick in ticks)
    at = datetime.strptime(shown, "%Y-%m-%d %H:%M:%S GMT+9").replace(tzinfo=ZoneInfo("Asia/Tokyo"))
    assert title == f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    assert kept == typed
    assert found == [seeded.hostile]
