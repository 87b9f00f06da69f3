"""Methods, routes and callers: what a key belongs to."""

from typing import Any
from uuid import UUID

import pytest
from starlette.websockets import WebSocket

from onefold import Onefold
from onefold.web.fastapi import Once
from tests.http.apps import (
    AsgiClient,
    asgi_app,
    bare_fastapi,
    fastapi_app,
    keyed_app,
    starlette_app,
)
from tests.http.apps_talk import Talk, lived, part, visited
from tests.http.scenario_site import OpenSite, Site

FRAMEWORKS = pytest.mark.parametrize("make", [asgi_app, starlette_app, fastapi_app])


@FRAMEWORKS
async def test_h045_a_prefix_of_a_proxy_is_no_part_of_the_route(
    open_site: OpenSite, make: Any
) -> None:
    site = await open_site()
    app = make(site.shop)
    first = Talk(app, part(), path="/pay")
    retry = Talk(app, part(), path="/shop/pay", scope={"root_path": "/shop"})

    await first.run()
    await retry.run()

    assert (first.status, retry.status) == (201, 201)
    assert retry.headers["idempotent-replayed"] == "true"


@FRAMEWORKS
async def test_h046_h047_a_redirect_and_what_is_not_there_are_no_outcomes(
    open_site: OpenSite, make: Any
) -> None:
    site = await open_site(required=False)
    site = Site(site.shop, AsgiClient(make(site.shop)))

    missing, method = await site.post("/nowhere"), await site.post(method="PUT")
    redirect = await site.post("/pay/")

    # Without a framework nobody knows that there is nothing: there the key is not supported.
    is_plain = make is asgi_app
    told = [missing.status, method.status, redirect.status]
    assert told == ([400, 404, 400] if is_plain else [404, 405, 307])
    assert is_plain or redirect.headers["location"] == "http://shop/pay"
    assert site.claims == []


async def test_h048_websockets_pass_untouched(onefold: Onefold) -> None:
    app, _ = bare_fastapi(onefold)

    @app.websocket("/talk")
    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text(await websocket.receive_text())

    said = await Talk(
        app,
        {"type": "websocket.connect"},
        {"type": "websocket.receive", "text": "hello"},
        path="/talk",
        scope={"type": "websocket"},
    ).run()

    assert said[1] == {"type": "websocket.send", "text": "hello"}


async def test_h040_an_application_with_a_route_for_nobody_in_particular_does_not_start(
    onefold: Onefold,
) -> None:
    app, idempotency = bare_fastapi(onefold)

    @app.post("/pay")
    @idempotency(takeover="refuse")
    async def pay() -> None: ...

    (said,) = await lived(app)

    assert said["type"] == "lifespan.startup.failed"
    assert "principal is missing for POST /pay" in said["message"]


async def test_h040_a_principal_that_is_nobody_is_not_let_in(onefold: Onefold) -> None:
    def nobody() -> None: ...

    async def pay() -> None: ...

    app = keyed_app(onefold, pay, principal=nobody, takeover="refuse")
    (talk,) = await visited(app, b"")

    assert talk.status == 401
    assert b"not_identified" in talk.body


@pytest.mark.parametrize("who", [7, UUID(int=7)], ids=["number", "UUID"])
async def test_a_principal_may_be_any_id(onefold: Onefold, who: object) -> None:
    def principal() -> object:
        return who

    async def pay(once: Once) -> str:
        assert once.claim is not None
        return f"{once.claim.key.tenant} {once.claim.key.scope}"

    app = keyed_app(onefold, pay, principal=principal, tenant=principal, takeover="refuse")
    (talk,) = await visited(app, b"")

    assert talk.body.decode() == f'"{who} {who}"'
