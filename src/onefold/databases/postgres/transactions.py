"""Transactions on PostgreSQL that are begun for a handler, on a connection of our own pool.

`begin` is the check of the connection: one that was lost while it was idle is replaced by another.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg.rows import TupleRow, tuple_row

from onefold.databases.postgres.database import PostgresDatabase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from onefold.databases import Database
    from onefold.databases.postgres.attempt import AsyncSession, Session
    from onefold.databases.postgres.process import AsyncPool, Pool


@contextmanager
def own(database: Database) -> Generator[psycopg.Connection[TupleRow]]:
    """A connection of ours, for one transaction."""
    assert isinstance(database, PostgresDatabase)
    database.identity()
    effort = database.effort()
    with ExitStack() as ending:
        while True:
            pool, connection = database.get_connection()
            ending.callback(_give_back, pool, connection)
            try:
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                ending.enter_context(connection.transaction())
                break
            except psycopg.Error as error:
                pause = effort.pause(error, connection_lost=connection.closed)
            ending.close()
            time.sleep(pause)
            pool.check()
        yield connection


def _give_back(pool: Pool, connection: Session) -> None:
    """As the next one expects it, whatever the handler has set."""
    if not connection.closed:
        connection.isolation_level = None
        connection.row_factory = tuple_row
    pool.putconn(connection)


@asynccontextmanager
async def aown(database: Database) -> AsyncGenerator[psycopg.AsyncConnection[TupleRow]]:
    """`own`, awaited."""
    assert isinstance(database, PostgresDatabase)
    await database.aidentity()
    effort = database.effort()
    async with AsyncExitStack() as ending:
        while True:
            pool, connection = await database.aget_connection()
            ending.push_async_callback(_agive_back, pool, connection)
            try:
                await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
                await ending.enter_async_context(connection.transaction())
                break
            except psycopg.Error as error:
                pause = effort.pause(error, connection_lost=connection.closed)
            await ending.aclose()
            await asyncio.sleep(pause)
            await pool.check()
        yield connection


async def _agive_back(pool: AsyncPool, connection: AsyncSession) -> None:
    """`_give_back`, awaited."""
    if not connection.closed:
        await connection.set_isolation_level(None)
        connection.row_factory = tuple_row
    await pool.putconn(connection)
