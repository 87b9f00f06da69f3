"""Methods, routes and callers: what a key belongs to; also in a table of routes of plain ASGI."""

from typing import Any
from uuid import UUID

import pytest
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket

from onefold import Onefold
from onefold.web.asgi import Idempotency
from onefold.web.fastapi import Once
from tests.fixtures.connections import Effects
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


SETTLED = 1


async def paid(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("paid")(scope, receive, send)


async def caller(_scope: Any) -> str:
    return "alice"


async def asked(app: Any, path: str, **options: Any) -> Talk:
    (talk,) = await visited(app, b"", path=path, **options)
    return talk


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/orders/7/pay", 200),
        ("/orders/a.b/pay", 200),
        ("/orders//pay", 400),
        ("/orders/7/8/pay", 400),
        ("/orders/7/pay/", 400),
        ("/orders/7/payX", 400),
        ("/v1.0/pay", 200),
        ("/v1x0/pay", 400),
    ],
)
async def test_a_name_in_a_path_is_any_text_without_a_slash(
    onefold: Onefold, path: str, status: int
) -> None:
    idempotency = Idempotency(onefold)
    for template in ("/orders/{id}/pay", "/v1.0/pay"):
        idempotency.add("post", template, principal=caller, takeover="refuse")

    assert (await asked(idempotency.wrap(paid), path)).status == status


async def test_the_first_route_that_was_added_wins(onefold: Onefold) -> None:
    idempotency = Idempotency(onefold, takeover="refuse")
    idempotency.add("POST", "/orders/new", principal=caller, required=False)
    idempotency.add("POST", "/orders/{id}", principal=caller)
    app = idempotency.wrap(paid)

    assert (await asked(app, "/orders/new", key=None)).status == 200
    assert (await asked(app, "/orders/7", key=None)).status == 400


@pytest.mark.parametrize("status", [307, 308, 401, 403, 404, 405])
async def test_h042_h046_h047_what_an_application_says_before_its_endpoint_frees_the_key(
    onefold: Onefold, status: int
) -> None:
    statuses = iter([status, 201])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("x", next(statuses))(scope, receive, send)

    idempotency = Idempotency(onefold, takeover="refuse")
    idempotency.add("POST", "/pay", principal=caller)
    wrapped = idempotency.wrap(app)

    assert [(await asked(wrapped, "/pay")).status for _ in range(2)] == [status, 201]


@pytest.mark.parametrize("joined", [True, False])
async def test_h137_an_application_that_ends_without_an_answer_leaves_no_key_at_work(
    onefold: Onefold, effects: Effects, *, joined: bool
) -> None:
    async def silent(_scope: Any, _receive: Any, _send: Any) -> None: ...

    options: Any = {"transaction": onefold} if joined else {"takeover": "refuse"}
    idempotency = Idempotency(onefold, **options)
    idempotency.add("POST", "/pay", principal=caller)

    await Talk(idempotency.wrap(silent), part()).run()

    assert effects.claims == ([] if joined else [("k", SETTLED)])
