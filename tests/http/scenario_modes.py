"""Where a handler of an ASGI application writes: every library that it may have, and ours."""

from typing import Any

import asyncpg
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import text as clause
from sqlalchemy.ext.asyncio import async_sessionmaker

from onefold import Onefold
from tests.fixtures.colours import Dialect, Store
from tests.fixtures.sqlalchemy_connections import async_engine_of
from tests.http.scenario_site import Mode


async def _execute(connection: Any, text: str) -> None:
    await connection.execute(text)


async def _execute_clause(connection: Any, text: str) -> None:
    await connection.execute(clause(text))


def ours(store: Store, onefold: Onefold) -> Onefold:
    del store
    return onefold


async def _psycopg_pool(store: Store, onefold: Onefold) -> Any:
    del onefold
    pool = AsyncConnectionPool(store.url, min_size=1, max_size=4, open=False)
    await pool.open()
    store.closing.append(pool.close)
    return pool


async def _asyncpg_pool(store: Store, onefold: Onefold) -> Any:
    del onefold
    pool = await asyncpg.create_pool(store.url, min_size=1, max_size=4)
    assert pool is not None
    store.closing.append(pool.close)
    return pool


def _engine(driver: str) -> Any:
    def open_engine(store: Store, onefold: Onefold) -> Any:
        del onefold
        engine = async_engine_of(store, driver)
        store.closing.append(engine.dispose)
        return engine

    return open_engine


def _sessions(driver: str) -> Any:
    def open_sessions(store: Store, onefold: Onefold) -> Any:
        return async_sessionmaker(_engine(driver)(store, onefold))

    return open_sessions


def joined(name: str, dialect: Dialect, target: Any, insert: Any = _execute) -> Mode:
    return Mode(name, dialect, insert, target)


OURS_SQLITE = joined("ours-sqlite", "sqlite", ours)
OURS_POSTGRES = joined("ours-postgres", "postgres", ours)
LEASED_SQLITE = Mode("leased-sqlite", "sqlite", None)
LEASED_POSTGRES = Mode("leased-postgres", "postgres", None)
PLAIN = (OURS_SQLITE, OURS_POSTGRES, LEASED_SQLITE, LEASED_POSTGRES)

LIBRARIES = (
    joined("psycopg-pool", "postgres", _psycopg_pool),
    joined("asyncpg-pool", "postgres", _asyncpg_pool),
    joined("engine-asyncpg", "postgres", _engine("asyncpg"), _execute_clause),
    joined("engine-aiosqlite", "sqlite", _engine("aiosqlite"), _execute_clause),
    joined("sessions-psycopg", "postgres", _sessions("psycopg"), _execute_clause),
    joined("sessions-aiosqlite", "sqlite", _sessions("aiosqlite"), _execute_clause),
)
