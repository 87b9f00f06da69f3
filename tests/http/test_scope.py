"""Methods, routes and callers: what a key belongs to."""

from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from starlette.websockets import WebSocket

from onefold import Onefold
from onefold.web.fastapi import Once
from tests.http.apps import (
    AsgiClient,
    anybody,
    asgi_app,
    bare_fastapi,
    fastapi_app,
    keyed_app,
    starlette_app,
)
from tests.http.apps_talk import Talk, lived, part, visited
from tests.http.scenario_site import OpenSite, Site

FRAMEWORKS = pytest.mark.parametrize("make", [asgi_app, starlette_app, fastapi_app])


async def test_h043_who_is_slowed_down_in_front_leaves_nothing(open_site: OpenSite) -> None:
    site = await open_site()
    inner, allowed = fastapi_app(site.shop), [False, True]

    async def limited(scope: Any, receive: Any, send: Any) -> None:
        if allowed.pop(0):
            await inner(scope, receive, send)
        else:
            await PlainTextResponse("slow down", 429)(scope, receive, send)

    site = Site(site.shop, AsgiClient(limited))

    assert [(await site.post()).status for _ in range(2)] == [429, 201]


@pytest.mark.parametrize("make", [starlette_app, fastapi_app])
async def test_h045_wherever_the_application_is_mounted_its_routes_are_the_same(
    open_site: OpenSite, make: Any
) -> None:
    site = await open_site()
    app = make(site.shop)
    mounted = Starlette(routes=[Mount("/v1", app), Mount("/old", app)])
    site = Site(site.shop, AsgiClient(mounted))

    first = await site.post("/v1/pay")
    retry = await site.post("/old/pay")

    assert (first.status, retry.is_replay) == (201, True)


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


@pytest.mark.parametrize("make", [starlette_app, fastapi_app])
async def test_h046_a_redirect_to_the_path_without_the_slash_is_no_outcome(
    open_site: OpenSite, make: Any
) -> None:
    site = await open_site()
    site = Site(site.shop, AsgiClient(make(site.shop)))

    redirect = await site.post("/pay/")
    followed = await site.post("/pay")

    assert (redirect.status, redirect.headers["location"]) == (307, "http://shop/pay")
    assert (followed.status, followed.is_replay) == (201, False)


@FRAMEWORKS
async def test_h047_what_is_not_there_is_no_outcome(open_site: OpenSite, make: Any) -> None:
    site = await open_site(required=False)
    site = Site(site.shop, AsgiClient(make(site.shop)))

    missing, method = await site.post("/nowhere"), await site.post(method="PUT")

    # Without a framework nobody knows that there is nothing: there the key is not supported.
    assert missing.status == (400 if make is asgi_app else 404)
    assert method.status == (404 if make is asgi_app else 405)
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


@FRAMEWORKS
async def test_h048_so_do_lifespans(open_site: OpenSite, make: Any) -> None:
    site = await open_site()
    heard: list[str] = []
    app = make(site.shop)
    if make is asgi_app:

        async def living(_scope: Any, receive: Any, send: Any) -> None:
            for _ in range(2):
                kind = (await receive())["type"]
                heard.append(kind)
                await send({"type": f"{kind}.complete"})

        app.app = living

    said = await lived(app)

    assert [message["type"] for message in said] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


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


async def test_a_mounted_application_has_the_policies_of_the_outer_one(onefold: Onefold) -> None:
    app, idempotency = bare_fastapi(onefold)
    inner = FastAPI()
    app.mount("/inner", inner)

    @inner.post("/pay")
    @idempotency(principal=anybody, takeover="refuse")
    async def pay() -> str:
        return "paid"

    talks = [Talk(app, part(), path="/inner/pay") for _ in range(2)]
    for talk in talks:
        await talk.run()

    assert [talk.body for talk in talks] == [b'"paid"', b'"paid"']
    assert "idempotent-replayed" in talks[1].headers
