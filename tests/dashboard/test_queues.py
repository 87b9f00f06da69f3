"""The list of queues, one queue, its form, and what can be done with it."""

import re
from datetime import timedelta

import pytest
from playwright.sync_api import Locator, Page, expect

from onefold import Onefold, Queue
from onefold.model.queue import QueueSettings
from tests.dashboard.conftest import LogIn
from tests.dashboard.seed import LEASE, Seeded, in_thread
from tests.dashboard.shop_day import SECRET, save_queues
from tests.fixtures.colours import Dialect

BOTH: list[Dialect] = ["sqlite", "postgres"]


@pytest.fixture
def saved(onefold: Onefold, seeded: Seeded) -> None:
    """The jobs come first: a held queue gives none."""
    in_thread(lambda: save_queues(onefold))


def queue(onefold: Onefold, name: str) -> Queue:
    found = in_thread(lambda: onefold.queues.get(name))
    assert found is not None
    return found


def row(page: Page, name: str) -> Locator:
    return page.locator(f'tr[data-key="{name}"]')


@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.usefixtures("saved")
def test_the_list_has_the_numbers_and_the_state_of_each_queue(
    seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/queues")

    def cells(name: str) -> list[str]:
        return row(page, name).locator("td.number").all_inner_texts()

    due, oldest, running, scheduled, retrying, dead = cells("email")
    assert (due, running, scheduled, retrying, dead) == ("4", "0", "1", "0", "0")
    assert re.search(r"\d", oldest)
    assert cells("reports")[2] == "1"
    assert cells("documents")[4:] == ["1", "0"]
    assert cells("payments")[4:] == ["0", "1"]
    assert cells("hostile")[4:] == ["0", "1"]
    expect(row(page, "documents").locator(".badge")).to_have_text("paused")
    expect(row(page, "partners").locator(".badge")).to_have_text("held")
    expect(row(page, "partners")).to_contain_text("5 failed pushes")
    expect(row(page, "payments")).to_contain_text("at most 4 at once, 100/m")


@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.usefixtures("saved")
def test_a_double_click_pauses_a_queue_once_and_another_resumes_it(
    onefold: Onefold, seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/queues")

    row(page, "payments").get_by_role("button", name="Pause").dblclick()

    expect(page.locator(".toast")).to_contain_text("The queue is paused.")
    expect(row(page, "payments").locator(".badge")).to_have_text("paused")
    assert queue(onefold, "payments").paused

    row(page, "payments").get_by_role("button", name="Resume").dblclick()

    expect(page.locator(".toast")).to_contain_text("The queue is resumed.")
    assert not queue(onefold, "payments").paused


def test_a_queue_that_only_has_jobs_can_be_paused_and_limited(
    onefold: Onefold, seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/queues/email")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".heading .badge")).to_have_text("paused")

    page.get_by_label("At once", exact=True).fill("three")
    page.get_by_role("button", name="Set limits").click()
    expect(page.get_by_label("At once", exact=True)).to_have_attribute("aria-invalid", "true")
    page.get_by_label("At once", exact=True).fill("3")
    page.get_by_label("Rate", exact=True).fill("10/30s")
    page.get_by_role("button", name="Set limits").dblclick()

    expect(page.locator(".toast")).to_contain_text("The limits are set.")
    limits = page.get_by_role("region", name="Limits")
    expect(limits).to_contain_text("10/30s")
    expect(limits).to_contain_text("an operator")
    page.get_by_role("button", name="Use the limits of the code").click()
    expect(page.get_by_role("region", name="Limits")).to_contain_text("no limit")


@pytest.mark.parametrize("dialect", BOTH)
def test_a_double_click_makes_one_queue_with_its_endpoint(
    onefold: Onefold, url: str, page: Page
) -> None:
    page.goto(f"{url}/queues")
    page.locator(".empty").get_by_role("link", name="New queue").click()
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_label("Endpoint", exact=True).fill("https://shop.example/orders")
    page.get_by_label("Mode", exact=True).select_option("ack")
    page.get_by_label("Ack timeout in seconds", exact=True).fill("60")
    page.get_by_label("Attempts", exact=True).fill("5")
    page.get_by_label("At once", exact=True).fill("2")
    page.get_by_label("Rate", exact=True).fill("100/m")

    page.get_by_role("button", name="Save").dblclick()

    # A second run would say that the name belongs to a queue.
    page.wait_for_url(f"{url}/queues/orders")
    expect(page.locator(".toast")).to_contain_text("The queue orders is saved.")
    made = queue(onefold, "orders")
    assert made.endpoint == "https://shop.example/orders"
    assert (made.mode, made.max_attempts, made.ack_timeout) == ("ack", 5, timedelta(seconds=60))
    assert (made.concurrency, made.rate_limit) == (2, "100/m")
    assert made.is_new
    assert made.signing_secret


@pytest.mark.parametrize(
    "wrong",
    [
        ("Name", "", "must have 1 to"),
        ("Name", "payments", "belongs to a queue that exists"),
        ("Endpoint", "shop.example", "must be an http or https URL"),
        ("Endpoint", "http://127.0.0.1/", "loopback"),
        ("Ack timeout in seconds", "0", "must be 1 to 2592000 seconds"),
        ("Attempts", "0", "must be"),
        ("Attempts", "", "must be given"),
        ("At once", "many", "must be a whole number"),
        ("At once", "0", "must be"),
        ("Rate", "fast", "must be"),
    ],
)
@pytest.mark.usefixtures("saved")
def test_a_wrong_value_is_shown_at_its_field_and_nothing_is_saved(
    onefold: Onefold, url: str, page: Page, wrong: tuple[str, str, str]
) -> None:
    label, value, why = wrong
    page.goto(f"{url}/new-queue")
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_label("Endpoint", exact=True).fill("https://shop.example/orders")
    page.get_by_label(label, exact=True).fill(value)
    page.locator("main form").evaluate("form => { form.noValidate = true }")

    page.get_by_role("button", name="Save").click()

    expect(page.get_by_role("alert")).to_contain_text("Nothing was saved.")
    field = page.get_by_label(label, exact=True)
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_value(value)
    expect(page.locator(".field-problem")).to_contain_text(why)
    expect(page.locator("[aria-invalid]")).to_have_count(1)
    assert in_thread(lambda: onefold.queues.get("orders")) is None

    page.get_by_label("Name", exact=True).fill("orders")
    for name, good in (("Endpoint", ""), ("Ack timeout in seconds", "9"), ("Attempts", "3")):
        page.get_by_label(name, exact=True).fill(good)
    for name in ("At once", "Rate"):
        page.get_by_label(name, exact=True).fill("")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url(f"{url}/queues/orders")


@pytest.mark.usefixtures("saved")
def test_an_edit_changes_the_fields_of_the_form_and_keeps_the_rest(
    onefold: Onefold, url: str, page: Page
) -> None:
    before = QueueSettings(
        endpoint="https://shop.example/one",
        headers={"x-shop": "secret value"},
        timeout=timedelta(seconds=3),
        signing_secret=SECRET,
        paused=True,
        paused_reason="maintenance",
    )
    in_thread(lambda: onefold.queues.save("orders", before))
    page.goto(f"{url}/queues/orders")
    expect(page.locator("main")).to_contain_text("maintenance")
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Endpoint", exact=True).fill("https://shop.example/two")

    page.get_by_role("button", name="Save").dblclick()

    expect(page.locator(".toast")).to_contain_text("The settings are saved.")
    after = queue(onefold, "orders")
    assert after.endpoint == "https://shop.example/two"
    assert after.headers == {"x-shop": "secret value"}
    assert (after.timeout, after.signing_secret) == (timedelta(seconds=3), SECRET)
    assert (after.paused, after.paused_reason) == (True, "maintenance")
    assert "secret value" not in page.content()


@pytest.mark.usefixtures("saved")
def test_a_held_queue_says_until_when_and_why_and_the_hold_can_be_ended(
    onefold: Onefold, seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/queues/partners")
    endpoint = page.get_by_role("region", name="Endpoint")
    expect(endpoint).to_contain_text("pushes kept failing")
    expect(endpoint).to_contain_text("5 in a row")

    page.get_by_role("button", name="End the hold").dblclick()

    expect(page.locator(".toast")).to_contain_text("The hold is ended")
    found = queue(onefold, "partners")
    assert (found.held_until, found.failures) == (None, 0)


def test_an_endpoint_shows_the_status_of_its_last_push_and_the_job(
    onefold: Onefold, url: str, page: Page
) -> None:
    def push() -> str:
        onefold.queues.save("shop", QueueSettings(endpoint="https://shop.example/", mode="ack"))
        for status in (200, 202):
            onefold.enqueue("notify_shop", {}, queue="shop")
            (taken,) = onefold.deliveries.take(["shop"], worker="push", lease=LEASE)
            exchange = f'{{"fence": {taken.fence}, "status": {status}}}'
            onefold.deliveries.park(taken, ack_timeout=LEASE, exchange=exchange)
        onefold.enqueue("notify_shop", {}, queue="shop")
        (last, *_) = onefold.find(state="awaiting", newest_first=True)
        return last.id

    job_id = in_thread(push)
    page.goto(f"{url}/queues/shop")

    expect(page.get_by_role("region", name="Endpoint")).to_contain_text("status 202, notify_shop")
    page.get_by_role("link", name="notify_shop").click()
    page.wait_for_url(f"{url}/jobs/{job_id}")


@pytest.mark.usefixtures("saved")
def test_a_new_secret_signs_beside_the_old_one(onefold: Onefold, url: str, page: Page) -> None:
    page.goto(f"{url}/queues/payments")
    page.get_by_text("Show the signing secrets").click()
    expect(page.locator(".secrets")).to_contain_text(SECRET)

    page.get_by_role("button", name="New secret").click()
    page.get_by_role("button", name="Continue").dblclick()

    expect(page.locator(".toast")).to_contain_text("signed with a new secret")
    assert [one.secret for one in queue(onefold, "payments").secrets][1:] == [SECRET]


@pytest.mark.usefixtures("saved")
def test_a_queue_is_deleted_after_a_confirmation_unless_it_has_jobs(
    onefold: Onefold, seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/queues/documents")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".toast.failed")).to_contain_text("documents")
    assert queue(onefold, "documents").name == "documents"

    page.goto(f"{url}/queues/payments")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Keep").click()
    assert queue(onefold, "payments").name == "payments"
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Continue").dblclick()

    expect(page.locator(".toast")).to_contain_text("The queue is deleted.")
    assert in_thread(lambda: onefold.queues.get("payments")) is None


@pytest.mark.usefixtures("saved")
def test_a_read_only_session_sees_no_action_and_no_secret(
    seeded: Seeded, url: str, page: Page, log_in: LogIn
) -> None:
    log_in("read")
    for path in ("/queues", "/queues/payments", "/queues/partners", "/queues/email"):
        page.goto(url + path)
        expect(page.locator("main h1")).to_be_visible()
        expect(page.locator("main form")).to_have_count(0)
        assert "whsec_" not in page.content()
        assert page.get_by_role("link", name=re.compile("New queue|Edit")).count() == 0
    for path in ("/new-queue", "/queues/payments/edit"):
        response = page.goto(url + path)
        assert response is not None
        assert response.status == 403


def test_a_tenant_sees_and_makes_its_own_queues_only(
    onefold: Onefold, seeded: Seeded, url: str, page: Page, log_in: LogIn
) -> None:
    in_thread(lambda: onefold.tenant("acme").queues.save("mail"))
    log_in("admin", "acme")
    page.goto(f"{url}/queues")
    assert page.locator("tbody .row-link").all_inner_texts() == ["mail"]
    page.locator("tbody .row-link").click()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".heading .badge")).to_have_text("paused")

    response = page.goto(f"{url}/queues/email")
    assert response is not None
    assert response.status == 404
    page.get_by_role("button", name="Log out").click()

    log_in("admin")
    page.goto(f"{url}/queues/%7Bacme%7Dmail/edit")
    page.get_by_label("Attempts", exact=True).fill("2")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".toast")).to_contain_text("saved")
    theirs = in_thread(lambda: onefold.tenant("acme").queues.get("mail"))
    assert theirs is not None
    assert (theirs.max_attempts, theirs.paused) == (2, True)


def test_rows_of_queues_are_operated_by_keyboard(seeded: Seeded, url: str, page: Page) -> None:
    page.goto(f"{url}/queues")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")

    page.wait_for_url(f"{url}/queues/documents")
