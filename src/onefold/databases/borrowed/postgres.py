"""A psycopg or asyncpg connection of the caller, given directly or inside of another library.

The libraries differ in how a statement is run and how the state of a transaction is read. The rest
is written once for blocking and once for async connections.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from onefold.databases import borrowed
from onefold.databases.borrowed import Borrowed
from onefold.databases.postgres.database import PostgresDatabase
from onefold.databases.postgres.errors import SERIALIZATION, sqlstate
from onefold.databases.postgres.transaction import awaited, called, execute
from onefold.errors import NoTransaction, SerializationConflict, WrongConnection
from onefold.operations.migrations import stored_identity
from onefold.operations.statement import Operation, Rows, Statement, compiled, run, run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.databases import Build, Clock, Database
    from onefold.databases.borrowed import RunText
    from onefold.operations.migrations import Identity, StoredIdentity

T = TypeVar("T")

FEW_ROWS: Final = 10


def borrow(library: str, connection: Any, database: Database) -> Borrowed:
    """The borrowed form of a connection whose library is known."""
    if library == "asyncpg":
        return BorrowedAsyncpg(connection, database)
    if isinstance(connection, psycopg.AsyncConnection):
        return BorrowedAsyncPsycopg(connection, database)
    return BorrowedPsycopg(connection, database)


class _BorrowedPostgres(Borrowed):
    """A connection of the caller to PostgreSQL, blocking or async."""

    def __init__(self, connection: Any, database: Database) -> None:
        super().__init__(connection, database)
        assert isinstance(database, PostgresDatabase)
        self._database = database

    @property
    def session(self) -> object:
        """The object that is remembered as checked."""
        return self.connection

    def _checked(self, build: Build[T], own: Identity) -> Operation[T]:
        """An operation, after the check of the connection's database."""
        sql = self._database.sql
        try:
            if self.session not in self._database.checked:
                self._accept((yield from stored_identity(sql)), own)
            return (yield from build(sql))
        except Exception as error:
            _raise_if_serialization_failure(error)
            raise

    def _accept(self, found: StoredIdentity, own: Identity) -> None:
        """The connection must be to our installation, or the commit would not cover the job.

        The name of the database must be equal, too: a copy of a database is the same installation.
        """
        database, (text, name, _) = self._database, found
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongConnection(
                self.connection, "has the client encoding SQL_ASCII. Set client_encoding to UTF8."
            )
        identity = database.identity_from(text) if text else None
        if identity is None or (identity.installation, name) != (own.installation, database.name):
            raise WrongConnection(
                self.connection,
                f"is connected to the database {name!r}, which is not the one of this Onefold"
                f" ({database.label}, schema {database.schema!r}): its commit would not cover the"
                " job.",
            )
        database.checked[self.session] = identity


class _Blocking(_BorrowedPostgres):
    """A blocking connection, in the caller's transaction."""

    def transact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation on its database."""
        del write  # both run in the caller's transaction
        self.check()
        return run(self._checked(build, self._database.identity()), self._execute)

    @abstractmethod
    def _execute(self, statement: Statement) -> Rows:
        """Run one statement through the library."""


class _Awaited(_BorrowedPostgres):
    """An async connection, in the caller's transaction."""

    async def atransact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation on its database."""
        del write  # both run in the caller's transaction
        self.check()
        own = await self._database.aidentity()
        return await run_async(self._checked(build, own), self._execute)

    @abstractmethod
    async def _execute(self, statement: Statement) -> Rows:
        """Run one statement through the library."""


def _raise_if_serialization_failure(error: Exception) -> None:
    """A serialization failure becomes our error; any other error is the caller's."""
    refused = [
        cause
        for cause in borrowed.causes(error)
        # psycopg2 has `pgcode`.
        if (sqlstate(cause) or getattr(cause, "pgcode", None)) in SERIALIZATION
    ]
    if refused:
        raise SerializationConflict(str(refused[-1]).partition("\n")[0]) from error


class _Psycopg(_BorrowedPostgres):
    """The transaction states of psycopg, blocking and async."""

    def __init__(self, connection: Any, database: Database) -> None:
        super().__init__(connection, database)
        self._cursors: list[Any] = []

    def _take(self, kind: Callable[..., Any]) -> Any:
        """A cursor for one statement. Each is kept for the next one.

        A new cursor has to prepare the adaptation of each parameter type. The connection does not
        make it: the caller may have set a row or cursor factory.
        """
        try:
            return self._cursors.pop()
        except IndexError:
            return kind(self.connection, row_factory=tuple_row)

    def _keep(self, cursor: Any) -> None:
        if cursor.rowcount <= FEW_ROWS:  # it would keep a long result in memory
            self._cursors.append(cursor)

    def check(self) -> None:
        """Autocommit without a transaction block would commit each statement by itself."""
        if self.connection.closed:
            raise borrowed.closed(self.connection)
        idle = self.connection.pgconn.transaction_status == TransactionStatus.IDLE
        if idle and self.connection.autocommit:
            raise NoTransaction(self.connection)

    def failed(self) -> bool:
        """An error, or the caller, has ended the transaction."""
        return bool(self.connection.pgconn.transaction_status != TransactionStatus.INTRANS)


class BorrowedPsycopg(_Psycopg, _Blocking):
    """A blocking psycopg connection of the caller."""

    def _execute(self, statement: Statement) -> Rows:
        cursor = self._take(psycopg.Cursor)
        rows = run(execute(cursor, statement, self._clock), called)
        self._keep(cursor)
        return rows


class BorrowedAsyncPsycopg(_Psycopg, _Awaited):
    """An async psycopg connection of the caller."""

    async def _execute(self, statement: Statement) -> Rows:
        cursor = self._take(psycopg.AsyncCursor)
        rows = await run_async(execute(cursor, statement, self._clock), awaited)
        self._keep(cursor)
        return rows


class BorrowedAsyncpg(_Awaited):
    """An asyncpg connection of the caller. asyncpg is not imported here."""

    @property
    def session(self) -> object:
        """A pool lends a new proxy each time; the connection behind it is remembered.

        Nothing is remembered after it has been returned to the pool.
        """
        return getattr(self.connection, "_con", self.connection)

    def check(self) -> None:
        """Outside of a transaction block, each statement would be committed by itself."""
        if self.session is None or self.connection.is_closed():
            raise borrowed.closed(self.connection)
        if not self.connection.is_in_transaction():
            raise NoTransaction(self.connection)

    def failed(self) -> bool:
        """A failed transaction looks like a living one in asyncpg."""
        return self.session is None or not self.connection.is_in_transaction()

    async def _execute(self, statement: Statement) -> Rows:
        text, values = _numbered(statement, self._clock)
        rows: Rows = await self.connection.fetch(text, *values)
        return [tuple(row) for row in rows]


def _numbered(statement: Statement, clock: Clock) -> tuple[str, tuple[Any, ...]]:
    """Text and parameters in asyncpg's style."""
    text, names = compiled(statement.text, "numbered")
    parameters = statement.arrays()
    parameters["now"] = None if clock is None else clock()
    parameters["patience"] = None
    return text, tuple(parameters[name] for name in names)


class BorrowedThrough(_Blocking):
    """A connection of a library on top of psycopg, psycopg2 or asyncpg."""

    def __init__(
        self,
        lent: object,
        database: Database,
        *,
        driver: Any,
        autocommit: bool,
        run_text: RunText,
    ) -> None:
        """`driver` has the transaction; `run_text` runs SQL text with its parameters."""
        super().__init__(lent, database)
        self._driver = driver
        self._autocommit = autocommit
        self._run_text = run_text
        self._name = type(driver).__module__.partition(".")[0]
        if self._name not in {"psycopg", "psycopg2", "asyncpg"}:
            raise WrongConnection(
                lent, f"uses the driver {self._name}. Use psycopg, psycopg2 or asyncpg."
            )

    @property
    def session(self) -> object:
        """The object that is remembered as checked."""
        return self._driver

    @property
    def _status(self) -> TransactionStatus:
        if self._name == "asyncpg":
            begun = self._driver.is_in_transaction()
            return TransactionStatus.INTRANS if begun else TransactionStatus.IDLE
        return TransactionStatus(self._driver.info.transaction_status)

    def check(self) -> None:
        """In autocommit the library would commit each statement by itself."""
        if self._autocommit and self._status == TransactionStatus.IDLE:
            raise NoTransaction(self.connection)

    def failed(self) -> bool:
        """An error, or the caller, has ended the transaction."""
        return self._status != TransactionStatus.INTRANS

    def _execute(self, statement: Statement) -> Rows:
        if self._name == "asyncpg":
            return self._run_text(*_numbered(statement, self._clock)).rows
        text, _ = compiled(statement.text, "pyformat")
        parameters = statement.arrays()
        parameters["now"] = None if self._clock is None else self._clock()
        parameters["patience"] = None
        return self._run_text(text, parameters).rows
