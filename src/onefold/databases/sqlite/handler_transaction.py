"""Transactions on SQLite that are begun for a handler: on a connection of ours, or on its own.

A connection of ours has one user at a time. In an event loop it has a thread of its own and is
awaited, as psycopg's: `await (await tx.execute(…)).fetchall()`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from onefold.databases import raise_translated
from onefold.databases.sqlite import execute as sqlite_errors
from onefold.databases.sqlite.database import SqliteDatabase
from onefold.databases.sqlite.writer import POLL
from onefold.errors import UsageError, WrongConnection

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Generator,
        Iterable,
        Sequence,
    )

    from onefold.databases import Database

T = TypeVar("T")

_ENDED = "The transaction was ended inside its block, so its rows are committed without the rest."


@contextmanager
def own(database: Database) -> Generator[sqlite3.Connection]:
    """A connection of ours with the write lock, for one transaction."""
    assert isinstance(database, SqliteDatabase)
    connection = _opened(database)
    try:
        # A plain call in this thread would wait for this transaction: it raises instead.
        database.remember_borrowed(connection)
        with _committed(connection):
            yield connection
    finally:
        _put_away(database, connection)


def _put_away(database: SqliteDatabase, connection: sqlite3.Connection) -> None:
    """Reset a connection and keep it for the next transaction."""
    if connection.in_transaction:
        connection.close()
        return
    _tidy(connection)
    database.shelf.put(connection)


def _tidy(connection: sqlite3.Connection) -> None:
    """Reset the connection for the next use, whatever the handler has set."""
    connection.row_factory, connection.text_factory = None, str
    connection.isolation_level = None


def _opened(database: SqliteDatabase) -> sqlite3.Connection:
    database.identity()
    connection = database.shelf.take() or database.connect()
    try:
        _begin(database, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _begin(database: SqliteDatabase, connection: sqlite3.Connection) -> None:
    """Retry for the lock until the deadline, as the writer does."""
    deadline = time.monotonic() + database.patience
    while True:
        try:
            connection.execute("begin immediate")
        except sqlite3.Error as error:
            if not sqlite_errors.is_busy(error):
                raise_translated(database.translated(error), error)
            if time.monotonic() >= deadline:
                raise database.busy() from error
            time.sleep(POLL)
        else:
            return


@contextmanager
def _committed(connection: sqlite3.Connection) -> Generator[None]:
    """Commit a transaction at the end of the block, or roll it back."""
    try:
        yield
        _refuse_ended(connection)
        connection.execute("commit")
    except BaseException:
        # A failed statement may have rolled back already; a failed commit, on a full disk, has not.
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("rollback")
        raise


def _refuse_ended(connection: Any) -> None:
    if not connection.in_transaction:
        raise UsageError(_ENDED)


@contextmanager
def lent(connection: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    """A caller's connection, begun with the write lock."""
    # Python 3.12 added `autocommit`; with False a transaction is always open.
    if getattr(connection, "autocommit", -1) is False:
        with connection:
            yield connection
        return
    if connection.in_transaction:
        raise _begun(connection)
    connection.execute("begin immediate")
    with _committed(connection):
        yield connection


@asynccontextmanager
async def alent(connection: Any) -> AsyncGenerator[Any]:
    """A caller's aiosqlite connection, begun with the write lock."""
    if connection.in_transaction:
        raise _begun(connection)
    await connection.execute("begin immediate")
    try:
        yield connection
        _refuse_ended(connection)
        await connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            await connection.execute("rollback")
        raise


def _begun(connection: object) -> WrongConnection:
    return WrongConnection(
        connection,
        "has an open transaction, which other code began and will end. Commit it before, or give"
        " a connection that is free.",
    )


class AsyncSqliteCursor:
    """The result of a statement."""

    def __init__(self, rows: Sequence[Any], rowcount: int, lastrowid: int | None) -> None:
        """All rows are fetched already."""
        self._rows = iter(rows)
        self.rowcount: int = rowcount
        self.lastrowid: int | None = lastrowid

    async def fetchone(self) -> Any:
        """The next row, or None."""
        return next(self._rows, None)

    async def fetchall(self) -> list[Any]:
        """The rest of the rows."""
        return list(self._rows)

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Row by row."""
        for row in self._rows:
            yield row


class AsyncSqlite:
    """A sqlite3 connection in a thread of its own. `within()` takes it as it takes aiosqlite's."""

    def __init__(self, database: SqliteDatabase) -> None:
        """Nothing is opened yet."""
        self._database = database
        self._thread = ThreadPoolExecutor(1, "onefold-transaction")
        self._connection: sqlite3.Connection | None = None

    async def execute(
        self, text: str, parameters: Sequence[Any] | dict[str, Any] = ()
    ) -> AsyncSqliteCursor:
        """Run a statement to its end."""
        return await self._execute(lambda: _answered(self._conn.execute(text, parameters)))

    async def executemany(
        self, text: str, parameters: Iterable[Sequence[Any] | dict[str, Any]]
    ) -> AsyncSqliteCursor:
        """Run a statement for each of the parameters."""
        return await self._execute(lambda: _answered(self._conn.executemany(text, parameters)))

    @property
    def in_transaction(self) -> bool:
        """True until the transaction has ended."""
        return self._conn.in_transaction

    @property
    def _conn(self) -> sqlite3.Connection:
        if self._connection is None:
            raise ValueError("closed")
        return self._connection

    async def _execute(self, work: Callable[[], T]) -> T:
        """One call at a time, and to its end: a cancelled caller leaves no half statement."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, copy_context().run, work)
        return await asyncio.shield(future)

    async def open(self) -> None:
        """Open a connection, and begin."""

        def work() -> None:
            if self._connection is None:
                self._connection = _opened(self._database)
            else:
                _begin(self._database, self._connection)

        await self._execute(work)

    async def end(self, text: str) -> None:
        """Commit or roll back."""
        await self._execute(lambda: self._conn.execute(text))

    async def roll_back(self) -> None:
        """Roll back, after the running call of the thread; keep the connection if that succeeds."""

        def work() -> bool:
            connection = self._connection
            if connection is None:
                return False
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("rollback")
            return not connection.in_transaction

        try:
            is_clean = await self._execute(work)
        except BaseException:
            self.close()
            raise
        if is_clean:
            self.put_away()
        else:
            self.close()

    def put_away(self) -> None:
        """Keep it for the next transaction; no transaction is open, and its thread is idle."""
        _tidy(self._conn)
        self._database.async_shelf.put(self)

    def close(self) -> None:
        """Close the connection after the running call of its thread, and end the thread."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._thread.submit(connection.close)
        self._thread.shutdown(wait=False)


def _answered(cursor: sqlite3.Cursor) -> AsyncSqliteCursor:
    return AsyncSqliteCursor(cursor.fetchall(), cursor.rowcount, cursor.lastrowid)


@asynccontextmanager
async def aown(database: Database) -> AsyncGenerator[AsyncSqlite]:
    """`own`, awaited."""
    assert isinstance(database, SqliteDatabase)
    connection: AsyncSqlite = database.async_shelf.take() or AsyncSqlite(database)
    try:
        await connection.open()
        yield connection
        _refuse_ended(connection)
        await connection.end("commit")
    except BaseException:
        await connection.roll_back()
        raise
    connection.put_away()
