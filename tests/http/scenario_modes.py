"""Where a handler writes: our own database, and every library that an application may have."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import asyncpg
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import text as clause
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import sessionmaker

from onefold import Onefold
from tests.fixtures.colours import Dialect, Store
from tests.fixtures.django_connections import add_database, database_settings, remove_database
from tests.fixtures.sqlalchemy_connections import async_engine_of, engine_of
from tests.http.scenario_site import Mode


def _execute(connection: Any, text: str) -> Any:
    return connection.execute(text)


def _execute_clause(connection: Any, text: str) -> Any:
    return connection.execute(clause(text))


def _execute_in_django(connection: Any, text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text)


def _closed(store: Store, close: Callable[[], Any]) -> None:
    """Close something with the store: by a function that blocks, or by one that is awaited."""

    async def closes() -> None:
        found = await asyncio.to_thread(close)
        if inspect.isawaitable(found):
            await found

    store.closing.append(closes)


def ours(store: Store, onefold: Onefold) -> Onefold:
    del store
    return onefold


async def _psycopg_pool(store: Store, _: Onefold) -> Any:
    pool = AsyncConnectionPool(store.url, min_size=1, max_size=4, open=False)
    await pool.open()
    _closed(store, pool.close)
    return pool


async def _asyncpg_pool(store: Store, _: Onefold) -> Any:
    pool = await asyncpg.create_pool(store.url, min_size=1, max_size=4)
    assert pool is not None
    _closed(store, pool.close)
    return pool


def _blocking_pool(store: Store, _: Onefold) -> Any:
    pool = ConnectionPool(store.url, min_size=1, max_size=4, open=True)
    _closed(store, pool.close)
    return pool


def _engine(engine_by: Callable[..., Any], driver: str) -> Any:
    def open_engine(store: Store, _: Onefold) -> Any:
        engine = engine_by(store, driver)
        _closed(store, engine.dispose)
        return engine

    return open_engine


def _sessions(maker: Callable[..., Any], engine_by: Callable[..., Any], driver: str) -> Any:
    def open_sessions(store: Store, onefold: Onefold) -> Any:
        return maker(_engine(engine_by, driver)(store, onefold))

    return open_sessions


def _django(store: Store, _: Onefold) -> str:
    alias = add_database(database_settings(store))
    _closed(store, lambda: remove_database(alias))
    return alias


def joined(name: str, dialect: Dialect, target: Any, insert: Any = _execute) -> Mode:
    return Mode(name, dialect, insert, target)


def _clauses(name: str, dialect: Dialect, target: Any) -> Mode:
    return joined(name, dialect, target, _execute_clause)


OURS_SQLITE = joined("ours-sqlite", "sqlite", ours)
OURS_POSTGRES = joined("ours-postgres", "postgres", ours)
LEASED_SQLITE = Mode("leased-sqlite", "sqlite", None)
LEASED_POSTGRES = Mode("leased-postgres", "postgres", None)
PLAIN = (OURS_SQLITE, OURS_POSTGRES, LEASED_SQLITE, LEASED_POSTGRES)

_ASYNC = (async_sessionmaker, async_engine_of)
LIBRARIES = (
    joined("psycopg-pool", "postgres", _psycopg_pool),
    joined("asyncpg-pool", "postgres", _asyncpg_pool),
    _clauses("engine-asyncpg", "postgres", _engine(async_engine_of, "asyncpg")),
    _clauses("engine-aiosqlite", "sqlite", _engine(async_engine_of, "aiosqlite")),
    _clauses("sessions-psycopg", "postgres", _sessions(*_ASYNC, "psycopg")),
    _clauses("sessions-aiosqlite", "sqlite", _sessions(*_ASYNC, "aiosqlite")),
)
BLOCKING_LIBRARIES = (
    joined("psycopg-pool", "postgres", _blocking_pool),
    _clauses("engine-psycopg", "postgres", _engine(engine_of, "psycopg")),
    _clauses("engine-sqlite", "sqlite", _engine(engine_of, "pysqlite")),
    _clauses("sessions-psycopg", "postgres", _sessions(sessionmaker, engine_of, "psycopg")),
)
DJANGO = (
    joined("django-sqlite", "sqlite", _django, _execute_in_django),
    joined("django-postgres", "postgres", _django, _execute_in_django),
)
