"""The same application with keys by hand: a row is inserted, and updated with the response.

The row is the one that Onefold writes. There is no read before the insert, no comparison of
requests and no stored header, and two requests at once are not distinguished. The difference to
this contestant is the cost of Onefold's guarantees.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from psycopg_pool import AsyncConnectionPool
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bench import sqlite_stage, stage
from bench.contestants import http_client
from onefold.model.ids import new_id

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from starlette.requests import Request

    from bench.stopwatch import Stopwatch
    from bench.values import Order

    Endpoint = Callable[[Request], Awaitable[Response]]

KEEP: Final = 86_400_000_000
FINGERPRINT: Final = "1.raw:" + "0" * 64
COLUMNS: Final = (
    *("shard", "tenant", "surface", "scope", "key", "id", "owner", "state", "takeover", "fence"),
    *("created_at", "lease_until", "settled_at", "expires_at", "keep", "fingerprint", "result"),
)
_KEY: Final = "shard = 0 and tenant = '' and surface = 'http' and scope = 'bench' and key = {}"


def insert(table: str, mark: str) -> str:
    """A claim that is held."""
    marks = ", ".join(mark for _ in COLUMNS)
    return f"insert into {table} ({', '.join(COLUMNS)}) values ({marks})"


def update(table: str, mark: str) -> str:
    """The same claim, settled."""
    return (
        f"update {table} set state = 1, settled_at = {mark}, expires_at = {mark}, result = {mark}"
        f" where {_KEY.format(mark)} and state = 0"
    )


def select(table: str, mark: str) -> str:
    """The answer of a claim that is settled."""
    return f"select state, fingerprint, result from {table} where {_KEY.format(mark)}"


def row(key: str) -> tuple[Any, ...]:
    """A claim as Onefold stores it."""
    now, claim = time.time_ns() // 1000, new_id()
    place = (0, "", "http", "bench", key)
    return (*place, claim, claim, 0, 0, now, now, None, None, None, KEEP, FINGERPRINT, None)


def settled(key: str, text: str) -> tuple[Any, ...]:
    """What becomes of it."""
    now = time.time_ns() // 1000
    return (now, now + KEEP, text, key)


def _key_of(request: Request) -> str:
    return request.headers["idempotency-key"].strip('"')


async def _answer(request: Request) -> bytes:
    content = await request.json()
    return bytes(JSONResponse({"paid": content["user"]}).body)


def _response(body: bytes | str) -> Response:
    return Response(body, http_client.CREATED, media_type="application/json")


def _application(pay: Endpoint) -> Starlette:
    return Starlette(routes=[Route(http_client.PATH, pay, methods=["POST"])])


# --- PostgreSQL -----------------------------------------------------------------------------------

PG_INSERT: Final = insert("onefold.claim", "%s").encode()
PG_UPDATE: Final = update("onefold.claim", "%s").encode()
PG_SELECT: Final = select("onefold.claim", "%s").encode()


@asynccontextmanager
async def _pool(url: str) -> AsyncGenerator[AsyncConnectionPool[Any]]:
    pool = AsyncConnectionPool(url, open=False, kwargs={"autocommit": True})
    async with pool:
        yield pool


def _inserts(pool: AsyncConnectionPool[Any]) -> Endpoint:
    async def pay(request: Request) -> Response:
        key, body = _key_of(request), await _answer(request)
        async with pool.connection() as connection, connection.transaction():
            await connection.execute(PG_INSERT, row(key))
            await connection.execute(PG_UPDATE, settled(key, body.decode()))
        return _response(body)

    return pay


def _selects(pool: AsyncConnectionPool[Any]) -> Endpoint:
    async def pay(request: Request) -> Response:
        key, _ = _key_of(request), await request.body()
        async with pool.connection() as connection:
            found = await (await connection.execute(PG_SELECT, [key])).fetchone()
        assert found is not None
        return _response(found[2])

    return pay


def first(order: Order, watch: Stopwatch) -> None:
    """Every key is new."""
    url = stage.onefold_database(order)
    stage.settle(url)

    async def run() -> None:
        async with _pool(url) as pool:
            await http_client.ask_once(order, watch, _application(_inserts(pool)))

    asyncio.run(run())
    stage.expect(url, stage.SETTLED, http_client.WARM + order.jobs)


def replay(order: Order, watch: Stopwatch) -> None:
    """Every key has its answer."""
    url = stage.onefold_database(order)
    stage.settle(url)

    async def run() -> None:
        async with _pool(url) as pool:
            await http_client.ask_first(_application(_inserts(pool)))
            await http_client.ask_again(order, watch, _application(_selects(pool)))

    asyncio.run(run())
    stage.expect(url, stage.SETTLED, http_client.KEPT)


# --- SQLite: in a thread of Starlette's, as every blocking call of an application -----------------

SQLITE_INSERT: Final = insert("onefold_claim", "?")
SQLITE_UPDATE: Final = update("onefold_claim", "?")
SQLITE_SELECT: Final = select("onefold_claim", "?")


def _sqlite_inserts(connection: sqlite3.Connection) -> Endpoint:
    def store(key: str, body: bytes) -> None:
        connection.execute("begin immediate")
        connection.execute(SQLITE_INSERT, row(key))
        connection.execute(SQLITE_UPDATE, settled(key, body.decode()))
        connection.execute("commit")

    async def pay(request: Request) -> Response:
        key, body = _key_of(request), await _answer(request)
        await run_in_threadpool(store, key, body)
        return _response(body)

    return pay


def _sqlite_selects(connection: sqlite3.Connection) -> Endpoint:
    def find(key: str) -> Any:
        return connection.execute(SQLITE_SELECT, [key]).fetchone()

    async def pay(request: Request) -> Response:
        key, _ = _key_of(request), await request.body()
        return _response((await run_in_threadpool(find, key))[2])

    return pay


def sqlite_first(order: Order, watch: Stopwatch) -> None:
    """Every key is new."""
    sqlite_stage.onefold_file(order.url)
    with sqlite_stage.shared(order.url) as connection:
        app = _application(_sqlite_inserts(connection))
        asyncio.run(http_client.ask_once(order, watch, app))
    sqlite_stage.expect(order.url, sqlite_stage.SETTLED, http_client.WARM + order.jobs)


def sqlite_replay(order: Order, watch: Stopwatch) -> None:
    """Every key has its answer."""
    sqlite_stage.onefold_file(order.url)
    with sqlite_stage.shared(order.url) as connection:

        async def run() -> None:
            await http_client.ask_first(_application(_sqlite_inserts(connection)))
            await http_client.ask_again(order, watch, _application(_sqlite_selects(connection)))

        asyncio.run(run())
    sqlite_stage.expect(order.url, sqlite_stage.SETTLED, http_client.KEPT)
