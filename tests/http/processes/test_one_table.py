"""The surfaces are one table of claims: keys go through all of them, and one query reads them."""

import asyncio
import hashlib
import hmac
import json
import time
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from onefold import Onefold
from onefold.web.forms import Form, FormKeys
from onefold.web.starlette import Idempotency, Once
from onefold.web.webhooks import Received, Stripe, Webhook
from tests.fixtures.place import Place

SECRET = "whsec_of_the_payments"
WHO = "alice"
SETTLED = 1
FORM_KEYS = FormKeys("a secret of the forms, and of nobody else")


def build(place: Place, onefold: Onefold) -> Starlette:
    """An application with an API, a form and a webhook; each writes a row that says which."""
    idempotency = Idempotency(onefold)
    payments = Webhook(onefold, Stripe(SECRET), name="payments")

    async def note(connection: Any, surface: str) -> None:
        await connection.execute(f"insert into {place.effects} values ('{surface}')")

    @idempotency(principal=lambda _: WHO, transaction=onefold)
    async def pay(request: Request, once: Once) -> Response:
        await note(once.connection, "http")
        return JSONResponse({"paid": True}, 201)

    form = Form(FORM_KEYS, "order")

    @idempotency(principal=lambda _: WHO, transaction=onefold, form=form)
    async def order(request: Request, once: Once) -> Response:
        await note(once.connection, "form")
        return RedirectResponse("/orders/1", 303)

    @payments.process
    async def paid(event: Received) -> None:
        await note(event.connection, "webhook")

    app = Starlette(
        routes=[
            Route("/payments", pay, methods=["POST"]),
            Route("/orders", order, methods=["POST"]),
            Mount("/hooks", payments.asgi),
        ]
    )
    idempotency.install(app)
    return app


async def by_http(client: httpx.AsyncClient) -> None:
    for is_replay in (False, True):
        said = await client.post("/payments", headers={"Idempotency-Key": "k"}, json={"amount": 7})
        assert (said.status_code, "idempotent-replayed" in said.headers) == (201, is_replay)


async def by_form(client: httpx.AsyncClient) -> None:
    fields = {FORM_KEYS.field: FORM_KEYS.issue("order", WHO), "what": "tea"}
    for _ in range(2):
        said = await client.post("/orders", data=fields)
        assert (said.status_code, said.headers["location"]) == (303, "/orders/1")


async def by_webhook(client: httpx.AsyncClient) -> None:
    body = json.dumps({"id": "evt_1", "type": "invoice.paid"}).encode()
    stamp = str(int(time.time()))
    digest = hmac.new(SECRET.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    for _ in range(2):
        headers = {"Stripe-Signature": f"t={stamp},v1={digest}"}
        assert (await client.post("/hooks/", content=body, headers=headers)).status_code == 200


async def by_hand(place: Place, onefold: Onefold) -> None:
    """What an application claims without a request: a publish key, and `once`."""
    answers = [await onefold.aenqueue("mail", {"to": "bob"}, idempotency_key="k") for _ in range(2)]
    assert [answer.duplicate for answer in answers] == [False, True]
    for _ in range(2):
        async with onefold.once("report", "2026-11") as claim:
            if claim.won:
                claim.result = "sent"
                with place.transaction() as connection:
                    connection.execute(f"insert into {place.effects} values ('once')")
        assert claim.result == "sent"


def test_keys_of_every_surface_are_rows_of_one_table(place: Place) -> None:
    async def walk() -> None:
        async with place.open() as onefold:
            transport = httpx.ASGITransport(build(place, onefold))
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                await by_http(client)
                await by_form(client)
                await by_webhook(client)
            await by_hand(place, onefold)

    with place.connection() as connection:
        connection.execute(f"create table {place.effects} (surface text)")
    asyncio.run(walk())

    claims = place.rows("select surface, tenant, state from {claim} order by surface")
    surfaces = ["form", "http", "once", "publish", "webhook"]
    assert claims == [(surface, "", SETTLED) for surface in surfaces]
    effects = place.rows("select surface from {effect} order by surface", effect=place.effects)
    assert effects == [("form",), ("http",), ("once",), ("webhook",)]
    assert len(place.rows("select * from {job}")) == 1


def test_so_one_call_forgets_them_all(place: Place) -> None:
    """H193: the owner of the keys is a column of that table."""
    with place.open() as onefold:
        for surface in ("form", "http", "webhook"):
            onefold.tenant("acme").claim("scope", "k", surface=surface)
            onefold.tenant("other").claim("scope", "k", surface=surface)

        onefold.keys.erase(tenant="acme")

    assert place.rows("select distinct tenant from {claim}") == [("other",)]
