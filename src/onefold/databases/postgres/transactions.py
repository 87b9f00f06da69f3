"""Transactions on PostgreSQL that are begun for a handler, on a connection of our own pool."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import TupleRow, tuple_row

from onefold.databases.postgres.database import PostgresDatabase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from onefold.databases import Database


@contextmanager
def own(database: Database) -> Generator[psycopg.Connection[TupleRow]]:
    """A connection of ours, for one transaction."""
    assert isinstance(database, PostgresDatabase)
    database.identity()
    pool, connection = database.get_connection()
    try:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        with connection.transaction():
            yield connection
    finally:
        if not connection.closed:
            connection.isolation_level = None
            _tidy(connection)
        pool.putconn(connection)


@asynccontextmanager
async def aown(database: Database) -> AsyncGenerator[psycopg.AsyncConnection[TupleRow]]:
    """`own`, awaited."""
    assert isinstance(database, PostgresDatabase)
    await database.aidentity()
    pool, connection = await database.aget_connection()
    try:
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        async with connection.transaction():
            yield connection
    finally:
        if not connection.closed:
            await connection.set_isolation_level(None)
            _tidy(connection)
        await pool.putconn(connection)


def _tidy(connection: Any) -> None:
    """As the next one expects it, whatever the handler has set."""
    connection.row_factory = tuple_row
