"""Handlers on every driver: their statements and commits are seen, in jobs and in functions."""

import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from itertools import product
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any, TypeAlias
from uuid import UUID

import aiosqlite
import asyncpg
import httpx
import psycopg
import psycopg_pool
import pytest
from django.db import connections, transaction
from flask import Flask
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from onefold import Onefold, Run, UsageError
from onefold.testing import (
    NotIdempotent,
    RouteRequest,
    aassert_idempotent,
    assert_idempotent,
    effect,
)
from onefold.web import flask as in_flask
from tests.fixtures.colours import Store
from tests.fixtures.django_connections import add_database, database_settings, remove_database
from tests.testing.zoo import Shop

Transact: TypeAlias = Callable[[str], Any]

DOUBLED = "insert into payment (order_id, amount) values (7, 5)"
ONCE = "insert into receipt values (7, 'paid') on conflict do nothing"
KILLED = "Killed here, and delivered again"


def _url(shop: Shop) -> str:
    return shop.onefold.context.database.url


def _path(url: str) -> str:
    return url.removeprefix("sqlite:///")


def _alchemy(url: str, sqlite: str, postgres: str) -> str:
    name = sqlite if url.startswith("sqlite") else postgres
    return url.replace("sqlite:", f"sqlite+{name}:", 1).replace(
        "postgresql:", f"postgresql+{name}:", 1
    )


# --- each driver: a block in which `transact(sql)` runs a statement in a transaction --------------


def each_time(run: Callable[[str, str], Any]) -> Callable[[str], Any]:
    """Of a driver that opens a connection for each transaction."""
    return lambda url: nullcontext(partial(run, url))


@each_time
def with_sqlite3(url: str, sql: str) -> None:
    with closing(sqlite3.connect(_path(url))) as connection, connection:
        connection.execute(sql)


@each_time
def with_sqlite3_cursor(url: str, sql: str) -> None:
    with closing(sqlite3.connect(_path(url), isolation_level=None)) as connection:
        cursor = connection.cursor()
        cursor.execute("begin immediate")
        cursor.execute(sql)
        cursor.execute("commit")


@each_time
def with_psycopg(url: str, sql: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(sql.encode())


@contextmanager
def with_psycopg_pool(url: str) -> Generator[Transact]:
    with psycopg_pool.ConnectionPool(url, min_size=2, open=True) as pool:

        def transact(sql: str) -> None:
            with pool.connection() as connection:
                connection.execute(sql.encode())

        yield transact


@contextmanager
def with_engine(url: str) -> Generator[Transact]:
    engine = create_engine(_alchemy(url, "pysqlite", "psycopg"))

    def transact(sql: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(sql))

    yield transact
    engine.dispose()


@contextmanager
def with_django(url: str) -> Generator[Transact]:
    alias = add_database(database_settings(Store("sqlite", url)))

    def transact(sql: str) -> None:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            cursor.execute(sql)

    yield transact
    connections.close_all()
    remove_database(alias)


SYNC = {
    "sqlite3": ("sqlite", with_sqlite3),
    "sqlite3-cursor": ("sqlite", with_sqlite3_cursor),
    "sqlite-engine": ("sqlite", with_engine),
    "sqlite-django": ("sqlite", with_django),
    "psycopg": ("postgres", with_psycopg),
    "psycopg-pool": ("postgres", with_psycopg_pool),
    "psycopg-engine": ("postgres", with_engine),
}


@each_time
async def with_aiosqlite(url: str, sql: str) -> None:
    async with aiosqlite.connect(_path(url)) as connection:
        await connection.execute_insert(sql)
        await connection.commit()


@each_time
async def with_async_psycopg(url: str, sql: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(sql.encode())


@each_time
async def with_asyncpg(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(sql)
    finally:
        await connection.close()


@asynccontextmanager
async def with_asyncpg_pool(url: str) -> AsyncGenerator[Transact]:
    async with asyncpg.create_pool(url, min_size=2) as pool:

        async def transact(sql: str) -> None:
            async with pool.acquire() as connection, connection.transaction():
                statement = await connection.prepare(sql)
                await statement.fetch()

        yield transact


@asynccontextmanager
async def with_async_engine(url: str) -> AsyncGenerator[Transact]:
    engine = create_async_engine(_alchemy(url, "aiosqlite", "asyncpg"))

    async def transact(sql: str) -> None:
        async with engine.begin() as connection:
            await connection.execute(text(sql))

    yield transact
    await engine.dispose()


ASYNC = {
    "aiosqlite": ("sqlite", with_aiosqlite),
    "aiosqlite-engine": ("sqlite", with_async_engine),
    "psycopg": ("postgres", with_async_psycopg),
    "asyncpg": ("postgres", with_asyncpg),
    "asyncpg-pool": ("postgres", with_asyncpg_pool),
    "asyncpg-engine": ("postgres", with_async_engine),
}


USUAL = {"sqlite3", "sqlite-django", "psycopg-engine", "aiosqlite", "psycopg", "asyncpg-pool"}
"""Those of `make test`."""


def _each(drivers: dict[str, tuple[str, Any]]) -> pytest.MarkDecorator:
    """The drivers, each on its own database."""
    return pytest.mark.parametrize(
        ("shop", "opened"),
        [
            pytest.param(dialect, opened, id=name, marks=[] if name in USUAL else pytest.mark.prove)
            for name, (dialect, opened) in drivers.items()
        ],
        indirect=["shop"],
    )


def _seen(error: NotIdempotent) -> None:
    """A crash after the commit is among the findings, at a line of this file."""
    found = [each for each in error.findings if each.scenario == KILLED and each.point is not None]
    assert any(
        each.point.when == "after" and each.point.text.lower().startswith("commit")
        for each in found
        if each.point is not None
    ), error
    assert all(each.point.line.file == __file__ for each in found if each.point is not None)
    for each in found:
        (line,) = each.differences
        assert line.startswith("+ row of payment, once too many: id=2, order_id=7, amount=5")


# --- declared jobs --------------------------------------------------------------------------------


@_each(SYNC)
def test_a_job_whose_connections_were_opened_before(shop: Shop, opened: Any) -> None:
    with opened(_url(shop)) as transact:
        transact("select 1")

        @shop.onefold.job
        def bad() -> None:
            transact(DOUBLED)

        @shop.onefold.job
        def good() -> None:
            transact(ONCE)

        with pytest.raises(NotIdempotent) as caught:
            assert_idempotent(bad)
        _seen(caught.value)
        assert assert_idempotent(good).crash_points >= 3


@_each(ASYNC)
async def test_an_async_job_in_the_event_loop_of_the_test(shop: Shop, opened: Any) -> None:
    async with opened(_url(shop)) as transact:
        await transact("select 1")

        @shop.onefold.job
        async def bad() -> None:
            await transact(DOUBLED)

        @shop.onefold.job
        async def good() -> None:
            await transact(ONCE)

        with pytest.raises(NotIdempotent) as caught:
            await aassert_idempotent(bad)
        _seen(caught.value)
        assert (await aassert_idempotent(good)).crash_points >= 3


# --- the application's own pool, engine or session in `run.transaction` ---------------------------


@pytest.mark.parametrize(
    ("shop", "kind"),
    [*product(("sqlite", "postgres"), ("engine", "sessionmaker")), ("postgres", "pool")],
    indirect=["shop"],
)
def test_the_transaction_of_an_engine_a_session_or_a_pool(shop: Shop, kind: str) -> None:
    engine = create_engine(_alchemy(_url(shop), "pysqlite", "psycopg"))
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        target: Any = sessionmaker(engine) if kind == "sessionmaker" else engine
        if kind == "pool":
            target = stack.enter_context(psycopg_pool.ConnectionPool(_url(shop), open=True))

        @shop.onefold.job
        def good(run: Run) -> None:
            with run.transaction(target) as connection:
                connection.execute(DOUBLED if kind == "pool" else text(DOUBLED))

        assert assert_idempotent(good).crash_points >= 3


@pytest.mark.parametrize("shop", ["sqlite", "postgres"], indirect=True)
async def test_the_transaction_of_an_async_engine(shop: Shop) -> None:
    engine = create_async_engine(_alchemy(_url(shop), "aiosqlite", "asyncpg"))

    @shop.onefold.job
    async def good(run: Run) -> None:
        async with run.transaction(engine) as connection:
            await connection.execute(text(DOUBLED))

    assert (await aassert_idempotent(good)).crash_points >= 3
    await engine.dispose()


# --- functions with a connection ------------------------------------------------------------------


def _is_checked(function: Callable[..., Any], **options: Any) -> None:
    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(function, DOUBLED, **options)
    _seen(caught.value)
    assert assert_idempotent(function, ONCE, **options).crash_points >= 3


@pytest.mark.parametrize("shop", ["sqlite", "postgres"], indirect=True)
def test_a_function_with_a_connection_or_a_session(shop: Shop) -> None:
    def function(connection: Any, sql: str) -> None:
        connection.execute(text(sql) if isinstance(connection, Session) else sql)

    engine = create_engine(_alchemy(_url(shop), "pysqlite", "psycopg"), poolclass=NullPool)
    for connect in (shop.connect, sessionmaker(engine)):
        _is_checked(function, database=_url(shop), connect=connect)
    # By default, the usual driver opens one.
    _is_checked(function, database=_url(shop))


async def _apsycopg(shop: Shop) -> Any:
    return await psycopg.AsyncConnection.connect(_url(shop))


async def _aiosqlite(shop: Shop) -> Any:
    return await aiosqlite.connect(_path(_url(shop)))


async def _asyncpg(shop: Shop) -> Any:
    return await asyncpg.connect(_url(shop))


each_async_driver = pytest.mark.parametrize(
    ("shop", "connect"),
    [("sqlite", _aiosqlite), ("postgres", _apsycopg), ("postgres", _asyncpg)],
    indirect=["shop"],
)


@each_async_driver
def test_an_async_function_with_a_connection(
    shop: Shop, connect: Callable[[Shop], Awaitable[Any]]
) -> None:
    async def function(connection: Any, sql: str) -> None:
        if isinstance(connection, asyncpg.Connection):
            async with connection.transaction():
                await connection.execute(sql)
        else:
            await connection.execute(sql)

    _is_checked(function, database=_url(shop), connect=lambda: connect(shop))
    if connect is _apsycopg:
        _is_checked(function, database=_url(shop))
    elif connect is _aiosqlite:
        with pytest.raises(UsageError, match="give connect="):
            assert_idempotent(function, ONCE, database=_url(shop))


# --- transactions that are left open --------------------------------------------------------------


@pytest.mark.parametrize("shop", ["sqlite", "postgres"], indirect=True)
def test_a_handler_that_leaves_its_transaction_open_blocks_nothing(shop: Shop) -> None:
    opened: list[Any] = []

    @shop.onefold.job
    def forgets() -> None:
        connection = shop.connect()
        opened.append(connection)
        connection.execute(DOUBLED)

    # The row is lost with the transaction, in every run alike.
    assert assert_idempotent(forgets).crash_points == 2
    for connection in opened:
        connection.close()


@each_async_driver
async def test_an_async_handler_that_leaves_its_transaction_open_blocks_nothing(
    shop: Shop, connect: Callable[[Shop], Awaitable[Any]]
) -> None:
    opened: list[Any] = []

    @shop.onefold.job
    async def forgets() -> None:
        connection = await connect(shop)
        opened.append(connection)
        if isinstance(connection, asyncpg.Connection):
            await connection.execute("begin")
        await connection.execute(DOUBLED)

    assert (await aassert_idempotent(forgets)).crash_points == 2
    for connection in opened:
        await connection.close()


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_a_connection_of_sqlite3_that_was_opened_before_is_an_error(shop: Shop) -> None:
    with closing(sqlite3.connect(_path(_url(shop)), check_same_thread=False)) as connection:

        @shop.onefold.job
        def unseen() -> None:
            with connection:
                connection.execute(DOUBLED)

        with pytest.raises(UsageError, match="was opened before the check"):
            assert_idempotent(unseen)


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_another_onefold_may_write_meanwhile(shop: Shop, tmp_path: Path) -> None:
    @shop.onefold.job
    def pays() -> None:
        with closing(sqlite3.connect(_path(_url(shop)))) as connection, connection:
            connection.execute(ONCE)

    has_ended = Event()

    def write(onefold: Onefold) -> None:
        while not has_ended.is_set():
            onefold.enqueue("other", {})

    with Onefold(f"sqlite:///{tmp_path / 'other.db'}") as other, ThreadPoolExecutor() as threads:
        other.enqueue("other", {})
        writing = threads.submit(write, other)
        try:
            assert_idempotent(pays)
        finally:
            has_ended.set()
        writing.result()


@pytest.mark.parametrize("is_used", [False, True])
def test_an_onefold_that_is_not_given_may_not_write(shop: Shop, *, is_used: bool) -> None:
    with Onefold(_url(shop)) as other:
        if is_used:
            other.enqueue("other", {})

        @shop.onefold.job
        def enqueues() -> None:
            other.enqueue("other", {})

        @shop.onefold.job
        async def enqueues_async() -> None:
            await other.aenqueue("other", {})

        @shop.onefold.job
        async def saves() -> None:
            await other.queues.asave("mail")

        def catches(_connection: object) -> None:
            with suppress(UsageError):
                other.queues.save("mail")

        def claims(_connection: object) -> None:
            with other.once("orders", "7"):
                pass

        for handler in (enqueues, enqueues_async, saves, catches, claims):
            with pytest.raises(UsageError, match="writes with an Onefold that the check does not"):
                assert_idempotent(handler, database=_url(shop))


def test_an_onefold_that_is_not_given_may_read(shop: Shop) -> None:
    with Onefold(_url(shop)) as other:

        @shop.onefold.job
        async def reads() -> None:
            assert other.get(str(UUID(int=0))) is None
            assert await other.aget(str(UUID(int=0))) is None
            effect("done", key="7")

        assert_idempotent(reads)


def test_a_transaction_of_an_onefold_that_is_not_given_is_an_error(shop: Shop) -> None:
    app = Flask("app")
    with Onefold(_url(shop)) as other:
        keys = in_flask.Idempotency(other)
        keys.init_app(app)

        @app.post("/orders")
        @keys(principal=lambda: "ann", transaction=other)
        def order() -> str:
            return "done"

        request = RouteRequest.json("POST", "/orders", {}, idempotency_key="k-1")
        with pytest.raises(UsageError, match=r"Give it to the check with onefold="):
            assert_idempotent(app, request, database=_url(shop))


def test_a_service_in_the_same_process_may_have_its_own_onefold(shop: Shop, tmp_path: Path) -> None:
    with Onefold(f"sqlite:///{tmp_path / 'other.db'}") as other:

        def service(_environ: object, start: Callable[..., Any]) -> list[bytes]:
            other.enqueue("other", {})
            start("204 No Content", [])
            return []

        @shop.onefold.job
        def posts(run: Run) -> None:
            with httpx.Client(transport=httpx.WSGITransport(service)) as client:
                key = {"Idempotency-Key": run.key("post")}
                client.post("http://shop.test/", headers=key).raise_for_status()

        assert_idempotent(posts)


def test_a_thread_of_an_earlier_check_may_write(shop: Shop) -> None:
    wanted: Queue[Callable[[], Any]] = Queue()
    answers: Queue[Any] = Queue()

    def work() -> None:
        while True:
            answers.put(wanted.get()())

    threads: list[Thread] = []

    @shop.onefold.job
    def enqueues() -> None:
        if not threads:
            threads.append(Thread(target=work, daemon=True))
            threads[0].start()
        wanted.put(lambda: shop.onefold.enqueue("next", {}, unique_key="7", unique_while="exists"))
        answers.get(timeout=30)
        effect("done", key="7")

    for _ in range(2):
        assert_idempotent(enqueues)
