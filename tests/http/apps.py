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
            principal=lambda scope: shop.who(Request(scope).headers.get("authorization")),
            tenant=lambda scope: Request(scope).headers.get("x-tenant"),
            **shop.options,
        )

    async def app(scope: Any, receive: Any, send: Any) -> None:
        once: Once | None = scope.get("onefold.once")
        response: Response
        if once is not None:
            answer = await shop.apay(once, await Request(scope, receive).body())
            response = Response(answer.body, answer.status)
            response.raw_headers = _encoded(answer.headers)
        elif (scope["method"], scope["path"]) in UNKEYED:
            shop.reads += 1
            response = PlainTextResponse("read")
        else:
            response = PlainTextResponse("nothing here", 404)
        await response(scope, receive, send)

    return idempotency.wrap(app)


def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


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
