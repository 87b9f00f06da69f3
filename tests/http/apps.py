"""The shop in plain ASGI, Starlette and FastAPI, with the same routes in each.

| | |
|---|---|
| POST, PATCH `/pay`; POST, DELETE `/orders/{number}`; POST `/other` | have the shop's policy |
| GET `/pay`; POST, PUT, DELETE `/plain` | have none |
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any, TypeAlias, cast

import fastapi
import httpx
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from onefold import Onefold
from onefold.web import asgi, starlette
from onefold.web.fastapi import Idempotency as FastapiIdempotency
from onefold.web.idempotency.once_parameter import Once
from onefold.web.starlette import response_of
from tests.http.scenario_site import Headers, Reply, Shop

App: TypeAlias = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]

KEYED = (
    ("POST", "/pay"),
    ("PATCH", "/pay"),
    ("POST", "/orders/{number}"),
    ("DELETE", "/orders/{number}"),
    ("POST", "/other"),
)
UNKEYED = (("GET", "/pay"), ("POST", "/plain"), ("PUT", "/plain"), ("DELETE", "/plain"))


class AsgiClient:
    """Calls an application in this very process."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def request(self, method: str, path: str, headers: Headers, body: bytes) -> Reply:
        transport = httpx.ASGITransport(cast("Any", self.app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            found = await client.request(method, path, headers=list(headers), content=body)
        return Reply(found.status_code, found.headers, found.content)


# --- plain ASGI -----------------------------------------------------------------------------------


def asgi_app(shop: Shop) -> App:
    """A table of routes around an application that knows no framework."""
    idempotency = asgi.Idempotency(shop.onefold)
    for method, path in KEYED:
        idempotency.add(
            method,
            path,
            principal=lambda scope: shop.who(_header(scope, b"authorization")),
            tenant=lambda scope: _header(scope, b"x-tenant"),
            **shop.options,
        )

    async def app(scope: Any, receive: Any, send: Any) -> None:
        once: Once | None = scope.get("onefold.once")
        if once is not None:
            answer = await shop.apay(once, await _body(receive))
            await _send(send, answer.status, _encoded(answer.headers), answer.body)
        elif (scope["method"], scope["path"]) in UNKEYED:
            shop.reads += 1
            await _send(send, 200, [], b"read")
        else:
            await _send(send, 404, [], b"nothing here")

    return idempotency.wrap(app)


async def _body(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def _send(send: Any, status: int, headers: Any, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _header(scope: Any, name: bytes) -> str | None:
    found: bytes | None = dict(scope["headers"]).get(name)
    return None if found is None else found.decode()


# --- Starlette ------------------------------------------------------------------------------------


def starlette_app(shop: Shop) -> Starlette:
    """Endpoints that are functions."""
    idempotency = starlette.Idempotency(shop.onefold)

    def who(request: Request) -> str:
        return _let_in(shop, request.headers.get("authorization"))

    def tenant(request: Request) -> str | None:
        return request.headers.get("x-tenant")

    @idempotency(principal=who, tenant=tenant, **shop.options)
    async def pay(request: Request, once: Once) -> Response:
        return response_of(await shop.apay(once, await request.body()))

    async def read(_request: Request) -> Response:
        shop.reads += 1
        return PlainTextResponse("read")

    app = Starlette(
        routes=[
            *(Route(path, read, methods=[method]) for method, path in UNKEYED),
            *(Route(path, pay, methods=[method]) for method, path in KEYED),
        ]
    )
    idempotency.install(app)
    return app


def _let_in(shop: Shop, authorization: str | None) -> str:
    found = shop.who(authorization)
    if found is None:
        raise HTTPException(403 if authorization else 401)
    return found


# --- FastAPI --------------------------------------------------------------------------------------


def fastapi_app(shop: Shop) -> fastapi.FastAPI:
    """Endpoints with dependencies."""
    idempotency = FastapiIdempotency(shop.onefold)
    app = fastapi.FastAPI()
    idempotency.install(app)

    def who(authorization: Annotated[str | None, fastapi.Header()] = None) -> str:
        return _let_in(shop, authorization)

    def tenant(x_tenant: Annotated[str | None, fastapi.Header()] = None) -> str | None:
        return x_tenant

    @idempotency(principal=who, tenant=tenant, **shop.options)
    async def pay(request: fastapi.Request, once: Once) -> fastapi.Response:
        return response_of(await shop.apay(once, await request.body()))

    async def read() -> fastapi.Response:
        shop.reads += 1
        return PlainTextResponse("read")

    for method, path in UNKEYED:
        app.add_api_route(path, read, methods=[method])
    for method, path in KEYED:
        app.add_api_route(path, pay, methods=[method])
    return app


def asgi_client(shop: Shop) -> AsgiClient:
    return AsgiClient(asgi_app(shop))


def starlette_client(shop: Shop) -> AsgiClient:
    return AsgiClient(starlette_app(shop))


def fastapi_client(shop: Shop) -> AsgiClient:
    return AsgiClient(fastapi_app(shop))


def bare_fastapi(onefold: Onefold, **defaults: Any) -> tuple[fastapi.FastAPI, FastapiIdempotency]:
    """An application for routes of a test's own."""
    app, idempotency = fastapi.FastAPI(), FastapiIdempotency(onefold, **defaults)
    idempotency.install(app)
    return app, idempotency


def anybody() -> str:
    """A principal, where it does not matter which."""
    return "alice"


def keyed_app(
    onefold: Onefold, endpoint: Callable[..., Any], *, principal: Any = anybody, **options: Any
) -> fastapi.FastAPI:
    """An application with one route, POST /pay, which is this endpoint under these options."""
    app, idempotency = bare_fastapi(onefold)
    app.post("/pay")(idempotency(principal=principal, **options)(endpoint))
    return app
