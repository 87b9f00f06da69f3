"""A SQLAlchemy connection or session of the caller, sync or async.

1. Statements run by `exec_driver_sql`: SQLAlchemy begins before the first one, its events and logs
   see them, and their text is passed to the driver unchanged.
2. The async twins run in SQLAlchemy's greenlet. So does a sync session inside of `run_sync`.
3. On aiosqlite the whole operation runs in the connection's thread, without SQLAlchemy.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from onefold.databases import borrowed
from onefold.databases.borrowed import Borrowed, LibraryCursor, LibraryResult
from onefold.databases.borrowed.sqlite import BorrowedAiosqlite, BorrowedSqlite
from onefold.errors import NoTransaction, WrongConnection

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from onefold.databases import Build, Database
    from onefold.databases.borrowed import Parameters

T = TypeVar("T")

Blocking: TypeAlias = "Connection | Session"
Awaited: TypeAlias = "AsyncConnection | AsyncSession"

# With streaming results, selects become server-side cursors, which cannot insert.
_OPTIONS: Final = {"stream_results": False, "yield_per": None, "preserve_rowcount": True}


def borrow(lent: Any, database: Database) -> Borrowed:
    """The borrowed form of a SQLAlchemy object."""
    if isinstance(lent, scoped_session | async_scoped_session):
        lent = cast("Any", lent)()  # the session of this thread or task
    if isinstance(lent, Connection | Session):
        return BorrowedSqlalchemy(lent, database)
    return BorrowedAsyncSqlalchemy(lent, database)


class BorrowedSqlalchemy(Borrowed):
    """A connection or session of the caller."""

    def __init__(
        self, lent: Blocking, database: Database, *, awaited: Awaited | None = None
    ) -> None:
        """`awaited` is the async twin, if the caller passed that."""
        super().__init__(lent if awaited is None else awaited, database)
        self._given = lent
        """The connection or session of the caller, or the sync one in it."""
        borrowed.expect(self._system(), self.connection, database)
        self._connection: Connection | None = lent if isinstance(lent, Connection) else None
        """The connection of SQLAlchemy; a session has one after its first call."""

    def _system(self) -> str:
        name = self._bind().dialect.name
        return borrowed.SYSTEMS.get(name, name)

    def _bind(self) -> Engine | Connection:
        if isinstance(self._given, Connection):
            return self._given
        try:
            return self._given.get_bind()
        except UnboundExecutionError as error:
            raise WrongConnection(
                self.connection,
                "has no engine, or several. Give it the connection that is meant:"
                " session.connection(bind_arguments={'mapper': Invoice}).",
            ) from error

    def check(self) -> None:
        """A session that has not begun has no connection yet, and is checked at the first call."""
        if isinstance(self._given, Session):
            self._check_session(self._given)
        connection = self._connection
        if connection is None:
            return
        if connection.closed:
            if connection is not self._given:
                return
            raise borrowed.closed(self.connection)
        # On SQLite it is checked after BEGIN, which an event listener of the caller may emit.
        if connection.dialect.name == "postgresql" or connection.in_transaction():
            self._driver_connection(connection).check()

    def _check_session(self, session: Session) -> None:
        """A session can be configured to end at its close, or never to begin by itself."""
        # SQLAlchemy 2.0.22 has close_resets_only=False, without a public way to read it.
        state = getattr(session, "_close_state", None)
        if state is not None and state.name == "CLOSED":
            raise borrowed.closed(self.connection)
        if not session.autobegin and not session.in_transaction():
            raise NoTransaction(self.connection)

    def _check_awaited(self) -> None:
        """The sync side of an async engine works only in SQLAlchemy's greenlet."""
        if self._bind().dialect.is_async and not in_greenlet():
            twin = "AsyncConnection" if isinstance(self._given, Connection) else "AsyncSession"
            raise WrongConnection(
                self.connection,
                f"is the sync side of an async engine. Give it the {twin}, and await the method"
                " with the leading a (aenqueue), or call it inside run_sync.",
            )

    def failed(self) -> bool:
        """Closed, ended, or as the driver reports."""
        connection = self._connection
        if connection is None or connection.closed or not connection.in_transaction():
            return True
        return self._driver_connection(connection).failed()

    def transact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation after SQLAlchemy has begun, or begin now."""
        self._check_awaited()
        if isinstance(self._given, Connection):
            self.check()
        else:
            self._check_session(self._given)
            self._connection = self._given.connection()
        connection = self._connection
        assert connection is not None
        begun = None
        if connection.dialect.name == "sqlite" and not connection.in_transaction():
            begun = connection.begin()
        if connection.dialect.name == "postgresql" and connection.dialect.is_async:
            # Here, because our own read of the database would block the event loop.
            await_only(self.database.aidentity())
        try:
            return self._driver_connection(connection).transact(build, write=write)
        except NoTransaction:
            if begun is not None:
                begun.rollback()
            raise

    def _driver_connection(self, connection: Connection) -> Borrowed:
        """The driver's connection, with statements that SQLAlchemy runs."""
        pooled: Any = connection.connection
        driver = pooled.driver_connection
        match connection.dialect.driver:
            case "pysqlite":
                return BorrowedSqlite(
                    driver,
                    self.database,
                    lent=self.connection,
                    library=LibraryCursor(partial(_run, connection)),
                )
            case "aiosqlite":
                return _AiosqliteInGreenlet(driver, self.database, lent=self.connection)
            case name if connection.dialect.name == "sqlite":
                raise WrongConnection(
                    self.connection, f"uses the driver {name}. Use pysqlite or aiosqlite."
                )
            case _:
                return self._postgres_driver_connection(connection, pooled.dbapi_connection, driver)

    def _postgres_driver_connection(
        self, connection: Connection, adapted: Any, driver: Any
    ) -> Borrowed:
        from onefold.databases.borrowed.postgres import BorrowedThrough

        return BorrowedThrough(
            self.connection,
            self.database,
            driver=driver,
            autocommit=adapted.autocommit,
            run_text=partial(_run, connection),
        )


class BorrowedAsyncSqlalchemy(Borrowed):
    """An async connection or session of the caller: its sync object, run in a greenlet."""

    def __init__(self, lent: Awaited, database: Database) -> None:
        super().__init__(lent, database)
        self._given = lent
        inside = lent.sync_session if isinstance(lent, AsyncSession) else lent.sync_connection
        if inside is None:
            raise WrongConnection(
                lent, "is not open. Await it: async with engine.begin() as connection."
            )
        self._sync = BorrowedSqlalchemy(inside, database, awaited=lent)

    def check(self) -> None:
        """As for the sync one; the database is not read."""
        self._sync.check()

    def failed(self) -> bool:
        """As for the sync one."""
        return self._sync.failed()

    async def atransact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation as the sync one does."""
        return await self._given.run_sync(lambda _: self._sync.transact(build, write=write))


class _AiosqliteInGreenlet(BorrowedAiosqlite):
    """An aiosqlite connection inside of a greenlet, where awaits look like plain calls."""

    def transact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation in one hop to the connection's thread."""
        return await_only(self.atransact(build, write=write))


def _run(connection: Connection, text: str, parameters: Parameters) -> LibraryResult:
    result = connection.exec_driver_sql(text, parameters or None, execution_options=_OPTIONS)
    rows = [tuple(row) for row in result] if result.returns_rows else []
    return LibraryResult(rows, result.rowcount)
