"""A caller's own connection: recognised, checked, and never begun, committed or rolled back.

The library is read from the names of the connection's classes, so nothing optional is imported
before somebody uses it, subclasses work, and nobody probes with hasattr. Statements go through the
library that was lent, whose transaction then knows of them. Its errors pass through untouched, for
they belong to the caller's transaction; only a refusal by isolation becomes ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from onefold.databases import Store
from onefold.databases.borrowed import refusals
from onefold.errors import WrongConnection

if TYPE_CHECKING:
    from onefold.databases import Clock, Database
    from onefold.databases.batching import Item

T = TypeVar("T")

Library: TypeAlias = Literal["sqlite3", "aiosqlite", "psycopg", "asyncpg", "sqlalchemy", "django"]

LIBRARIES: Final[dict[tuple[str, str], Library]] = {
    ("sqlite3", "Connection"): "sqlite3",
    ("aiosqlite", "Connection"): "aiosqlite",
    ("onefold", "AsyncSqlite"): "aiosqlite",
    ("psycopg", "Connection"): "psycopg",
    ("psycopg", "AsyncConnection"): "psycopg",
    ("asyncpg", "Connection"): "asyncpg",
    ("asyncpg", "PoolConnectionProxy"): "asyncpg",
    ("sqlalchemy", "Connection"): "sqlalchemy",
    ("sqlalchemy", "Session"): "sqlalchemy",
    ("sqlalchemy", "scoped_session"): "sqlalchemy",
    ("sqlalchemy", "AsyncConnection"): "sqlalchemy",
    ("sqlalchemy", "AsyncSession"): "sqlalchemy",
    ("sqlalchemy", "async_scoped_session"): "sqlalchemy",
    ("django", "BaseDatabaseWrapper"): "django",
    ("django", "ConnectionProxy"): "django",
}
"""By the package and the name of a class that the connection is, or comes from."""


class RunsAlone:
    """Runs an item of a batch by itself: nothing else commits with a caller's transaction."""

    def batch(self: Store, item: Item[Any, T]) -> T:
        """Run it in the caller's transaction."""
        return self.transact(item.alone)

    async def abatch(self: Store, item: Item[Any, T]) -> T:
        """`batch`, awaited."""
        return await self.atransact(item.alone)


class Borrowed(Store, Protocol):
    """A caller's connection. An operation runs in the caller's transaction."""

    @property
    def connection(self) -> object:
        """What was lent."""
        ...

    def check(self) -> None:
        """Raise `NoTransaction` where none is open and none will be, as far as can be told yet."""
        ...

    def failed(self) -> bool:
        """True where the transaction is dead or over: a statement would fail, or be in another."""
        ...


def borrow(connection: object, database: Database) -> Borrowed:
    """Recognise a connection; raises `WrongConnection` for anything else."""
    clock = database.clock
    kinds = type(connection).__mro__
    names = [(kind.__module__.partition(".")[0], kind.__name__) for kind in kinds]
    match library := next((LIBRARIES[name] for name in names if name in LIBRARIES), None):
        case "sqlite3" | "aiosqlite":
            return _borrow_sqlite(library, connection, database, clock)
        case "psycopg" | "asyncpg":
            return _borrow_postgres(library, connection, database, clock)
        case "sqlalchemy":
            from onefold.databases.borrowed import sqlalchemy

            return sqlalchemy.borrow(connection, database, clock)
        case "django":
            from onefold.databases.borrowed import django

            return django.borrow(connection, database, clock)
        case _:
            raise WrongConnection(connection, refusals.instead_of(names))


def _borrow_sqlite(
    library: Literal["sqlite3", "aiosqlite"], connection: object, database: Database, clock: Clock
) -> Borrowed:
    refusals.expect("sqlite", connection, database)
    if library == "aiosqlite":
        from onefold.databases.borrowed import aiosqlite

        return aiosqlite.BorrowedAiosqlite(connection, database, clock)
    from onefold.databases.borrowed import sqlite

    return sqlite.BorrowedSqlite(connection, database, clock)


def _borrow_postgres(
    library: Literal["psycopg", "asyncpg"], connection: object, database: Database, clock: Clock
) -> Borrowed:
    refusals.expect("postgres", connection, database)
    from onefold.databases.postgres import borrowed as postgres

    return postgres.borrow(library, connection, database, clock)
