"""A form as a client without a browser submits it: what becomes of keys (H220-H230)."""

import re
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import httpx
import pytest

from onefold import Onefold
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.web.forms import Form, FormKey, FormKeys
from tests.fixtures.colours import Store
from tests.fixtures.patience import HANG
from tests.forms.conftest import Opens
from tests.forms.html import value
from tests.forms.shop import SECRET, Shop
from tests.http.apps_talk import served
from tests.http.scenario_site import Gate

HTML = {"Accept": "text/html"}


@pytest.fixture
def shop(open_shop: Opens) -> Shop:
    return open_shop()


@pytest.fixture
def client(shop: Shop) -> Iterator[httpx.Client]:
    with visiting(shop) as client:
        yield client


@contextmanager
def visiting(shop: Shop) -> Generator[httpx.Client]:
    with served(shop.app) as url, httpx.Client(base_url=url, headers=HTML, timeout=HANG) as client:
        yield client


def new_key(client: httpx.Client) -> str:
    return value(client.get("/orders/new").text, "onefold_key")


def order(client: httpx.Client, key: str, what: str = "tea", **more: str) -> httpx.Response:
    fields = {"onefold_key": key, "what": what, "note": "", **more}
    return client.post("/orders", data=fields)


def test_h220_h226_h229_each_page_has_a_key_of_its_own_and_is_not_stored(
    shop: Shop, client: httpx.Client
) -> None:
    pages = [client.get("/orders/new") for _ in range(2)]

    for page in pages:
        order(client, value(page.text, "onefold_key"))

    assert pages[0].headers["Cache-Control"] == "no-store"
    assert shop.orders() == ["tea", "tea"]


def test_h221_h228_two_submissions_of_one_page_are_one_order(
    shop: Shop, client: httpx.Client
) -> None:
    key = new_key(client)

    first, second = order(client, key), order(client, key)

    assert (first.status_code, first.headers["Location"]) == (303, "/orders/1")
    assert (second.status_code, second.headers["Location"]) == (303, "/orders/1")
    assert first.headers["Set-Cookie"].startswith("flash=")
    assert "Set-Cookie" not in second.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert shop.orders() == ["tea"]


def test_h223_a_form_that_was_not_valid_keeps_its_key(shop: Shop, client: httpx.Client) -> None:
    key = new_key(client)

    refused = order(client, key, "")
    corrected = order(client, key, "tea")

    assert refused.status_code == 422
    assert "What do you want?" in refused.text
    assert corrected.status_code == 303
    assert shop.orders() == ["tea"]


def test_h225_a_forged_key_is_refused_and_the_form_is_offered(
    shop: Shop, client: httpx.Client
) -> None:
    new_key(client)

    refused = order(client, "1.forged.order.x.y.z", "everything to Mallory")
    without = client.post("/orders", data={"what": "tea", "note": ""})

    assert (refused.status_code, without.status_code) == (400, 400)
    assert '<a href="/orders/new">' in refused.text
    assert "Mallory" not in refused.text
    assert shop.orders() == []


def test_h225_a_form_that_was_open_too_long_is_submitted_with_what_was_entered(
    shop: Shop, client: httpx.Client
) -> None:
    new_key(client)
    yesterday = datetime.now(UTC) - timedelta(hours=25)
    old_keys = FormKeys(SECRET, clock=lambda: yesterday)

    refused = order(client, old_keys.issue("order", client.cookies["session"]))
    again = order(client, value(refused.text, "onefold_key"), value(refused.text, "what"))

    assert refused.status_code == 400
    assert "This form was open for too long" in refused.text
    assert again.status_code == 303
    assert shop.orders() == ["tea"]


def test_an_attempt_that_vanished_is_being_checked(
    shop: Shop, client: httpx.Client, store: Store
) -> None:
    text = new_key(client)
    key = shop.keys.check(text, "order", client.cookies["session"])
    assert isinstance(key, FormKey)
    with Onefold(store.url, schema=store.schema) as onefold:
        onefold.claim(key.scope, key.id, surface="form", lease=timedelta(microseconds=1))

    answer = order(client, text)

    assert answer.status_code == 409
    assert "We are checking" in answer.text
    assert "<form" not in answer.text, "there is no button"
    assert "Retry-After" not in answer.headers
    assert shop.orders() == []


def test_outcomes_must_be_remembered_for_as_long_as_keys_are_accepted(open_shop: Opens) -> None:
    with pytest.raises(ConflictingOptions, match="retention must not be shorter"):
        open_shop(retention=timedelta(hours=1))
    with pytest.raises(InvalidInput, match="form must be a Form"):
        open_shop(form="order")


def test_h227_an_upload_under_another_boundary_is_the_same_submission(
    shop: Shop, client: httpx.Client
) -> None:
    key = new_key(client)

    def upload(content: bytes) -> httpx.Response:
        # httpx makes a new boundary each time.
        return client.post(
            "/orders",
            data={"onefold_key": key, "what": "tea", "note": ""},
            files={"scan": ("täx.pdf", content, "application/pdf")},
        )

    first, second, other = upload(b"%PDF-1"), upload(b"%PDF-1"), upload(b"%PDF-2")

    assert first.request.headers["Content-Type"] != second.request.headers["Content-Type"]
    assert second.headers["Idempotent-Replayed"] == "true"
    assert other.status_code == 422
    assert "choose the file täx.pdf again" in other.text
    assert shop.orders() == ["tea"]


def test_h227_a_big_upload_has_its_key_found(shop: Shop, client: httpx.Client) -> None:
    key = new_key(client)

    def upload() -> httpx.Response:
        return client.post(
            "/orders",
            data={"what": "tea", "note": "", "onefold_key": key},
            files={"scan": ("a.bin", b"\0" * 3_000_000)},
        )

    assert upload().status_code == 303
    assert upload().headers["Idempotent-Replayed"] == "true"
    assert shop.orders() == ["tea"]


def test_what_is_stored_does_not_name_the_session(
    shop: Shop, client: httpx.Client, store: Store
) -> None:
    order(client, new_key(client))

    with shop.engine.connect() as connection:
        name = "claim" if store.dialect == "postgres" else "onefold_claim"
        rows = [
            tuple(row)
            for row in connection.exec_driver_sql(f"select surface, scope, key from {name}")
        ]

    ((surface, scope, key),) = rows
    assert surface == "form"
    assert re.fullmatch(r"order:[\w-]{43}", scope)
    assert client.cookies["session"] not in f"{scope} {key}"


def test_a_submission_while_the_first_is_worked_on_gets_its_answer(
    shop: Shop, client: httpx.Client
) -> None:
    key = new_key(client)
    shop.gate = Gate()
    answers: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda: answers.append(order(client, key))) for _ in range(2)
    ]

    threads[0].start()
    assert shop.gate.entered.wait(HANG)
    threads[1].start()
    shop.gate.opened.set()
    for thread in threads:
        thread.join()

    assert {answer.headers["Location"] for answer in answers} == {"/orders/1"}
    assert shop.orders() == ["tea"]


def test_a_key_that_the_browser_makes_is_of_its_session(open_shop: Opens) -> None:
    shop, key = open_shop(form=Form(keys="client", name="order")), str(uuid4())
    with visiting(shop) as client:
        replies: list[httpx.Response] = []
        for session in ("bob", "alice"):
            client.cookies = httpx.Cookies({"session": session})
            replies += [order(client, key) for _ in range(2)]
        changed = order(client, key, "coffee")
        as_new = order(client, value(changed.text, "onefold_key"), "coffee")

    assert [reply.headers["Location"] for reply in replies] == [
        *["/orders/1"] * 2,
        *["/orders/2"] * 2,
    ]
    assert (changed.status_code, as_new.status_code) == (422, 303)
    assert shop.orders() == ["tea", "tea", "coffee"]
