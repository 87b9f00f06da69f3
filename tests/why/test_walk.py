"""One key walks through all surfaces, and `onefold why` reads it."""

import asyncio
import hashlib
import hmac
import json
import time
from typing import Any
from unittest.mock import ANY

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from onefold import Onefold
from onefold.web.forms import Form, FormKeys
from onefold.web.starlette import Idempotency, Once
from onefold.web.webhooks import Received, Stripe, Webhook
from tests.cli.conftest import Run
from tests.fixtures.place import Place

SECRET = "whsec_of_the_payments"
WHO = "alice"
FORM_KEYS = FormKeys("a secret of the forms, and of nobody else")


def build(onefold: Onefold) -> Starlette:
    """An application with an API, a form and a webhook."""
    idempotency = Idempotency(onefold)
    payments = Webhook(onefold, Stripe(SECRET), name="payments")

    @idempotency(principal=lambda _: WHO, transaction=onefold)
    async def pay(request: Request, once: Once) -> Response:
        return JSONResponse({"paid": True}, 201)

    @idempotency(principal=lambda _: WHO, transaction=onefold, form=Form(FORM_KEYS, "order"))
    async def order(request: Request, once: Once) -> Response:
        return RedirectResponse("/orders/1", 303)

    @payments.process
    async def paid(event: Received) -> None:
        """Nothing is to be done."""

    app = Starlette(
        routes=[
            Route("/payments", pay, methods=["POST"]),
            Route("/orders", order, methods=["POST"]),
            Mount("/hooks", payments.asgi),
        ]
    )
    idempotency.install(app)
    return app


async def by_http(client: httpx.AsyncClient, key: str) -> None:
    headers = {"Idempotency-Key": key}
    for number, amount in enumerate((7, 7, 8)):
        said = await client.post(
            "/payments", headers={**headers, "X-Request-Id": f"http-{number}"}, json=[amount]
        )
        assert said.status_code == (201 if amount == 7 else 422)


async def by_form(client: httpx.AsyncClient, field: str) -> None:
    for number in range(2):
        fields = {FORM_KEYS.field: field, "what": "tea"}
        headers = {"X-Request-Id": f"form-{number}"}
        assert (await client.post("/orders", data=fields, headers=headers)).status_code == 303


async def by_webhook(client: httpx.AsyncClient, key: str) -> None:
    body = json.dumps({"id": key, "type": "invoice.paid"}).encode()
    stamp = str(int(time.time()))
    digest = hmac.new(SECRET.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    for number in range(2):
        signature = {"Stripe-Signature": f"t={stamp},v1={digest}"}
        headers = {**signature, "X-Request-Id": f"webhook-{number}"}
        assert (await client.post("/hooks/", content=body, headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("postgres", marks=pytest.mark.prove)], indirect=True
)
def test_a_key_is_read_on_every_surface_that_it_went_through(
    place: Place, onefold_command: Run
) -> None:
    # A form makes its own keys: the others follow it.
    field = FORM_KEYS.issue("order", WHO)

    async def walk() -> str:
        async with place.open() as onefold:
            transport = httpx.ASGITransport(build(onefold))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                await by_form(client, field)
                (key,) = [found.key for found in await onefold.keys.afind(surface="form")]
                await by_http(client, key)
                await by_webhook(client, key)
            await onefold.aenqueue("mail", {"to": "bob"}, unique_key=key)
            return key

    key = asyncio.run(walk())
    where = ("--database", place.url, "--schema", place.schema)
    told = json.loads(onefold_command("why", key, "--json", *where).stdout)
    text = onefold_command("why", key, *where).stdout
    mine = onefold_command("why", key, "--surface", "job", "--payload", '{"to": "bob"}', *where)

    found = [(one["surface"], one["state"], suppressed(one)) for one in told["holders"]]
    assert found == [
        ("form", "settled", ["form-1"]),
        ("http", "settled", ["http-2", "http-1"]),
        ("job", "ready", []),
        ("webhook", "settled", ["webhook-1"]),
    ]
    (job,) = [one["job"] for one in told["holders"] if one["job"]]
    assert job == {"id": ANY, "kind": "mail", "queue": "default", "state": "ready"}
    for word in ("http-2", "webhook-1", "form-1", "until the job is completed", job["id"]):
        assert word in text
    assert "(the same request)" in mine.stdout


def suppressed(holder: Any) -> list[str]:
    return [note["request_id"] for note in holder["suppressed"]["recent"]]


def test_a_key_that_nobody_has_is_told_as_free(sqlite_url: str, onefold_command: Run) -> None:
    with Onefold(sqlite_url) as onefold:
        onefold.migrate()

    told = onefold_command("why", "nobody", "--database", sqlite_url)
    wrong = onefold_command("why", "nobody", "--payload", "{", "--database", sqlite_url)

    assert told.stdout == "The key has no holder: the next request with it runs.\n"
    assert (wrong.returncode, wrong.stderr) == (2, "onefold: payload must be JSON, got '{'\n")
