"""The list of jobs, one job, and what can be done with it."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from onefold import NewJob, Onefold
from onefold.operations.jobs import SCANNED
from tests.dashboard.seed import HOSTILE, Seeded, in_thread
from tests.fixtures.colours import Dialect, Store

BOTH: list[Dialect] = ["sqlite", "postgres"]


def rows(page: Page) -> list[str]:
    """The ids of the jobs in the list."""
    found: list[str] = page.locator("tbody tr").evaluate_all("all => all.map(r => r.dataset.key)")
    return found


@pytest.mark.parametrize("dialect", BOTH)
def test_the_list_has_the_newest_jobs_first_with_their_states(
    seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/jobs")

    assert rows(page)[0] == seeded.ready
    assert rows(page) == sorted(rows(page), reverse=True)
    for state in ("scheduled", "ready", "running", "retrying", "awaiting", "completed", "dead"):
        row = page.locator(f'[data-key="{getattr(seeded, state)}"]')
        expect(row.locator(".badge")).to_have_text(state)


@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.parametrize(
    "wanted",
    [
        ("Kind", "notify_partner", "awaiting"),
        ("Queue", "reports", "running"),
        ("Key", "charge:o-1042", "completed"),
        ("Tag", "vip", "completed"),
        ("Text in the payload", "KETTLE", "completed"),
    ],
)
def test_a_filter_finds_the_jobs_that_match(
    seeded: Seeded, url: str, page: Page, wanted: tuple[str, str, str]
) -> None:
    field, value, state = wanted
    page.goto(f"{url}/jobs")

    page.get_by_label(field, exact=True).fill(value)
    page.get_by_role("button", name="Filter").click()

    page.wait_for_url(re.compile(f"{field.lower().split()[0]}="))
    assert rows(page) == [getattr(seeded, state)]


def test_a_text_that_recent_jobs_do_not_have_is_searched_in_older_ones_on_request(
    onefold: Onefold, url: str, page: Page
) -> None:
    def made() -> str:
        oldest = onefold.enqueue("email", {"to": "Ada"}).id
        onefold.enqueue_many([NewJob("email")] * SCANNED)
        return oldest

    oldest = in_thread(made)
    page.goto(f"{url}/jobs?text=ada")
    expect(page.locator(".empty")).to_contain_text("None of the 2,000 jobs that were searched")

    page.get_by_role("link", name="Search the next 2,000").click()

    page.wait_for_url("**/jobs?text=ada&after=*")
    assert rows(page) == [oldest]


def test_an_id_finds_its_job_and_another_text_is_an_error_on_the_page(
    seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/jobs?id={seeded.dead}")
    assert rows(page) == [seeded.dead]
    page.goto(f"{url}/jobs?id={seeded.dead[:8]}&state=dead&queue=payments")
    assert rows(page) == [seeded.dead]

    page.goto(f"{url}/jobs?id=nonsense")
    expect(page.get_by_role("alert")).to_contain_text("must be")


def test_each_state_has_a_tab(seeded: Seeded, url: str, page: Page) -> None:
    page.goto(f"{url}/jobs")

    page.get_by_role("link", name="Cancelled").click()

    page.wait_for_url("**/jobs?state=cancelled")
    assert rows(page) == [seeded.cancelled]


def test_a_long_list_has_pages(onefold: Onefold, url: str, page: Page) -> None:
    made = [onefold.enqueue("count", {"number": number}).id for number in range(60)]
    page.goto(f"{url}/jobs")
    first = rows(page)

    page.get_by_role("link", name="Next page").click()
    page.wait_for_url("**/jobs?after=*")

    assert [*first, *rows(page)] == made[::-1]
    page.get_by_role("link", name="First page").click()
    page.wait_for_url(f"{url}/jobs")


def test_an_empty_list_says_what_to_do_next(url: str, page: Page) -> None:
    page.goto(f"{url}/jobs")
    expect(page.locator(".empty")).to_contain_text("onefold.enqueue(")

    page.goto(f"{url}/jobs?kind=nothing")
    page.get_by_role("link", name="Show all jobs").click()
    page.wait_for_url(f"{url}/jobs")


@pytest.mark.parametrize("dialect", BOTH)
def test_a_completed_job_shows_payload_steps_result_and_duplicates(
    seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/jobs/{seeded.completed}")

    expect(page.get_by_role("region", name="Payload")).to_contain_text('"order": "o-1042"')
    steps = page.get_by_role("region", name="Steps")
    assert steps.locator(".event-head .mono").all_inner_texts() == ["reserve", "charge"]
    expect(page.get_by_role("region", name="Result")).to_contain_text("ch_o-1042")
    expect(page.get_by_role("region", name="Metadata")).to_contain_text("checkout-7f3a")
    keys = page.get_by_role("region", name="Keys")
    expect(keys.locator(".figure")).to_have_text("3")
    for number in range(3):
        expect(keys).to_contain_text(f"req-{number}-8c1d")


@pytest.mark.parametrize("dialect", BOTH)
def test_a_dead_job_shows_each_delivery_with_fence_worker_duration_and_traceback(
    onefold: Onefold, seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/jobs/{seeded.dead}")

    deliveries = page.get_by_role("region", name="Deliveries").get_by_role("listitem")
    expect(deliveries).to_have_count(3)
    for number, attempt in enumerate(reversed(onefold.deliveries.attempts(seeded.dead))):
        shown = deliveries.nth(number)
        expect(shown).to_contain_text(f"fence {attempt.fence}")
        expect(shown).to_contain_text(attempt.worker or "")
        expect(shown).to_contain_text("took ")
        expect(shown.locator(".badge")).to_have_text(attempt.outcome)
    deliveries.first.get_by_text("Traceback").click()
    expect(deliveries.first.locator("pre")).to_contain_text("in charge_card")


def test_a_job_that_is_not_there_is_a_page_that_says_so(url: str, page: Page) -> None:
    for job_id in ("01a1e913-0000-7000-8000-000000000000", "nonsense"):
        response = page.goto(f"{url}/jobs/{job_id}")

        assert response is not None
        assert response.status == 404
        expect(page.get_by_role("heading", name="No such job")).to_be_visible()


@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.parametrize(
    "action",
    [
        ("ready", "Cancel", "The job is cancelled.", "cancelled"),
        ("dead", "Replay", "The job is queued again.", "ready"),
        ("cancelled", "Replay", "The job is queued again.", "ready"),
        ("completed", "Run again", "The job is queued again.", "ready"),
        ("scheduled", "Run now", "The job is due now.", "ready"),
    ],
)
def test_a_double_click_on_an_action_does_it_once(
    onefold: Onefold, seeded: Seeded, url: str, page: Page, action: tuple[str, str, str, str]
) -> None:
    state, button, notice, after = action
    job_id: str = getattr(seeded, state)
    before = onefold.get(job_id)
    assert before is not None
    page.goto(f"{url}/jobs/{job_id}")

    page.get_by_role("button", name=button).dblclick()

    # A second run would say that it was done before.
    expect(page.locator(".toast")).to_contain_text(notice)
    expect(page.locator(".heading .badge")).to_have_text(after)
    job = onefold.get(job_id)
    assert job is not None
    assert job.state == after
    assert job.generation == before.generation + (state == "completed")
    assert "notice" not in page.url


def test_run_now_makes_a_job_due_that_waits_for_its_retry(
    onefold: Onefold, seeded: Seeded, url: str, page: Page
) -> None:
    before = onefold.get(seeded.retrying)
    page.goto(f"{url}/jobs/{seeded.retrying}")

    page.get_by_role("button", name="Run now").click()

    expect(page.locator(".toast")).to_contain_text("The job")
    job = onefold.get(seeded.retrying)
    assert job is not None
    assert before is not None
    assert (job.state, job.attempt, job.error) == ("retrying", before.attempt, before.error)
    assert job.run_at <= before.run_at


def test_an_action_that_is_not_possible_any_more_says_why(
    onefold: Onefold, seeded: Seeded, url: str, browser: Browser
) -> None:
    # Without scripts, the page does not notice that the job has ended.
    plain = browser.new_context(java_script_enabled=False)
    page = plain.new_page()
    page.goto(f"{url}/jobs/{seeded.running}")
    in_thread(lambda: onefold.deliveries.acknowledge(seeded.running))

    page.get_by_role("button", name="Cancel").click()

    expect(page.locator(".toast.failed")).to_contain_text("completed")
    expect(page.locator(".heading .badge")).to_have_text("completed")
    plain.close()


def test_what_a_caller_has_chosen_is_never_html(seeded: Seeded, url: str, page: Page) -> None:
    for path in ("/jobs", f"/jobs/{seeded.hostile}", "/jobs?state=dead"):
        page.goto(url + path)

        assert page.locator("main img").count() == 0
        assert page.title() != "1"
        expect(page.locator("main")).to_contain_text("onerror=")
    page.goto(f"{url}/jobs/{seeded.hostile}")
    assert HOSTILE in page.get_by_role("region", name="Keys").inner_text()
    page.get_by_role("region", name="Deliveries").get_by_text("Traceback").click()
    expect(page.locator(".trace pre").first).to_contain_text(HOSTILE)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("charge:o-1042", "/jobs?key=charge%3Ao-1042"),
        ("render_invoice", "/jobs?kind=render_invoice"),
        ("documents", "/jobs?queue=documents"),
        ("vip", "/jobs?tag=vip"),
        ("dead", "/jobs?state=dead"),
        ("kind:unknown", "/jobs?kind=unknown"),
        ("text:kettle", "/jobs?text=kettle"),
        ("no such text", "/jobs?key=no+such+text"),
    ],
)
def test_a_search_finds_jobs_by_any_property(
    seeded: Seeded, url: str, page: Page, text: str, found: str
) -> None:
    page.goto(f"{url}/jobs")
    page.keyboard.press("/")
    page.keyboard.type(text)
    page.keyboard.press("Enter")

    page.wait_for_url(url + found)


def test_a_search_for_an_id_opens_the_job_and_its_first_digits_list_it(
    seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/search?q={seeded.dead}")
    page.wait_for_url(f"{url}/jobs/{seeded.dead}")

    page.goto(f"{url}/search?q={seeded.dead[:23]}")
    page.wait_for_url(f"{url}/jobs?id={seeded.dead[:23]}")
    assert seeded.dead in rows(page)


def test_a_new_job_appears_by_itself_and_the_focus_stays(
    onefold: Onefold, seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/jobs")
    expect(page.locator("#live")).to_have_text("Live")
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
    page.goto(f"{url}/jobs/{seeded.running}")
    expect(page.locator("#live")).to_have_text("Live")
    elsewhere = store.open()

    in_thread(lambda: elsewhere.deliveries.acknowledge(seeded.running))

    expect(page.locator(".heading .badge")).to_have_text("completed")
