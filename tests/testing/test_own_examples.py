"""The handlers of our own examples pass the check."""

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi import FastAPI

from examples.shop import orders
from examples.shop.api import add_api
from examples.shop.hooks import add_hooks
from examples.shop.pages import SESSION, add_pages
from examples.shop.settings import Settings
from examples.shop.shop import Shop as ExampleShop
from onefold.testing import RouteRequest, aassert_idempotent
from onefold.web.forms import FormKeys
from onefold.web.webhooks import sign
from tests.testing.zoo import Shop


def order(key: str) -> RouteRequest:
    headers = {"host": "localhost", "authorization": "Bearer token-of-ann"}
    made = {"product": "tea", "quantity": 2}
    return RouteRequest.json("POST", "/api/orders", made, headers=headers, idempotency_key=key)


def payment(secret: str, order_id: str, number: str) -> RouteRequest:
    body = f'{{"order": "{order_id}"}}'.encode()
    signed = dict(sign(secret, id=number, body=body, now=datetime.now(UTC)))
    headers = {"host": "localhost", "content-type": "application/json", **signed}
    return RouteRequest("POST", "/hooks/payments", headers, body)


def _form(secret: str, product: str) -> RouteRequest:
    key = FormKeys(secret).issue("order", "session-of-ann")
    headers = {
        "cookie": f"{SESSION}=session-of-ann",
        "content-type": "application/x-www-form-urlencoded",
    }
    body = urlencode({"onefold_key": key, "product": product, "quantity": "2"}).encode()
    return RouteRequest("POST", "/orders", headers, body)


async def _check_shop(url: str) -> None:
    settings = Settings(database=url)
    shop = ExampleShop(settings)
    await shop.open()
    app = FastAPI()
    add_api(app, shop)
    add_hooks(app, shop)
    add_pages(app, shop)
    shop.idempotency.install(app)
    async with shop.engine.begin() as connection:
        order_id = await orders.place(connection, "ann", "tea", 1)

    secret = settings.webhook_secret
    checks = [await aassert_idempotent(shop.mail, order_id, "Thank you")]
    for first, second in (
        map(order, ("k-1", "k-2")),
        (payment(secret, order_id, number) for number in ("msg_1", "msg_2")),
        (_form(settings.form_secret, product) for product in ("tea", "coffee")),
    ):
        checks.append(
            await aassert_idempotent(app, first, onefold=shop.onefold, followed_by=[second])
        )
    assert all(each.crash_points >= 3 for each in checks), checks
    await shop.close()


def test_the_shop(shop: Shop) -> None:
    asyncio.run(_check_shop(shop.onefold.context.database.url))


DJANGO = """
import django
django.setup()
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
call_command("migrate", verbosity=0)

import re
from urllib.parse import urlencode
from django.conf import settings
from django.test import Client
from examples.django_shop.jobs import mail
from examples.django_shop.models import Order
from onefold.django import get_onefold
from onefold.testing import RouteRequest, assert_idempotent
from tests.testing.test_own_examples import order, payment

app, onefold = get_wsgi_application(), get_onefold()
order_id = str(Order.objects.create(customer="ann", product="tea", quantity=1).id)
browser = Client(headers={"host": "localhost"})

def ordered(product):
    page = browser.get("/orders").content.decode()
    hidden = dict(re.findall('type="hidden" name="([^"]+)" value="([^"]+)"', page))
    cookies = "; ".join(f"{name}={each.value}" for name, each in browser.cookies.items())
    body = urlencode({**hidden, "product": product, "quantity": 2}).encode()
    kind = "application/x-www-form-urlencoded"
    headers = {"host": "localhost", "cookie": cookies, "content-type": kind}
    return RouteRequest("POST", "/orders", headers, body)

print(assert_idempotent(mail, order_id, "Thank you"))
for first, second in (
    map(order, ("k-1", "k-2")),
    (payment(settings.WEBHOOK_SECRET, order_id, number) for number in ("msg_1", "msg_2")),
    map(ordered, ("tea", "coffee")),
):
    coverage = assert_idempotent(app, first, onefold=onefold, followed_by=[second])
    assert coverage.crash_points >= 3, coverage
    print(coverage)
"""


@pytest.mark.prove
def test_the_shop_of_django(shop: Shop) -> None:
    """In a process of its own: Django has one configuration in each."""
    url = shop.onefold.context.database.url
    if shop.mark == "%s":
        with shop.connect() as connection:
            connection.execute("drop schema onefold cascade")
    environment: dict[str, Any] = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "examples.django_shop.settings",
        "SHOP_DATABASE": url if shop.mark == "%s" else url.replace("shop.db", "django.db"),
    }
    done = subprocess.run(
        [sys.executable, "-c", DJANGO], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4
