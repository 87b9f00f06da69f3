"""An application of Starlette's whose keys Onefold honours; its handler has no rows of its own."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from psycopg_pool import AsyncConnectionPool
from starlette.applications import Starlette
from starlette.requests import Request  # noqa: TC002 - read from the annotation
from starlette.responses import JSONResponse
from starlette.routing import Route

from bench import sqlite_stage, stage
from bench.contestants import http_client
from onefold import Onefold
from onefold.web.starlette import Idempotency, Once

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from bench.stopwatch import Stopwatch
    from bench.values import Order

    Asks = Callable[[Order, Stopwatch, http_client.App], Awaitable[None]]

LEASE: Final = timedelta(minutes=1)


async def plain(request: Request) -> JSONResponse:
    """What the handler does, without a key."""
    content = await request.json()
    return JSONResponse({"paid": content["user"]}, http_client.CREATED)


def application(idempotency: Idempotency | None, **options: Any) -> Starlette:
    """An application with a route whose keys are honoured, and one that has none."""
    routes = [Route(http_client.OPEN_PATH, plain, methods=["POST"])]
    if idempotency is None:
        routes.append(Route(http_client.PATH, plain, methods=["POST"]))
        return Starlette(routes=routes)

    @idempotency(principal=lambda request: request.headers["user-agent"], **options)
    async def pay(request: Request, once: Once) -> JSONResponse:
        content = await request.json()
        assert once.request_key is not None
        return JSONResponse({"paid": content["user"]}, http_client.CREATED)

    app = Starlette(routes=[*routes, Route(http_client.PATH, pay, methods=["POST"])])
    idempotency.install(app)
    return app


@asynccontextmanager
async def _served(url: str, mode: str, *, required: bool) -> AsyncGenerator[Starlette]:
    """`mode` says how a request is kept: joined, joined by a pool of the application's, leased."""
    async with AsyncExitStack() as stack:
        onefold = Onefold(url)
        stack.push_async_callback(onefold.aclose)
        options: dict[str, Any] = {"transaction": onefold}
        if mode == "pool":
            pool = AsyncConnectionPool(url, open=False, kwargs={"autocommit": True})
            options = {"transaction": await stack.enter_async_context(pool)}
        elif mode == "leased":
            options = {"takeover": "rerun", "lease": LEASE}
        yield application(Idempotency(onefold, required=required), **options)


def _play(order: Order, watch: Stopwatch, asks: Asks, stored: int) -> None:
    """On a new database, in which there will be so many settled claims."""

    async def run(url: str) -> None:
        required = bool(order.number("required"))
        async with _served(url, order.word("mode"), required=required) as app:
            await asks(order, watch, app)

    if order.url.startswith("sqlite:"):
        sqlite_stage.onefold_file(order.url)
        asyncio.run(run(order.url))
        sqlite_stage.expect(order.url, sqlite_stage.SETTLED, stored)
        return
    url = stage.onefold_database(order)
    stage.settle(url)
    asyncio.run(run(url))
    stage.expect(url, stage.SETTLED, stored)


def first(order: Order, watch: Stopwatch) -> None:
    """Every key is new."""
    _play(order, watch, http_client.ask_once, http_client.WARM + order.jobs)


def replay(order: Order, watch: Stopwatch) -> None:
    """Every key has its answer."""

    async def asks(order: Order, watch: Stopwatch, app: http_client.App) -> None:
        await http_client.ask_first(app)
        await http_client.ask_again(order, watch, app)
        headers = await http_client.ask(app, http_client.keyed(0))
        if http_client.REPLAYED not in [(name.lower(), value) for name, value in headers]:
            raise RuntimeError(f"The answer was not a stored one: {headers}")

    _play(order, watch, asks, http_client.KEPT)


def without(order: Order, watch: Stopwatch) -> None:
    """No request has a key."""

    async def asks(order: Order, watch: Stopwatch, app: http_client.App) -> None:
        await http_client.ask_without(order, watch, app, http_client.OPEN_PATH)

    _play(order, watch, asks, 0)


def bare(order: Order, watch: Stopwatch) -> None:
    """The same application without Onefold."""
    app = application(None)
    asyncio.run(http_client.ask_without(order, watch, app, http_client.OPEN_PATH))
