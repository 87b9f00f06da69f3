"""A connection of the caller: recognised, checked, and never begun, committed or rolled back.

The library is recognised by the names of the connection's classes: nothing optional is imported
before it is used, subclasses work, and no attribute is probed. Statements run through the caller's
library, so that its transaction knows of them. Its errors are not translated, for they belong to
the caller's transaction; only a serialization failure becomes our error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from onefold.errors import WrongConnection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onefold.databases import Build, Database
    from onefold.databases.batching import Item
    from onefold.operations.statement import Dialect, Rows


SYSTEMS: Final[dict[str, Dialect]] = {"postgresql": "postgres", "sqlite": "sqlite"}
"""Database systems, by the names that SQLAlchemy and Django have for them."""

_SHOWN: Final = {"postgres": "PostgreSQL", "sqlite": "SQLite"}

_ENGINE: Final = "is an engine, not a connection. Give it one: {}."
_MAKER: Final = "makes sessions, and is none. Give it a session: {}."
_POOL: Final = "is a pool, not a connection. Give it one: {}."
_TRANSACTION: Final = "is a transaction. Give it the connection or session that has begun it."

_INSTEAD: Final = {
    ("sqlalchemy", "Engine"): _ENGINE.format("with engine.begin() as connection"),
    ("sqlalchemy", "AsyncEngine"): _ENGINE.format("async with engine.begin() as connection"),
    ("sqlalchemy", "sessionmaker"): _MAKER.format("with make_session.begin() as session"),
    ("sqlalchemy", "async_sessionmaker"): _MAKER.format(
        "async with make_session.begin() as session"
    ),
    ("sqlalchemy", "Transaction"): _TRANSACTION,
    ("sqlalchemy", "AsyncTransaction"): _TRANSACTION,
    ("sqlalchemy", "SessionTransaction"): _TRANSACTION,
    ("sqlalchemy", "AsyncSessionTransaction"): _TRANSACTION,
    ("asyncpg", "Transaction"): _TRANSACTION,
    ("asyncpg", "Pool"): _POOL.format("async with pool.acquire() as connection"),
    ("psycopg", "Transaction"): _TRANSACTION,
    ("psycopg", "AsyncTransaction"): _TRANSACTION,
    ("psycopg_pool", "ConnectionPool"): _POOL.format("with pool.connection() as connection"),
    ("psycopg_pool", "AsyncConnectionPool"): _POOL.format(
        "async with pool.connection() as connection"
    ),
    ("django", "ConnectionHandler"): (
        "has all connections of Django. Give it one: connections['default']."
    ),
    ("psycopg2", "connection"): (
        "is psycopg2's, which is accepted through SQLAlchemy and Django only. Use psycopg 3."
    ),
}
"""Objects that are mistaken for a connection, by the package and name of their class."""


def class_names(value: object) -> tuple[tuple[str, str], ...]:
    """The package and name of each class of an object."""
    return _names_of(type(value).__mro__)


@lru_cache(maxsize=64)
def _names_of(kinds: tuple[type, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((kind.__module__.partition(".")[0], kind.__name__) for kind in kinds)


def instead_of(names: Sequence[tuple[str, str]]) -> str:
    """What to pass to `within` instead of an object of these classes."""
    return next(
        (_INSTEAD[name] for name in names if name in _INSTEAD),
        "is not a connection that within() knows. Give it an open connection of sqlite3, aiosqlite,"
        " psycopg, asyncpg or Django, or a connection or session of SQLAlchemy.",
    )


def expect(system: str, connection: object, database: Database) -> None:
    """Raise if a connection is to another database system than this Onefold's."""
    if system != database.sql.dialect:
        raise WrongConnection(
            connection,
            f"is {_SHOWN.get(system, system)}'s, and this Onefold is on {database.label}.",
        )


def has_begun(connection: object) -> WrongConnection:
    """The error for a connection with a transaction, where we have to begin one."""
    return WrongConnection(
        connection,
        "has an open transaction, which other code began and will end. Commit it before, or give"
        " a connection that is free.",
    )


def closed(connection: object) -> WrongConnection:
    """The error for a connection that is not open."""
    return WrongConnection(connection, "is not open. Give it a connection that is.")


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes: SQLAlchemy and Django wrap the driver's errors."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


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
"""By the package and name of a class of the connection, or of its bases."""


class Borrowed(ABC):
    """A connection of the caller. Operations run in the caller's transaction."""

    def __init__(self, connection: Any, database: Database) -> None:
        self.connection = connection
        """The object that the caller passed."""
        self.database = database
        self._clock = database.clock

    @abstractmethod
    def check(self) -> None:
        """Raise `NoTransaction` if none is open and none will be opened."""

    @abstractmethod
    def failed(self) -> bool:
        """True: the transaction has failed or ended."""

    def transact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation, on a blocking connection."""
        del build, write
        raise WrongConnection(
            self.connection,
            "is an async connection. Await the method with the leading a (aenqueue).",
        )

    async def atransact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation, on an async connection."""
        del build, write
        raise WrongConnection(
            self.connection, "is a sync connection. Call the method without the leading a."
        )

    async def alook(self, build: Build[T]) -> T:
        """Read by keys, as any other operation."""
        return await self.atransact(build, write=False)

    def batch(self, item: Item[Any, T]) -> T:
        """Run an item alone: nothing else commits with the caller's transaction."""
        return self.transact(item.alone)

    async def abatch(self, item: Item[Any, T]) -> T:
        """`batch`, awaited."""
        return await self.atransact(item.alone)


def borrow(connection: object, database: Database) -> Borrowed:
    """Recognise a connection; raises `WrongConnection` for anything else."""
    names = class_names(connection)
    match next((LIBRARIES[name] for name in names if name in LIBRARIES), None):
        case "sqlite3":
            expect("sqlite", connection, database)
            from onefold.databases.borrowed.sqlite import BorrowedSqlite

            return BorrowedSqlite(connection, database)
        case "aiosqlite":
            expect("sqlite", connection, database)
            from onefold.databases.borrowed.sqlite import BorrowedAiosqlite

            return BorrowedAiosqlite(connection, database)
        case "psycopg" | "asyncpg" as library:
            expect("postgres", connection, database)
            from onefold.databases.borrowed import postgres

            return postgres.borrow(library, connection, database)
        case "sqlalchemy":
            from onefold.databases.borrowed import sqlalchemy

            return sqlalchemy.borrow(connection, database)
        case "django":
            from onefold.databases.borrowed import django

            return django.borrow(connection, database)
        case _:
            raise WrongConnection(connection, instead_of(names))


Parameters: TypeAlias = Mapping[str, Any] | tuple[Any, ...]


class LibraryResult(NamedTuple):
    """The rows of a statement, and how many it changed."""

    rows: Rows
    changed: int


RunText: TypeAlias = Callable[[str, Parameters], LibraryResult]
"""Runs SQL text through the library."""


class LibraryCursor:
    """The part of a sqlite3 connection and cursor that our statements need."""

    row_factory: object = None

    def __init__(self, run_text: RunText) -> None:
        """`run_text` runs a statement through the library."""
        self._run_text = run_text
        self._answer = LibraryResult((), -1)

    def cursor(self) -> LibraryCursor:
        """A cursor for the next statement."""
        return LibraryCursor(self._run_text)

    def execute(self, text: str, parameters: Parameters = ()) -> LibraryCursor:
        """Run a statement to its end."""
        self._answer = self._run_text(text, parameters)
        return self

    def fetchall(self) -> Rows:
        """All rows."""
        return self._answer.rows

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        return self._answer.changed
