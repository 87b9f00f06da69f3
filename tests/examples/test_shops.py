"""Whatever comes twice to a shop of the examples, through whichever door, is there once.

H210 is answered here, too: an order that enqueues a job has one answer and one job.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest

from examples.django_shop import settings
from examples.shop.settings import Settings
from onefold.web.webhooks import sign
from tests.fixtures.patience import HANG
from tests.fixtures.place import Place
from tests.fixtures.proof import proved

AT_ONCE = 8


@contextmanager
def opened(module: str, database: str) -> Generator[httpx.Client]:
    """A visitor of a shop, whose process ends with the visit."""
    command = [sys.executable, "-m", module, "--port", "0", "--database", database]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shop:
        assert shop.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", shop.stdout.readline())
        try:
            assert found is not None, "the shop has not opened"
            with httpx.Client(base_url=found[0], timeout=HANG) as client:
                yield client
        finally:
            shop.terminate()


class Door(NamedTuple):
    """A shop, which is a process of its own."""

    module: str
    """`python -m` of it serves the shop."""
    webhook_secret: str


FASTAPI = Door("examples.shop", Settings.webhook_secret)
DJANGO = Door("examples.django_shop", settings.WEBHOOK_SECRET)


@pytest.fixture(params=[FASTAPI, *proved(DJANGO)], ids=["FastAPI", "Django"])
def door(request: pytest.FixtureRequest) -> Door:
    found: Door = request.param
    return found


@pytest.fixture
def shop(door: Door, place: Place) -> Iterator[httpx.Client]:
    with opened(door.module, place.url) as client:
        yield client


def test_an_order_by_the_api_is_placed_once_however_often_it_is_sent(shop: httpx.Client) -> None:
    key = str(uuid4())
    answers = _at_once(lambda: _order_by_api(shop, key))
    assert {answer.status_code for answer in answers} <= {201, 409}
    again = _order_by_api(shop, key)
    assert again.headers["Idempotent-Replayed"] == "true"
    bodies = {answer.content for answer in answers if answer.status_code == 201}
    assert bodies == {again.content}
    order = _until(shop, again.json()["id"], ["Thank you for your order"])
    assert order["mails"] == ["Thank you for your order"]


def test_an_order_belongs_to_the_account_of_a_token(shop: httpx.Client, place: Place) -> None:
    order = {"product": "tea", "quantity": 2}
    for who in ({}, {"Authorization": "Bearer ann"}):
        headers = {"Idempotency-Key": str(uuid4()), **who}
        assert shop.post("/api/orders", json=order, headers=headers).status_code == 401

    first, second = _order_by_api(shop, str(uuid4())), _order_by_api(shop, str(uuid4()))

    assert first.json()["id"] != second.json()["id"]
    with place.open() as onefold:
        assert {key.scope for key in onefold.keys.find(surface="http")} == {"ann"}
    # What the customer is known by is not told.
    shown = shop.get(f"/orders/{first.json()['id']}").json()
    assert {*shown} == {"id", "product", "quantity", "state", "mails"}


def test_a_form_that_is_sent_twice_ends_at_one_order(shop: httpx.Client) -> None:
    form = {**_hidden_fields(shop), "product": "tea", "quantity": "3"}
    for wrong in ("none", "0", "101", "9" * 5000):
        assert shop.post("/orders", data={**form, "quantity": wrong}).status_code == 422
    answers = _at_once(lambda: shop.post("/orders", data=form))
    locations = {answer.headers["Location"] for answer in answers if answer.status_code == 303}
    assert len(locations) == 1
    assert {answer.status_code for answer in answers} <= {303, 409}
    changed = shop.post("/orders", data={**form, "quantity": "4"}, headers={"Accept": "text/html"})
    assert changed.status_code == 422
    order = shop.get(locations.pop()).json()
    assert (order["product"], order["quantity"]) == ("tea", 3)


def test_a_payment_that_is_told_twice_is_booked_once(door: Door, shop: httpx.Client) -> None:
    order_id = _order_by_api(shop, str(uuid4())).json()["id"]
    body = json.dumps({"order": order_id}).encode()
    message_id, now = f"msg_{uuid4().hex}", datetime.now(UTC)
    headers = dict(sign(door.webhook_secret, id=message_id, body=body, now=now))
    told = _at_once(lambda: shop.post("/hooks/payments", content=body, headers=headers))
    assert {answer.status_code for answer in told} <= {200, 204, 409}
    assert shop.post("/hooks/payments", content=body, headers=headers).is_success
    forged = shop.post("/hooks/payments", content=body + b" ", headers=headers)
    assert forged.status_code in {400, 401}
    mails = ["Thank you for your order", "We have your payment"]
    order = _until(shop, order_id, mails)
    assert (order["state"], sorted(order["mails"])) == ("paid", sorted(mails))


def test_what_was_answered_before_a_restart_is_answered_after_it(door: Door, place: Place) -> None:
    key = str(uuid4())
    with opened(door.module, place.url) as shop:
        first = _order_by_api(shop, key)
    with opened(door.module, place.url) as shop:
        again = _order_by_api(shop, key)
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"


def _at_once(call: Callable[[], httpx.Response]) -> list[httpx.Response]:
    with ThreadPoolExecutor(AT_ONCE) as crew:
        sent = [crew.submit(call) for _ in range(AT_ONCE)]
        return [one.result() for one in sent]


def _until(shop: httpx.Client, order: str, mails: list[str]) -> dict[str, Any]:
    deadline = datetime.now(UTC) + timedelta(seconds=HANG)
    while True:
        found: dict[str, Any] = shop.get(f"/orders/{order}").json()
        if sorted(found["mails"]) == sorted(mails) or datetime.now(UTC) > deadline:
            return found


def _order_by_api(shop: httpx.Client, key: str) -> httpx.Response:
    headers = {"Authorization": "Bearer token-of-ann", "Idempotency-Key": key}
    return shop.post("/api/orders", json={"product": "tea", "quantity": 2}, headers=headers)


def _hidden_fields(shop: httpx.Client) -> dict[str, str]:
    page = shop.get("/orders")
    assert page.headers["Cache-Control"] == "no-store"
    fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]+)"', page.text))
    assert fields, page.text
    return fields
