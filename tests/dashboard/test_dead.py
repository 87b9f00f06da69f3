"""Dead letters: find them, replay or drop one, some or all."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

from onefold import NewJob, Onefold
from onefold.server.dashboard.pages import dead
from onefold.testing.jobs import drain
from tests.dashboard.conftest import LogIn
from tests.dashboard.seed import HOSTILE, LEASE, Seeded, in_thread
from tests.fixtures.colours import Dialect

BOTH: list[Dialect] = ["sqlite", "postgres"]


def bury(onefold: Onefold, count: int, *, queue: str = "many", kind: str = "ship") -> list[str]:
    """Dead letters of one kind."""
    made = onefold.enqueue_many([NewJob(kind, {"n": n}, queue=queue) for n in range(count)])
    left = count
    while left:
        taken = onefold.deliveries.take([queue], worker="test", lease=LEASE, limit=left)
        onefold.deliveries.bury(taken, reason="failed", error={"type": "OutOfStock"})
        left -= len(taken)
    return [item.id for item in made.items]


def rows(page: Page) -> list[str]:
    """The ids of the listed jobs."""
    found: list[str] = page.locator("tbody tr").evaluate_all("all => all.map(r => r.dataset.key)")
    return found


def states(onefold: Onefold, ids: list[str]) -> set[str]:
    found = [onefold.get(job_id) for job_id in ids]
    return {"deleted" if job is None else job.state for job in found}


def confirm(page: Page) -> None:
    page.get_by_role("dialog").get_by_role("button", name="Continue").dblclick()


@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.parametrize(
    "wanted",
    [
        ("Queue", "payments", ["dead"]),
        ("Kind", "import_catalog", ["hostile"]),
        ("Reason", "failed", ["dead"]),
        ("Type of error", "tests.dashboard.seed.CardDeclined", ["dead"]),
    ],
)
def test_a_filter_finds_dead_letters(
    seeded: Seeded, url: str, page: Page, wanted: tuple[str, str, list[str]]
) -> None:
    field, value, found = wanted
    page.goto(f"{url}/dead")
    assert {seeded.dead, seeded.hostile} <= set(rows(page))

    page.get_by_label(field, exact=True).fill(value)
    page.get_by_role("button", name="Filter").click()

    page.wait_for_url(re.compile(r"\?"))
    assert rows(page) == [getattr(seeded, name) for name in found]


def test_a_time_finds_dead_letters_and_another_text_is_an_error(
    seeded: Seeded, url: str, page: Page
) -> None:
    moment = datetime.now(UTC) - timedelta(minutes=5)
    page.goto(f"{url}/dead")
    page.get_by_label("Ended before").fill(moment.strftime("%Y-%m-%dT%H:%M"))
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile("before="))
    assert seeded.dead in rows(page)
    assert seeded.hostile not in rows(page)

    page.goto(f"{url}/dead?from={moment:%Y-%m-%dT%H:%M}")
    assert rows(page) == [seeded.hostile]
    page.goto(f"{url}/dead?from=yesterday")
    expect(page.get_by_role("alert")).to_contain_text("must be a time")


def test_a_row_opens_the_job(seeded: Seeded, url: str, page: Page) -> None:
    page.goto(f"{url}/dead?queue=payments")
    page.keyboard.press("j")
    page.keyboard.press("Enter")

    page.wait_for_url(f"{url}/jobs/{seeded.dead}")


@pytest.mark.parametrize("dialect", BOTH)
def test_the_selected_dead_letters_are_replayed_once(
    onefold: Onefold, url: str, page: Page
) -> None:
    first, second, third = in_thread(lambda: bury(onefold, 3))
    page.goto(f"{url}/dead")

    for job_id in (first, third):
        page.locator(f'[data-key="{job_id}"] input').check()
    page.get_by_role("button", name="Replay selected").dblclick()

    expect(page.locator(".toast")).to_contain_text("2 dead letters queued again.")
    assert "stayed" not in page.locator(".toast").inner_text()
    assert states(onefold, [first, third]) == {"ready"}
    assert states(onefold, [second]) == {"dead"}
    assert rows(page) == [second]


@pytest.mark.parametrize("dialect", BOTH)
def test_the_selected_dead_letters_are_dropped_after_a_confirmation(
    onefold: Onefold, url: str, page: Page
) -> None:
    made = in_thread(lambda: bury(onefold, 3))
    page.goto(f"{url}/dead")

    page.get_by_label("Select all on this page").check()
    page.locator(f'[data-key="{made[0]}"] input').uncheck()
    page.get_by_role("button", name="Drop selected").click()
    expect(page.get_by_role("dialog")).to_contain_text("cannot be undone")
    confirm(page)

    expect(page.locator(".toast")).to_contain_text("2 dead letters dropped.")
    assert states(onefold, made[1:]) == {"deleted"}
    assert states(onefold, made[:1]) == {"dead"}


def test_a_double_click_in_a_confirmation_does_not_reach_the_row_behind_it(
    onefold: Onefold, url: str, page: Page
) -> None:
    in_thread(lambda: bury(onefold, 20))
    page.goto(f"{url}/dead")

    page.get_by_role("button", name="Drop all").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep").dblclick()
    page.get_by_role("button", name="Replay all").click()
    confirm(page)

    expect(page.locator("#progress")).to_contain_text("20 dead letters queued again")


def test_a_refused_confirmation_drops_nothing(onefold: Onefold, url: str, page: Page) -> None:
    made = in_thread(lambda: bury(onefold, 2))
    page.goto(f"{url}/dead")

    page.get_by_role("button", name="Drop all").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep").click()

    expect(page.get_by_role("dialog")).to_have_count(0)
    assert states(onefold, made) == {"dead"}


def test_a_dead_letter_that_was_replayed_meanwhile_is_not_dropped(
    onefold: Onefold, url: str, browser: Browser
) -> None:
    (job_id,) = in_thread(lambda: bury(onefold, 1))
    # Without scripts, the page does not notice.
    plain = browser.new_context(java_script_enabled=False)
    page = plain.new_page()
    page.goto(f"{url}/dead")
    in_thread(lambda: onefold.replay(job_id))

    page.locator(f'[data-key="{job_id}"] input').check()
    page.get_by_role("button", name="Drop selected").click()
    page.get_by_role("button", name="Continue").click()

    expect(page.locator(".toast.failed")).to_contain_text("1 dead letter stayed")
    assert states(onefold, [job_id]) == {"ready"}
    plain.close()


def test_nothing_selected_says_what_to_do(onefold: Onefold, url: str, page: Page) -> None:
    in_thread(lambda: bury(onefold, 1))
    page.goto(f"{url}/dead?queue=many")

    page.get_by_role("button", name="Replay selected").click()

    expect(page.locator(".toast.failed")).to_contain_text("Select one or more")
    assert page.url == f"{url}/dead?queue=many"


@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.parametrize(
    "action",
    [("Replay", "ready", "queued again"), ("Drop", "deleted", "dropped")],
)
def test_all_that_match_are_changed_in_batches_and_the_page_counts_them(
    onefold: Onefold, url: str, page: Page, action: tuple[str, str, str]
) -> None:
    verb, after, words = action
    made = in_thread(lambda: bury(onefold, 2 * dead.BATCH + 5))
    others = in_thread(lambda: bury(onefold, 2, queue="others", kind="bill"))
    page.goto(f"{url}/dead?kind=ship")
    posted: list[str] = []
    page.on("request", lambda got: posted.append(got.url) if got.method == "POST" else None)

    page.get_by_role("button", name=f"{verb} all that match").click()
    confirm(page)

    expect(page.locator("#progress")).to_contain_text(f"405 dead letters {words}")
    expect(page.get_by_role("progressbar")).to_have_attribute("value", "1")
    assert states(onefold, made) == {after}
    assert states(onefold, others) == {"dead"}
    assert posted == [f"{url}/dead/all"] * 3
    page.get_by_role("link", name="Show the dead letters").click()
    page.wait_for_url(f"{url}/dead?kind=ship")
    expect(page.locator(".empty")).to_contain_text("No dead letters match")


def test_without_scripts_each_click_replays_one_batch(
    onefold: Onefold, url: str, browser: Browser
) -> None:
    made = in_thread(lambda: bury(onefold, dead.BATCH + 5))
    plain = browser.new_context(java_script_enabled=False)
    page = plain.new_page()
    page.goto(f"{url}/dead")

    page.get_by_role("button", name="Replay all").click()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#done")).to_have_text(str(dead.BATCH))
    assert len(onefold.dead.find(limit=10)) == 5
    page.get_by_role("button", name="Continue").dblclick()

    expect(page.locator("#done")).to_have_text(str(len(made)))
    assert states(onefold, made) == {"ready"}
    plain.close()


def test_a_letter_whose_key_a_newer_job_holds_stays_and_is_counted(
    onefold: Onefold, url: str, page: Page
) -> None:
    def made() -> str:
        job_id = onefold.enqueue("ship", {}, queue="many", unique_key="order:7").id
        (taken,) = onefold.deliveries.take(["many"], worker="test", lease=LEASE)
        onefold.deliveries.bury([taken], reason="failed")
        onefold.enqueue("ship", {}, queue="many", unique_key="order:7")
        return job_id

    job_id = in_thread(made)
    page.goto(f"{url}/dead")

    page.get_by_role("button", name="Replay all").click()
    confirm(page)

    expect(page.locator("#progress")).to_contain_text("1 stayed")
    assert states(onefold, [job_id]) == {"dead"}


def test_a_visitor_who_may_only_read_sees_no_action(
    seeded: Seeded, url: str, page: Page, log_in: LogIn
) -> None:
    log_in("read")
    page.goto(f"{url}/dead")

    assert seeded.dead in rows(page)
    assert page.locator("main form[method=post], main input[type=checkbox]").count() == 0


def test_a_tenant_replays_its_own_dead_letters_only(
    onefold: Onefold, url: str, page: Page, log_in: LogIn
) -> None:
    own = in_thread(lambda: bury(onefold.tenant("acme"), 2, queue="{acme}ship"))  # type: ignore[arg-type] # the calls of a tenant
    others = in_thread(lambda: bury(onefold, 2))
    log_in("admin", "acme")
    page.goto(f"{url}/dead?queue=ship")
    assert rows(page) == own[::-1]

    page.get_by_role("button", name="Replay all that match").click()
    confirm(page)

    expect(page.locator("#progress")).to_contain_text("2 dead letters queued again")
    assert states(onefold, others) == {"dead"}


def test_what_a_caller_has_chosen_is_never_html(seeded: Seeded, url: str, page: Page) -> None:
    page.goto(f"{url}/dead?kind=import_catalog")

    assert rows(page) == [seeded.hostile]
    assert page.locator("main img").count() == 0
    assert HOSTILE in page.locator("tbody").inner_text()


def test_an_empty_list_says_what_a_dead_letter_is(url: str, page: Page) -> None:
    page.goto(f"{url}/dead")

    expect(page.locator(".empty")).to_contain_text("No job has failed for good.")


def test_a_new_dead_letter_appears_and_the_ticks_stay(
    onefold: Onefold, url: str, page: Page
) -> None:
    (first,) = in_thread(lambda: bury(onefold, 1))
    page.goto(f"{url}/dead")
    expect(page.locator("#live")).to_have_text("Live")
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
