"""On SQLite, a transaction's connection is kept for the next one: clean, whatever has happened."""

import asyncio
import sqlite3
from typing import Any

import pytest

from onefold import Onefold
from onefold.databases.handler_transaction import abegin, begin
from onefold.databases.sqlite.database import SqliteDatabase


@pytest.fixture
def database(sqlite_url: str) -> SqliteDatabase:
    onefold = Onefold(sqlite_url)
    onefold.migrate()
    found = onefold.context.database
    assert isinstance(found, SqliteDatabase)
    with begin(None, found) as begun:
        begun.connection.execute("create table note (text text)")
    return found


def count(database: SqliteDatabase) -> int:
    with begin(None, database) as begun:
        found: int = begun.connection.execute("select count(*) from note").fetchone()[0]
        return found


def test_the_next_transaction_has_the_connection_of_the_last(database: SqliteDatabase) -> None:
    with begin(None, database) as begun:
        first = begun.connection
        first.row_factory = sqlite3.Row
    with begin(None, database) as begun:
        assert begun.connection is first
        assert begun.connection.execute("select 1").fetchone() == (1,)
    database.close()


def test_an_awaited_transaction_is_kept_and_rolled_back_likewise(database: SqliteDatabase) -> None:
    async def fail(first: Any) -> None:
        async with await abegin(None, database) as begun:
            assert begun.connection is first
            await begun.connection.execute("insert into note values ('lost')")
            raise LookupError

    async def scene() -> None:
        async with await abegin(None, database) as begun:
            first = begun.connection
            await first.execute("insert into note values ('kept')")
        with pytest.raises(LookupError):
            await fail(first)
        async with await abegin(None, database) as begun:
            assert begun.connection is first

    asyncio.run(scene())
    assert count(database) == 1
    database.close()


def test_who_is_cancelled_while_beginning_leaves_a_clean_connection(
    database: SqliteDatabase,
) -> None:
    async def waiting() -> None:
        async with await abegin(None, database):
            raise AssertionError("another transaction has the lock")

    async def scene() -> None:
        with begin(None, database):
            waits = asyncio.ensure_future(waiting())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        async with await abegin(None, database) as begun:
            await begun.connection.execute("insert into note values ('after')")

    asyncio.run(scene())
    assert count(database) == 1
    database.close()
