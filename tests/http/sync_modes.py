"""Where a handler of a WSGI application writes: every library that it may have, and ours."""

import asyncio
from typing import Any

from psycopg_pool import ConnectionPool
from sqlalchemy import text as clause
from sqlalchemy.orm import sessionmaker

from onefold import Onefold
from tests.fixtures.colours import Store
from tests.fixtures.django_connections import add_database, database_settings, remove_database
from tests.fixtures.sqlalchemy_connections import engine_of
from tests.http.scenario_modes import LEASED_POSTGRES, LEASED_SQLITE, joined, ours


def _execute(connection: Any, text: str) -> None:
    connection.execute(text)


def _execute_clause(connection: Any, text: str) -> None:
    connection.execute(clause(text))


def _execute_in_django(connection: Any, text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text)


def _pool(store: Store, onefold: Onefold) -> Any:
    del onefold
    pool = ConnectionPool(store.url, min_size=1, max_size=4, open=True)

    async def close() -> None:
        await asyncio.to_thread(pool.close)

    store.closing.append(close)
    return pool


def _engine(driver: str) -> Any:
    def open_engine(store: Store, onefold: Onefold) -> Any:
        del onefold
        engine = engine_of(store, driver)

        async def close() -> None:
            engine.dispose()

        store.closing.append(close)
        return engine

    return open_engine


def _sessions(driver: str) -> Any:
    def open_sessions(store: Store, onefold: Onefold) -> Any:
        return sessionmaker(_engine(driver)(store, onefold))

    return open_sessions


def _django(store: Store, onefold: Onefold) -> str:
    del onefold
    alias = add_database(database_settings(store))

    async def close() -> None:
        await asyncio.to_thread(remove_database, alias)

    store.closing.append(close)
    return alias


PLAIN = (
    joined("ours-sqlite", "sqlite", ours, _execute),
    joined("ours-postgres", "postgres", ours, _execute),
    LEASED_SQLITE,
    LEASED_POSTGRES,
)

LIBRARIES = (
    joined("psycopg-pool", "postgres", _pool, _execute),
    joined("engine-psycopg", "postgres", _engine("psycopg"), _execute_clause),
    joined("engine-sqlite", "sqlite", _engine("pysqlite"), _execute_clause),
    joined("sessions-psycopg", "postgres", _sessions("psycopg"), _execute_clause),
)

DJANGO = (
    joined("django-sqlite", "sqlite", _django, _execute_in_django),
    joined("django-postgres", "postgres", _django, _execute_in_django),
)
