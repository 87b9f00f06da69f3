"""Callers' connections through PgBouncer, each with the setting that the how-to page names."""

import os
from collections.abc import Sequence
from typing import Any, Final

import asyncpg
import psycopg
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from tests.fixtures.colours import Store
from tests.fixtures.connection import Connection, Kind
from tests.fixtures.connections import Asyncpg
from tests.fixtures.django_connections import Django, add_database, database_settings
from tests.fixtures.sqlalchemy_connections import Sqlalchemy, async_engine_of, engine_of

PSYCOPG: Final[dict[str, Any]] = {"prepare_threshold": None}
ASYNCPG: Final[dict[str, Any]] = {"statement_cache_size": 0, "prepared_statement_cache_size": 0}


async def _psycopg(store: Store) -> Connection:
    return Connection(psycopg.connect(store.url, prepare_threshold=None))


async def _async_psycopg(store: Store) -> Connection:
    return Connection(await psycopg.AsyncConnection.connect(store.url, prepare_threshold=None))


async def _asyncpg(store: Store) -> Connection:
    return Asyncpg(await asyncpg.connect(store.url, statement_cache_size=0))


async def _sqlalchemy_connection(store: Store) -> Connection:
    engine = engine_of(store, "psycopg", connect_args=PSYCOPG)
    return Sqlalchemy(engine.connect(), engine.dispose)


async def _sqlalchemy_session(store: Store) -> Connection:
    engine = engine_of(store, "psycopg", connect_args=PSYCOPG)
    return Sqlalchemy(Session(engine), engine.dispose)


async def _sqlalchemy_async_connection(store: Store) -> Connection:
    engine = async_engine_of(store, "asyncpg", connect_args=ASYNCPG)
    return Sqlalchemy(await engine.connect(), engine.dispose)


async def _sqlalchemy_async_session(store: Store) -> Connection:
    engine = async_engine_of(store, "asyncpg", connect_args=ASYNCPG)
    return Sqlalchemy(AsyncSession(engine), engine.dispose)


async def _django(store: Store) -> Connection:
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    given = {**database_settings(store), "DISABLE_SERVER_SIDE_CURSORS": True}
    return Django(add_database(given))


POOLED: Sequence[Kind] = (
    Kind("psycopg", "postgres", "sync", _psycopg),
    Kind("psycopg-async", "postgres", "async", _async_psycopg),
    Kind("asyncpg", "postgres", "async", _asyncpg),
    Kind("sqlalchemy-psycopg-connection", "postgres", "sync", _sqlalchemy_connection),
    Kind("sqlalchemy-psycopg-session", "postgres", "sync", _sqlalchemy_session),
    Kind("sqlalchemy-asyncpg-connection", "postgres", "async", _sqlalchemy_async_connection),
    Kind("sqlalchemy-asyncpg-session", "postgres", "async", _sqlalchemy_async_session),
    Kind("django", "postgres", "sync", _django),
)
