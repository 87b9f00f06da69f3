"""The form: the key is in a hidden field, for one session. A repeated key is a double click."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

from fastapi import FastAPI, Form, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.templating import Jinja2Templates

from examples.shop import orders
from onefold.web import forms
from onefold.web.fastapi import Once  # noqa: TC001 - FastAPI reads it
from onefold.web.forms.jinja import add_form_keys

if TYPE_CHECKING:
    from examples.shop.shop import Shop

SESSION: Final = "shop_session"
QUANTITIES: Final = frozenset(map(str, range(1, 101)))


def session(request: Request) -> str:
    """Return the session of the browser."""
    return request.cookies.get(SESSION, "")


def add_pages(app: FastAPI, shop: Shop) -> None:
    """`GET` and `POST /orders`, and `GET /orders/{id}`."""
    keys = forms.FormKeys(shop.settings.form_secret)
    templates = Jinja2Templates(Path(__file__).parent / "templates")
    add_form_keys(templates.env, keys, session=lambda context: context["session"])
    # A cached page would give one key to two orders.
    app.add_middleware(forms.NoStore)

    @app.get("/orders", response_class=HTMLResponse)
    async def form(request: Request) -> Response:
        visitor = session(request) or str(uuid4())
        page = templates.TemplateResponse(request, "order.html", {"session": visitor})
        page.set_cookie(SESSION, visitor, httponly=True, samesite="lax")
        return page

    @app.post("/orders")
    @shop.idempotency(principal=session, form=forms.Form(keys, "order"))
    async def place(
        request: Request,
        once: Once,
        product: Annotated[str, Form()] = "",
        quantity: Annotated[str, Form()] = "",
    ) -> Response:
        if not product or quantity not in QUANTITIES:
            values = {"session": session(request), "wrong": "A product and a quantity, please."}
            return templates.TemplateResponse(request, "order.html", values, status_code=422)
        order_id = await orders.place(once.connection, session(request), product, int(quantity))
        await shop.mail.within(once.connection).aenqueue(order_id, "Thank you for your order")
        return RedirectResponse(f"/orders/{order_id}", 303)

    @app.get("/orders/{order_id}")
    async def show(order_id: str) -> dict[str, object]:
        async with shop.engine.connect() as connection:
            found = await orders.get(connection, order_id)
        if found is None:
            raise HTTPException(404, "There is no such order.")
        return found
