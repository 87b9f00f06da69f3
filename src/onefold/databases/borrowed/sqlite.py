"""A sqlite3 or aiosqlite connection of the caller, given directly or inside of another library.

An aiosqlite connection lives in a thread of its own. The whole operation runs there at once.
Statement by statement, another task with the same connection could come between, and a cancelled
call could leave a part of itself behind.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from contextvars import copy_context
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from onefold.databases import borrowed
from onefold.databases.borrowed import Borrowed
from onefold.databases.sqlite import execute as sqlite_errors
from onefold.databases.sqlite.database import SqliteDatabase
from onefold.databases.sqlite.execute import execute
from onefold.databases.sqlite.forks import forks
from onefold.errors import DatabaseBusy, NoTransaction, SerializationConflict, WrongConnection
from onefold.operations.statement import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.databases import Build, Database
    from onefold.operations.statement import Rows, Statement


T = TypeVar("T")


class BorrowedSqlite(Borrowed):
    """A sqlite3 connection of the caller."""

    def __init__(
        self,
        connection: object,
        database: Database,
        *,
        lent: object = None,
        library: Any = None,
    ) -> None:
        """`lent` is the object that the caller passed, if it is not the connection itself.

        `library` makes cursors whose statements its library sees.
        """
        super().__init__(connection if lent is None else lent, database)
        assert isinstance(connection, sqlite3.Connection)
        assert isinstance(database, SqliteDatabase)
        self._database = database
        self._connection = connection
        self._library = connection if library is None else library

    def check(self) -> None:
        """Raise `NoTransaction` if none is open, and the next write begins none."""
        forks.refuse_inherited(self._database.path)
        try:
            will_be_in_one = self._connection.in_transaction or self._begins_by_itself()
        except sqlite3.ProgrammingError as error:
            raise borrowed.closed(self.connection) from error
        if not will_be_in_one:
            raise NoTransaction(self.connection)

    def _begins_by_itself(self) -> bool:
        """Legacy and PEP 249 modes do; autocommit does not."""
        # -1, and before Python 3.12: isolation_level decides.
        autocommit = -1
        # Only the thread of the connection may read it. There the operation asks again.
        with suppress(sqlite3.ProgrammingError):
            autocommit = getattr(self._connection, "autocommit", -1)
        return self._connection.isolation_level is not None if autocommit == -1 else not autocommit

    def failed(self) -> bool:
        """True if the transaction has ended. On SQLite, a failed statement rarely ends it."""
        try:
            return not self._connection.in_transaction
        except sqlite3.ProgrammingError:  # closed
            return True

    def transact(self, build: Build[T], *, write: bool = True) -> T:
        """Begin what Python would begin at the first write, but with the write lock.

        An operation may read before it writes, and what it read must stay true. An operation that
        only reads does not begin.
        """
        self.check()
        if reason := self._database.check_borrowed(self._connection):
            raise WrongConnection(self.connection, f"{reason}: its commit would not cover the job.")
        self._translating_errors(lambda: self._database.prepare_borrowed(self._connection))
        if not write:
            return run(build(self._database.sql), self._execute)
        self._database.remember_borrowed(self._connection)
        if not self._connection.in_transaction:
            self._translating_errors(lambda: self._execute_text("begin immediate"))
        return self._all_or_nothing(build)

    def _all_or_nothing(self, build: Build[T]) -> T:
        """Undo the statements before a failure: a caller may catch the error and commit."""
        try:
            self._execute_text("savepoint onefold")
        except Exception as error:
            if not _is_operational(error):
                raise
            # A writing statement of the caller is still being read (`returning`). An enqueue
            # removes what it stored; only an error of the file is not covered.
            return run(build(self._database.sql), self._execute)
        try:
            result = run(build(self._database.sql), self._execute)
        except BaseException:
            # Some errors (a full disk) have rolled the whole transaction back.
            if self._connection.in_transaction:
                self._execute_text("rollback to onefold")
                self._execute_text("release onefold")
            raise
        self._execute_text("release onefold")
        return result

    def _execute(self, statement: Statement) -> Rows:
        rows = self._translating_errors(lambda: execute(self._library, statement, self._clock))
        if self._connection.text_factory is not str:
            return [[_text(value) for value in row] for row in rows]
        return rows

    def _execute_text(self, text: str) -> None:
        self._library.cursor().execute(text)

    def _translating_errors(self, work: Callable[[], T]) -> T:
        asked = time.monotonic()
        try:
            return work()
        except Exception as error:
            for cause in borrowed.causes(error):
                if sqlite_errors.is_stale_snapshot(cause):
                    raise SerializationConflict(
                        "it began by reading, and the file has changed since"
                    ) from error
                if sqlite_errors.is_busy(cause):
                    raise DatabaseBusy(
                        "another connection holds the write lock of the file.",
                        waited=timedelta(seconds=round(time.monotonic() - asked, 3)),
                    ) from error
            raise


def _is_operational(error: BaseException) -> bool:
    return any(isinstance(cause, sqlite3.OperationalError) for cause in borrowed.causes(error))


def _text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


class BorrowedAiosqlite(Borrowed):
    """An aiosqlite connection of the caller."""

    def __init__(self, connection: Any, database: Database, *, lent: object = None) -> None:
        """`lent` is the object that the caller passed, if it is not the connection itself."""
        super().__init__(connection if lent is None else lent, database)
        self._connection = connection

    def check(self) -> None:
        """As for sqlite3; `autocommit=True` is found out by the first call, in its thread."""
        self._sqlite3().check()

    def failed(self) -> bool:
        """Closed, or as for sqlite3."""
        connection: Any = self._connection
        return connection._connection is None or self._sqlite3().failed()  # noqa: SLF001

    async def atransact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation in one hop to the connection's thread."""
        borrowed_sqlite3, context = self._sqlite3(), copy_context()
        # aiosqlite has a public way to send a statement there, but none to send a function.
        result: T = await self._connection._execute(  # noqa: SLF001
            lambda: context.run(lambda: borrowed_sqlite3.transact(build, write=write))
        )
        return result

    def _sqlite3(self) -> BorrowedSqlite:
        try:
            connection = self._connection._conn  # noqa: SLF001
        except ValueError as error:  # not yet awaited, or closed
            raise borrowed.closed(self.connection) from error
        return BorrowedSqlite(connection, self.database, lent=self.connection)
