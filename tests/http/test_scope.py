"""Methods, routes and callers: what a key belongs to."""

from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from starlette.websockets import WebSocket

from onefold import InvalidInput, Onefold
from onefold.web import asgi
from onefold.web.fastapi import Once
from tests.http.apps import (
    AsgiClient,
    anybody,
    asgi_app,
    bare_fastapi,
    fastapi_app,
    starlette_app,
)
from tests.http.apps_talk import Talk, lived, part
from tests.http.scenario_site import OpenSite, Site

FRAMEWORKS = pytest.mark.parametrize("make", [asgi_app, starlette_app, fastapi_app])


async def test_h030_a_read_is_not_even_looked_at(open_site: OpenSite) -> None:
    site = await open_site()

    for method in ("GET", "HEAD", "OPTIONS"):
        reply = await site.post("/pay", method=method, key='"malformed', body=b"")
        assert reply.status in {200, 405}

    assert site.claims == []


async def test_h035_the_key_with_another_method_is_a_mistake(open_site: OpenSite) -> None:
    site = await open_site()
    await site.post(method="POST")

    assert (await site.post(method="PATCH")).code == "key_reused"


async def test_h035_unless_keys_are_per_route(open_site: OpenSite) -> None:
    site = await open_site(scope="route")
    await site.post(method="POST")

    assert (await site.post(method="PATCH")).status == 201


async def test_keys_per_route_are_told_by_the_template_and_its_values_by_the_fingerprint(
    open_site: OpenSite,
) -> None:
    site = await open_site(scope="route")
    await site.post("/orders/1")

    assert (await site.post("/orders/2")).code == "key_reused"
    assert (await site.post("/orders/1")).is_replay


async def test_h036_h037_another_query_is_another_request(open_site: OpenSite) -> None:
    site = await open_site()
    await site.post("/pay?a=1&b=2")

    assert (await site.post("/pay?a=1&b=3")).code == "key_reused"
    assert (await site.post("/pay?b=2&a=1")).code == "key_reused"
    assert (await site.post("/pay?a=1&b=2")).is_replay


async def test_h037_the_order_of_the_query_may_not_matter(open_site: OpenSite) -> None:
    site = await open_site(canonical_query=True)
    await site.post("/pay?a=1&b=2")

    assert (await site.post("/pay?b=2&a=1")).is_replay
    assert (await site.post("/pay?b=1&a=2")).code == "key_reused"


async def test_h038_another_tenant_is_told_nothing(open_site: OpenSite) -> None:
    site = await open_site()
    await site.post()

    other = await site.post(headers={"X-Tenant": "other"}, body=b"something else")

    assert (other.status, other.is_replay) == (201, False)


async def test_h041_a_new_token_is_the_same_caller(open_site: OpenSite) -> None:
    site = await open_site()
    await site.post(user="Bearer alice:first-token")

    assert (await site.post(user="Bearer alice:second-token")).is_replay


@FRAMEWORKS
async def test_h042_who_is_not_let_in_leaves_nothing_and_comes_again(
    open_site: OpenSite, make: Any
) -> None:
    site = await open_site()
    site = Site(site.shop, AsgiClient(make(site.shop)))

    assert (await site.post(user=None)).status == 401
    assert site.claims == []
    assert (await site.post()).status == 201


@FRAMEWORKS
async def test_h043_who_is_slowed_down_in_front_leaves_nothing(
    open_site: OpenSite, make: Any
) -> None:
    site = await open_site()
    inner, allowed = make(site.shop), [False, True]

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

    missing = await site.post("/nowhere")

    # Without a framework nobody knows that there is nothing: there the key is not supported.
    assert missing.status == (400 if make is asgi_app else 404)
    assert site.claims == []


async def test_h047_a_method_that_is_not_there_is_no_outcome(open_site: OpenSite) -> None:
    site = await open_site()

    assert (await site.post("/pay", method="PUT")).status == 405
    assert site.claims == []


async def test_h047_a_plain_application_that_answers_404_has_not_begun(onefold: Onefold) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("nothing here", 404)(scope, receive, send)

    idempotency = asgi.Idempotency(onefold)
    idempotency.add("POST", "/pay", principal=lambda scope: "alice", takeover="refuse")
    talks = [Talk(idempotency.wrap(app), part(body)) for body in (b"1", b"2")]
    for talk in talks:
        await talk.run()

    assert [talk.status for talk in talks] == [404, 404]


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


async def test_h049_headers_that_are_listed_must_not_change(open_site: OpenSite) -> None:
    site = await open_site(fingerprint_headers=("Api-Version",))
    await site.post(headers={"Api-Version": "1"})

    assert (await site.post(headers={"Api-Version": "2"})).code == "key_reused"
    assert (await site.post(headers={"Api-Version": "1"})).is_replay


def test_h040_a_plain_route_without_a_principal_is_refused_at_once(onefold: Onefold) -> None:
    idempotency = asgi.Idempotency(onefold)

    with pytest.raises(InvalidInput, match="principal is missing for POST /pay"):
        idempotency.add("POST", "/pay", takeover="refuse")


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

    app, idempotency = bare_fastapi(onefold)

    @app.post("/pay")
    @idempotency(principal=nobody, takeover="refuse")
    async def pay() -> None: ...

    talk = Talk(app, part())
    await talk.run()

    assert talk.status == 401
    assert b"not_identified" in talk.body


@pytest.mark.parametrize("who", [7, UUID(int=7)], ids=["number", "UUID"])
async def test_a_principal_may_be_any_id(onefold: Onefold, who: object) -> None:
    def principal() -> object:
        return who

    app, idempotency = bare_fastapi(onefold)

    @app.post("/pay")
    @idempotency(principal=principal, tenant=principal, takeover="refuse")
    async def pay(once: Once) -> str:
        assert once.claim is not None
        return f"{once.claim.key.tenant} {once.claim.key.scope}"

    talk = Talk(app, part())
    await talk.run()

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
