"""What is said of a connection that cannot be used, and what lies beneath a library's error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.errors import WrongConnection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onefold.databases import Database
    from onefold.operations.statement import Dialect

SYSTEMS: Final[dict[str, Dialect]] = {"postgresql": "postgres", "sqlite": "sqlite"}
"""By the name that SQLAlchemy and Django have for them."""

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
"""For what is taken for a connection, by the package and the name of its class."""


def instead_of(names: Sequence[tuple[str, str]]) -> str:
    """What to give `within` instead of a thing of these classes."""
    return next(
        (_INSTEAD[name] for name in names if name in _INSTEAD),
        "is not a connection that within() knows. Give it an open connection of sqlite3, aiosqlite,"
        " psycopg, asyncpg or Django, or a connection or session of SQLAlchemy.",
    )


def expect(system: str, connection: object, database: Database) -> None:
    """Raise where a connection is to another database system than this Onefold's."""
    if system != database.sql.dialect:
        raise WrongConnection(
            connection,
            f"is {_SHOWN.get(system, system)}'s, and this Onefold is on {database.label}.",
        )


def closed(connection: object) -> WrongConnection:
    """The error for a connection that is not open."""
    return WrongConnection(connection, "is not open. Give it a connection that is.")


def blocking(connection: object) -> WrongConnection:
    """The error for an awaited call on a sync connection."""
    return WrongConnection(
        connection, "is a sync connection. Call the method without the leading a."
    )


def awaited(connection: object) -> WrongConnection:
    """The error for a sync call on a connection that can only be awaited."""
    return WrongConnection(
        connection, "is an async connection. Await the method with the leading a (aenqueue)."
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what lies beneath it: SQLAlchemy and Django wrap what the driver says."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
