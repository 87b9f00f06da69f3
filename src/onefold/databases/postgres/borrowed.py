"""A caller's psycopg or asyncpg connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from onefold.databases.postgres.database import PostgresDatabase, aexecute, execute
from onefold.databases.postgres.errors import SERIALIZATION, sqlstate
from onefold.errors import NoTransaction, SerializationConflict, WrongConnection
from onefold.operations.run import run, run_async
from onefold.operations.statement import Rows, Statement, compiled

if TYPE_CHECKING:
    from onefold.databases import Build, Clock, Database
    from onefold.databases.borrowed import Borrowed
    from onefold.operations.migrations import Identity

T = TypeVar("T")


def borrow(library: tuple[str, str], connection: Any, database: Database, clock: Clock) -> Borrowed:
    """The borrowed form of a connection whose library is known."""
    assert isinstance(database, PostgresDatabase)
    match library:
        case ("psycopg", "Connection"):
            return BorrowedPsycopg(connection, database, clock)
        case ("psycopg", "AsyncConnection"):
            return BorrowedAsyncPsycopg(connection, database, clock)
        case _:
            return BorrowedAsyncpg(connection, database, clock)


def _check_psycopg(connection: Any) -> None:
    idle = connection.info.transaction_status == TransactionStatus.IDLE
    if idle and connection.autocommit:
        raise NoTransaction(connection)


def _refusal(error: BaseException) -> SerializationConflict | None:
    if sqlstate(error) in SERIALIZATION:
        return SerializationConflict(str(error).partition("\n")[0])
    return None


def _same_database(database: PostgresDatabase, connection: Any, rows: Rows, own: Identity) -> None:
    """The installation must be ours: the caller's commit would not cover a job stored elsewhere.

    So must be the database's name: a copy of the database is the same installation.
    """
    text, name = rows[0]
    identity = database.known(rows) if text else None
    if identity is None or (identity.installation, name) != (own.installation, database.name):
        raise WrongConnection(
            connection,
            f"is connected to the database {name!r}, which is not the one of this Onefold"
            f" ({database.label}, schema {database.schema!r}): its commit would not cover the job.",
        )
    database.checked[connection] = identity


class BorrowedPsycopg:
    """A caller's sync psycopg connection."""

    def __init__(
        self, connection: psycopg.Connection[Any], database: PostgresDatabase, clock: Clock
    ) -> None:
        """Nothing is asked of the connection yet."""
        self._connection = connection
        self._database = database
        self._clock = clock

    @property
    def connection(self) -> object:
        """What was lent."""
        return self._connection

    def check(self) -> None:
        """Autocommit without a transaction block would commit each statement by itself."""
        _check_psycopg(self._connection)

    def failed(self) -> bool:
        """An error, or the caller, has ended the transaction already."""
        return self._connection.info.transaction_status != TransactionStatus.INTRANS

    def transact(self, build: Build[T]) -> T:
        """In the caller's transaction, whatever rows or cursors the caller likes."""
        self.check()
        own = self._database.identity()
        # Not connection.cursor(): the caller may have set a row or cursor factory of another shape.
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:

            def execute_here(statement: Statement) -> Rows:
                try:
                    return execute(cursor, statement, self._clock)
                except psycopg.Error as error:
                    if refusal := _refusal(error):
                        raise refusal from error
                    raise

            if self._connection not in self._database.checked:
                rows = execute_here(self._database.sql("read_identity"))
                _same_database(self._database, self._connection, rows, own)
            return run(build(self._database.sql), execute_here)

    async def atransact(self, build: Build[T]) -> T:
        """A sync connection would block the event loop."""
        del build
        raise WrongConnection(
            self._connection, "is a sync connection. Call the method without the leading a."
        )


class BorrowedAsyncPsycopg:
    """A caller's async psycopg connection."""

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], database: PostgresDatabase, clock: Clock
    ) -> None:
        """Nothing is asked of the connection yet."""
        self._connection = connection
        self._database = database
        self._clock = clock

    @property
    def connection(self) -> object:
        """What was lent."""
        return self._connection

    def check(self) -> None:
        """Autocommit without a transaction block would commit each statement by itself."""
        _check_psycopg(self._connection)

    def failed(self) -> bool:
        """An error, or the caller, has ended the transaction already."""
        return self._connection.info.transaction_status != TransactionStatus.INTRANS

    def transact(self, build: Build[T]) -> T:
        """An async connection can only be awaited."""
        del build
        raise _use_the_twin(self._connection)

    async def atransact(self, build: Build[T]) -> T:
        """In the caller's transaction, whatever rows or cursors the caller likes."""
        self.check()
        own = await self._database.aidentity()
        async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:

            async def execute_here(statement: Statement) -> Rows:
                try:
                    return await aexecute(cursor, statement, self._clock)
                except psycopg.Error as error:
                    if refusal := _refusal(error):
                        raise refusal from error
                    raise

            if self._connection not in self._database.checked:
                rows = await execute_here(self._database.sql("read_identity"))
                _same_database(self._database, self._connection, rows, own)
            return await run_async(build(self._database.sql), execute_here)


class BorrowedAsyncpg:
    """A caller's asyncpg connection. The driver is the caller's; nothing of it is imported here."""

    def __init__(self, connection: Any, database: PostgresDatabase, clock: Clock) -> None:
        """Nothing is asked of the connection yet."""
        self._connection = connection
        self._database = database
        self._clock = clock
        # A pool lends a proxy, a new one each time; what is remembered is the session behind it.
        self._session = getattr(connection, "_con", connection)

    @property
    def connection(self) -> object:
        """What was lent."""
        return self._connection

    def check(self) -> None:
        """Outside a transaction block, each statement would be committed by itself."""
        if not self._connection.is_in_transaction():
            raise NoTransaction(self._connection)

    def failed(self) -> bool:
        """Told from none, at least: asyncpg does not tell a dead transaction from a living one."""
        return not self._connection.is_in_transaction()

    def transact(self, build: Build[T]) -> T:
        """An async connection can only be awaited."""
        del build
        raise _use_the_twin(self._connection)

    async def atransact(self, build: Build[T]) -> T:
        """In the caller's transaction."""
        self.check()
        own = await self._database.aidentity()
        if self._session not in self._database.checked:
            rows = await self._execute(self._database.sql("read_identity"))
            _same_database(self._database, self._session, rows, own)
        return await run_async(build(self._database.sql), self._execute)

    async def _execute(self, statement: Statement) -> Rows:
        text, names = compiled(statement.text, "numbered")
        parameters = statement.arrays()
        parameters["now"] = self._clock()
        try:
            rows: Rows = await self._connection.fetch(text, *(parameters[name] for name in names))
        except Exception as error:
            if refusal := _refusal(error):
                raise refusal from error
            raise
        return [tuple(row) for row in rows]


def _use_the_twin(connection: object) -> WrongConnection:
    return WrongConnection(
        connection, "is an async connection. Await the method with the leading a (aenqueue)."
    )
