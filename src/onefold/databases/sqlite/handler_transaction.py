"""Transactions on SQLite that are begun for a handler: on a connection of ours, or on its own.

A connection of ours has one user at a time. In an event loop it has a thread of its own and is
awaited, as psycopg's: `await (await tx.execute(…)).fetchall()`. A `Shelf` keeps connections for
the next transactions.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from onefold.databases import raise_translated
from onefold.databases.borrowed import has_begun
from onefold.databases.sqlite.execute import execute
from onefold.databases.sqlite.forks import forks
from onefold.errors import UsageError
from onefold.operations.statement import run

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Generator,
        Iterable,
        Sequence,
    )

    from onefold.databases import Build
    from onefold.databases.sqlite.database import SqliteDatabase

T = TypeVar("T")

MOST: Final = 8
"""Connections that a shelf keeps."""


class Closes(Protocol):
    """An object that is closed, not in use, when it is not needed any more."""

    def close(self) -> None:
        """Release its resources."""


C = TypeVar("C", bound=Closes)


class Shelf(Generic[C]):
    """Keeps at most a few objects for reuse. Safe in threads: each operation is atomic."""

    def __init__(self) -> None:
        self._things: list[C] = []
        self._is_closed = False

    def take(self) -> C | None:
        """One of the objects; None if there is none."""
        try:
            return self._things.pop()
        except IndexError:
            return None

    def put(self, thing: C) -> None:
        """Keep an object for reuse, or close it if there are enough."""
        if len(self._things) >= MOST:
            thing.close()
            return
        self._things.append(thing)
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Close all objects, and those that are put here later."""
        self._is_closed = True
        self.clear()

    def clear(self) -> None:
        """Close all objects."""
        while (thing := self.take()) is not None:
            thing.close()


def put_away(shelf: Shelf[sqlite3.Connection], connection: sqlite3.Connection) -> None:
    """Keep a connection for reuse, or close it if its transaction could not be ended."""
    if connection.in_transaction:
        connection.close()
        return
    _tidy(connection)
    shelf.put(connection)


def _tidy(connection: sqlite3.Connection) -> None:
    """Reset what a handler may have set. In a transaction, this would commit."""
    connection.row_factory, connection.text_factory = None, str
    connection.isolation_level = None


def called_in(executor: ThreadPoolExecutor, work: Callable[[], T]) -> asyncio.Future[T]:
    """Call a function in a thread. The thread goes on if the caller is cancelled.

    `run_in_executor` with `asyncio.shield` takes two turns of the loop more.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    outcome: asyncio.Future[T] = loop.create_future()

    def call() -> None:
        settle: Callable[[], None]
        try:
            settle = partial(outcome.set_result, context.run(work))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            settle = partial(outcome.set_exception, error)
        with suppress(RuntimeError):  # The loop has been closed.
            loop.call_soon_threadsafe(_unless_cancelled, outcome, settle)

    executor.submit(call)
    return outcome


def _unless_cancelled(outcome: asyncio.Future[Any], settle: Callable[[], None]) -> None:
    if not outcome.cancelled():
        settle()


@contextmanager
def open_transaction(
    database: SqliteDatabase, shelf: Shelf[sqlite3.Connection]
) -> Generator[sqlite3.Connection]:
    """A connection of ours with the write lock, for one transaction."""
    database.identity()
    connection = shelf.take()
    if connection is None:
        with forks:
            connection = database.connect()
    try:
        database.until_free(lambda: database.begin(connection))
        # A plain call in this thread would wait for this transaction: it raises instead.
        database.remember_borrowed(connection)
        with _committed(connection):
            yield connection
    finally:
        put_away(shelf, connection)


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
        raise UsageError(
            "The transaction was ended inside its block, so its rows are committed without the"
            " rest."
        )


@contextmanager
def lent(connection: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    """A caller's connection, begun with the write lock."""
    # Python 3.12 added `autocommit`; with False a transaction is always open.
    if getattr(connection, "autocommit", -1) is False:
        with connection:
            yield connection
        return
    if connection.in_transaction:
        raise has_begun(connection)
    connection.execute("begin immediate")
    with _committed(connection):
        yield connection


@asynccontextmanager
async def alent(connection: Any) -> AsyncGenerator[Any]:
    """A caller's aiosqlite connection, begun with the write lock."""
    if connection.in_transaction:
        if not await _is_always_open(connection):
            raise has_begun(connection)
        commit, rollback = connection.commit, connection.rollback
    else:
        await connection.execute("begin immediate")
        commit, rollback = (
            partial(connection.execute, "commit"),
            partial(connection.execute, "rollback"),
        )
    try:
        yield connection
        _refuse_ended(connection)
        await commit()
    except BaseException:
        if connection.in_transaction:
            await rollback()
        raise


async def _is_always_open(connection: Any) -> bool:
    """Whether it has `autocommit=False`, which only its thread may read."""
    answer: bool = await connection._execute(  # noqa: SLF001 - as in databases/borrowed/sqlite.py
        lambda: getattr(connection._conn, "autocommit", -1) is False  # noqa: SLF001
    )
    return answer


class AsyncSqliteCursor:
    """The result of a statement."""

    def __init__(self, rows: Sequence[Any], rowcount: int, lastrowid: int | None) -> None:
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
        self._database = database
        self._thread = ThreadPoolExecutor(1, "onefold-transaction")
        self._connection: sqlite3.Connection | None = None
        self.answer: Any = None
        """The result of the operation that ran together with the begin."""
        self.last: Build[Any] | None = None
        """The operation that runs together with the commit."""

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
        return await called_in(self._thread, work)

    async def begin(self, first: Build[Any] | None) -> None:
        """Open the connection if it is new, begin, and run the first operation.

        If the file is not locked, this is done at once, in the event loop: nothing reaches the
        disk before the commit. To wait for the lock, it takes one hop to the thread.
        """
        database = self._database

        def work() -> None:
            if self._connection is None:
                database.identity()
                with forks:
                    self._connection = database.connect()
            connection = self._connection
            database.until_free(lambda: database.begin(connection))

        is_free = self._connection is not None
        try:
            if self._connection is not None:
                database.begin(self._connection)
        except sqlite3.Error:
            is_free = False
        if not is_free:
            await self._execute(work)
        self.answer = None if first is None else self._operate(first)

    async def commit(self) -> None:
        """Run the last operation, and commit: in one hop."""
        last, self.last = self.last, None

        def work() -> None:
            _refuse_ended(self._conn)
            if last is not None:
                self._operate(last)
            self._conn.execute("commit")

        await self._execute(work)

    def _operate(self, build: Build[T]) -> T:
        """Run an operation. After an error, the whole transaction is rolled back."""
        database, connection = self._database, self._conn
        try:
            return run(build(database.sql), lambda one: execute(connection, one, database.clock))
        except sqlite3.Error as error:
            raise_translated(database.translated(error), error)

    async def roll_back(self) -> None:
        """Roll back, after the running call of the thread."""

        def work() -> None:
            if self._connection is not None and self._connection.in_transaction:
                with suppress(sqlite3.Error):
                    self._connection.execute("rollback")

        try:
            await self._execute(work)
        except BaseException:
            self._close_later()
            raise

    def put_away(self, shelf: Shelf[AsyncSqlite]) -> None:
        """Keep it for the next transaction, or close it if its transaction could not be ended."""
        connection = self._connection
        if connection is None or connection.in_transaction:
            self._close_later()
            return
        _tidy(connection)
        shelf.put(self)

    def _close_later(self) -> None:
        """Close the connection after the running call of its thread, and end the thread."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._thread.submit(connection.close)
        self._thread.shutdown(wait=False)

    def close(self) -> None:
        """Close the connection, which is not in use, and end the thread."""
        if self._connection is not None:
            self._connection.close()
        self._thread.shutdown(wait=False)


def _answered(cursor: sqlite3.Cursor) -> AsyncSqliteCursor:
    return AsyncSqliteCursor(cursor.fetchall(), cursor.rowcount, cursor.lastrowid)


@asynccontextmanager
async def aopen_transaction(
    database: SqliteDatabase, shelf: Shelf[AsyncSqlite], first: Build[Any] | None
) -> AsyncGenerator[AsyncSqlite]:
    """`open_transaction`, awaited."""
    connection = shelf.take() or AsyncSqlite(database)
    try:
        await connection.begin(first)
        yield connection
        await connection.commit()
    except BaseException:
        await connection.roll_back()
        raise
    finally:
        connection.put_away(shelf)
