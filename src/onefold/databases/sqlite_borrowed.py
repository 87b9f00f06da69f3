"""A caller's sqlite3 connection."""

from __future__ import annotations

import sqlite3
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from onefold.databases import sqlite_errors
from onefold.databases.sqlite import SqliteDatabase
from onefold.databases.sqlite_statements import execute
from onefold.errors import DatabaseBusy, NoTransaction, SerializationConflict, WrongConnection
from onefold.operations.run import run

if TYPE_CHECKING:
    from onefold.databases import Build, Clock, Database
    from onefold.operations.statement import Rows, Statement

T = TypeVar("T")


class BorrowedSqlite:
    """A caller's sqlite3 connection."""

    def __init__(self, connection: object, database: Database, clock: Clock) -> None:
        """The two were matched by `borrow`."""
        assert isinstance(connection, sqlite3.Connection)
        assert isinstance(database, SqliteDatabase)
        self._connection = connection
        self._database = database
        self._clock = clock

    @property
    def connection(self) -> object:
        """What was lent."""
        return self._connection

    def check(self) -> None:
        """Legacy and PEP 249 modes open a transaction by themselves; autocommit does not."""
        connection: Any = self._connection
        if connection.in_transaction:
            return
        # Python 3.12 brought `autocommit`; -1 is "as isolation_level says".
        autocommit = getattr(connection, "autocommit", -1)
        opens = connection.isolation_level is not None if autocommit == -1 else not autocommit
        if not opens:
            raise NoTransaction(connection)

    def failed(self) -> bool:
        """A failed statement kills a SQLite transaction only where it was told to."""
        return not self._connection.in_transaction

    def transact(self, build: Build[T], *, write: bool = True) -> T:
        """Begin what Python would begin at the first write anyway, but with the write lock.

        An operation may read before it writes, and what it read must still be so. One that only
        reads begins nothing.
        """
        self.check()
        if reason := self._database.check_borrowed(self._connection):
            raise WrongConnection(
                self._connection, f"{reason}: its commit would not cover the job."
            )
        self._guarded(lambda: self._database.prepare_borrowed(self._connection))
        if not write:
            return run(build(self._database.sql), self._execute)
        self._database.remember_borrowed(self._connection)
        if not self._connection.in_transaction:
            self._guarded(lambda: self._connection.execute("begin immediate"))
        return self._all_or_nothing(build)

    def _all_or_nothing(self, build: Build[T]) -> T:
        """Undo what came before a failure: a caller may catch the error and commit."""
        try:
            self._connection.execute("savepoint onefold")
        except sqlite3.OperationalError:
            # A writing statement of the caller's is still being read (`returning`). An enqueue
            # takes back what it stored by itself; only a failure of the file is not covered.
            return run(build(self._database.sql), self._execute)
        try:
            result = run(build(self._database.sql), self._execute)
        except BaseException:
            # Some errors (a full disk) have rolled the whole transaction back already.
            if self._connection.in_transaction:
                self._connection.execute("rollback to onefold")
                self._connection.execute("release onefold")
            raise
        self._connection.execute("release onefold")
        return result

    async def atransact(self, build: Build[T], *, write: bool = True) -> T:
        """sqlite3 blocks; there is nothing to await."""
        del build, write
        raise WrongConnection(
            self._connection, "is a sync connection. Call the method without the leading a."
        )

    def _execute(self, statement: Statement) -> Rows:
        rows: Rows = self._guarded(lambda: execute(self._connection, statement, self._clock))
        if self._connection.text_factory is not str:
            return [[_text(value) for value in row] for row in rows]
        return rows

    def _guarded(self, work: Any) -> Any:
        asked = time.monotonic()
        try:
            return work()
        except sqlite3.OperationalError as error:
            if sqlite_errors.is_stale_snapshot(error):
                raise SerializationConflict(
                    "it began by reading, and the file has changed since"
                ) from error
            if sqlite_errors.is_busy(error):
                raise DatabaseBusy(
                    "another connection holds the write lock of the file.",
                    waited=timedelta(seconds=round(time.monotonic() - asked, 3)),
                ) from error
            raise


def _text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value
