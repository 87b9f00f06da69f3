"""A caller's own connection: recognised, checked, and never begun, committed or rolled back.

The library is read from the names of the connection's classes, so nothing optional is imported
before somebody uses it, subclasses work, and nobody probes with hasattr. Its errors pass through
untouched, for they belong to the caller's transaction; only a refusal by isolation becomes ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from onefold.errors import WrongConnection

if TYPE_CHECKING:
    from onefold.databases import Build, Clock, Database

T = TypeVar("T")


class Borrowed(Protocol):
    """A caller's connection, as something that runs operations."""

    @property
    def connection(self) -> object:
        """What was lent."""
        ...

    def check(self) -> None:
        """Raise `NoTransaction` where none is open and none will be."""
        ...

    def failed(self) -> bool:
        """True where the transaction is dead or over: a statement would fail, or be in another."""
        ...

    def transact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation in the caller's transaction."""
        ...

    async def atransact(self, build: Build[T], *, write: bool = True) -> T:
        """`transact`, awaited."""
        ...


def borrow(connection: object, database: Database, *, clock: Clock) -> Borrowed:
    """Recognise a connection; raises `WrongConnection` for anything else."""
    libraries = {
        (kind.__module__.partition(".")[0], kind.__name__) for kind in type(connection).__mro__
    }
    on_postgres = database.sql.dialect == "postgres"
    if ("sqlite3", "Connection") in libraries:
        if on_postgres:
            raise WrongConnection(
                connection, f"is SQLite's, and this Onefold is on {database.label}."
            )
        from onefold.databases import sqlite_borrowed as sqlite

        return sqlite.BorrowedSqlite(connection, database, clock)
    known = libraries & {
        ("psycopg", "Connection"), ("psycopg", "AsyncConnection"), ("asyncpg", "Connection"),
        ("asyncpg", "PoolConnectionProxy"),
    }  # fmt: skip
    if not known:
        raise WrongConnection(
            connection,
            "is not a connection that within() knows. Give it an open sqlite3, psycopg or asyncpg"
            " connection.",
        )
    if not on_postgres:
        raise WrongConnection(
            connection, f"is PostgreSQL's, and this Onefold is on {database.label}."
        )
    from onefold.databases.postgres import borrowed as postgres

    return postgres.borrow(next(iter(known)), connection, database, clock)
