"""The list of queues, one queue, its form, and what can be done with it."""

import re
from datetime import timedelta

import pytest

from onefold import Onefold, Queue
from onefold.model.queue import QueueSettings
from tests.dashboard.seed import LEASE, Seeded
from tests.dashboard.seed_keys import SECRET, save_queues
from tests.dashboard.visiting import Visitor


@pytest.fixture
def saved(onefold: Onefold, seeded: Seeded) -> None:
    """The jobs come first: a held queue gives none."""
    save_queues(onefold)


def queue(onefold: Onefold, name: str) -> Queue:
    found = onefold.queues.get(name)
    assert found is not None
    return found


@pytest.mark.usefixtures("saved")
def test_the_list_has_the_numbers_and_the_state_of_each_queue(visit: Visitor) -> None:
    page = visit.open("/queues")

    def cells(name: str) -> list[str]:
        return page.row(name).texts("td.number")

    due, oldest, running, scheduled, retrying, dead = cells("email")
    assert (due, running, scheduled, retrying, dead) == ("4", "0", "1", "0", "0")
    assert re.search(r"\d", oldest)
    assert cells("reports")[2] == "1"
    assert cells("documents")[4:] == ["1", "0"]
    assert cells("payments")[4:] == ["0", "1"]
    assert cells("hostile")[4:] == ["0", "1"]
    assert page.row("documents").one(".badge").text == "paused"
    assert page.row("partners").one(".badge").text == "held"
    assert "5 failed pushes" in page.row("partners").text
    assert "at most 4 at once, 100/m" in page.row("payments").text


@pytest.mark.usefixtures("saved")
def test_a_double_click_pauses_a_queue_once_and_another_resumes_it(
    onefold: Onefold, visit: Visitor
) -> None:
    visit.open("/queues")

    visit.press("Pause", within=visit.page.row("payments"))
    assert visit.notice.startswith("The queue is paused.")
    assert visit.page.row("payments").one(".badge").text == "paused"
    assert queue(onefold, "payments").paused

    visit.press("Resume", within=visit.page.row("payments"))
    assert visit.notice.startswith("The queue is resumed.")
    assert not queue(onefold, "payments").paused


def test_a_queue_that_only_has_jobs_can_be_paused_and_limited(
    seeded: Seeded, visit: Visitor
) -> None:
    visit.open("/queues/email")
    visit.press("Pause")
    assert visit.page.one(".heading .badge").text == "paused"

    visit.press("Set limits", concurrency="three")
    assert visit.page.one("[aria-invalid]")["name"] == "concurrency"
    visit.press("Set limits", concurrency="3", rate_limit="10/30s")

    assert visit.notice == "The limits are set."
    limits = visit.page.part("Limits").text
    assert "10/30s" in limits
    assert "an operator" in limits
    visit.press("Use the limits of the code")
    assert "no limit" in visit.page.part("Limits").text


def test_a_double_click_makes_one_queue_with_its_endpoint(onefold: Onefold, visit: Visitor) -> None:
    empty = visit.open("/queues").one(".empty")
    visit.open(empty.link("New queue"))
    visit.press(
        "Save",
        name="orders",
        endpoint="https://shop.example/orders",
        mode="ack",
        ack_timeout="60",
        max_attempts="5",
        concurrency="2",
        rate_limit="100/m",
    )

    # A second run would say that the name belongs to a queue.
    assert (visit.at, visit.notice) == ("/queues/orders", "The queue orders is saved.")
    made = queue(onefold, "orders")
    assert made.endpoint == "https://shop.example/orders"
    assert (made.mode, made.max_attempts, made.ack_timeout) == ("ack", 5, timedelta(seconds=60))
    assert (made.concurrency, made.rate_limit) == (2, "100/m")
    assert made.is_new
    assert made.signing_secret


@pytest.mark.usefixtures("saved")
def test_a_wrong_value_is_shown_at_its_field_and_nothing_is_saved(
    onefold: Onefold, visit: Visitor
) -> None:
    right = {"name": "orders", "endpoint": "https://shop.example/orders"}
    visit.open("/new-queue")
    for name, value, why in (
        ("name", "", "must have 1 to"),
        ("name", "payments", "belongs to a queue that exists"),
        ("endpoint", "http://127.0.0.1/", "loopback"),
        ("ack_timeout", "0", "must be 1 to 2592000 seconds"),
        ("max_attempts", "", "must be given"),
        ("concurrency", "many", "must be a whole number"),
        ("rate_limit", "fast", "must be"),
    ):
        good = {"ack_timeout": "9", "max_attempts": "3", "concurrency": "", "rate_limit": ""}
        visit.press("Save", given={**right, **good, name: value})

        assert "Nothing was saved." in visit.page.one('[role="alert"]').text
        wrong = visit.page.one("[aria-invalid]")
        assert (wrong["name"], wrong["value"]) == (name, value)
        assert why in visit.page.one(".field-problem").text
        assert onefold.queues.get("orders") is None

    visit.press("Save", given={**right, "rate_limit": ""})
    assert visit.at == "/queues/orders"


@pytest.mark.usefixtures("saved")
def test_an_edit_changes_the_fields_of_the_form_and_keeps_the_rest(
    onefold: Onefold, visit: Visitor
) -> None:
    before = QueueSettings(
        endpoint="https://shop.example/one",
        headers={"x-shop": "secret value"},
        timeout=timedelta(seconds=3),
        signing_secret=SECRET,
        paused=True,
        paused_reason="maintenance",
    )
    onefold.queues.save("orders", before)
    assert "maintenance" in visit.open("/queues/orders").text
    visit.click("Edit")

    visit.press("Save", endpoint="https://shop.example/two")

    assert visit.notice == "The settings are saved."
    after = queue(onefold, "orders")
    assert after.endpoint == "https://shop.example/two"
    assert after.headers == {"x-shop": "secret value"}
    assert (after.timeout, after.signing_secret) == (timedelta(seconds=3), SECRET)
    assert (after.paused, after.paused_reason) == (True, "maintenance")
    assert "secret value" not in visit.page.raw


@pytest.mark.usefixtures("saved")
def test_a_hold_is_ended_a_secret_replaced_and_a_queue_deleted_unless_it_has_jobs(
    onefold: Onefold, visit: Visitor
) -> None:
    endpoint = visit.open("/queues/partners").part("Endpoint").text
    assert "pushes kept failing" in endpoint
    assert "5 in a row" in endpoint

    visit.press("End the hold")

    assert visit.notice.startswith("The hold is ended")
    found = queue(onefold, "partners")
    assert (found.held_until, found.failures) == (None, 0)

    assert SECRET in visit.open("/queues/payments").one(".secrets").text

    visit.confirm("New secret")

    assert "signed with a new secret" in visit.notice
    assert [one.secret for one in queue(onefold, "payments").secrets][1:] == [SECRET]

    visit.open("/queues/documents")
    visit.confirm("Delete")
    assert visit.notice.startswith("!")
    assert "documents" in visit.notice
    assert queue(onefold, "documents").name == "documents"

    visit.open("/queues/payments")
    visit.confirm("Delete")

    assert visit.notice == "The queue is deleted."
    assert onefold.queues.get("payments") is None


def test_an_endpoint_shows_the_status_of_its_last_push_and_the_job(
    onefold: Onefold, visit: Visitor
) -> None:
    onefold.queues.save("shop", QueueSettings(endpoint="https://shop.example/", mode="ack"))
    for status in (200, 202):
        onefold.enqueue("notify_shop", {}, queue="shop")
        (taken,) = onefold.deliveries.take(["shop"], worker="push", lease=LEASE)
        exchange = f'{{"fence": {taken.fence}, "status": {status}}}'
        onefold.deliveries.park(taken, ack_timeout=LEASE, exchange=exchange)
    onefold.enqueue("notify_shop", {}, queue="shop")
    (last, *_) = onefold.find(state="awaiting", newest_first=True)

    page = visit.open("/queues/shop")

    assert "status 202, notify_shop" in page.part("Endpoint").text
    assert page.link("notify_shop") == f"/jobs/{last.id}"

    (taken,) = onefold.deliveries.take(["shop"], worker="push", lease=LEASE)
    onefold.deliveries.retry([taken], error={"message": "refused", "status": 500}, after=LEASE)
    onefold.queues.count_failure("shop")
    failing = visit.open("/queues/shop").part("Endpoint")
    assert failing.texts(".badge") == ["failing"]
    assert "status 500, notify_shop" in failing.text


def test_a_tenant_sees_and_makes_its_own_queues_only(
    onefold: Onefold, seeded: Seeded, visit: Visitor
) -> None:
    onefold.tenant("acme").queues.save("mail")
    visit.log_in("admin", "acme")
    assert visit.open("/queues").texts("tbody .row-link") == ["mail"]
    visit.click("mail")
    visit.press("Pause")
    assert visit.page.one(".heading .badge").text == "paused"
    visit.open("/queues/email")
    assert visit.status == 404

    visit.log_in("admin")
    visit.open("/queues/%7Bacme%7Dmail/edit")
    visit.press("Save", max_attempts="2")
    assert "saved" in visit.notice
    theirs = onefold.tenant("acme").queues.get("mail")
    assert theirs is not None
    assert (theirs.max_attempts, theirs.paused) == (2, True)
