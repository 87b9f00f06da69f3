"""Databases: the only code that uses connections. Internal.

A database runs an operation in a transaction of its own (`transact`, `atransact`); a borrowed
connection runs it in the caller's transaction. Only this package translates driver errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from onefold.errors import InvalidInput
from onefold.operations.statement import Operation, Sql

if TYPE_CHECKING:
    import asyncio
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import timedelta

    from onefold.databases.batching import Item
    from onefold.model.diagnosis import Surroundings
    from onefold.operations.migrations import Identity, Migration

T = TypeVar("T")

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")

Clock: TypeAlias = Callable[[], int] | None
"""Microseconds since the epoch; None: the database's own clock."""

Build: TypeAlias = Callable[[Sql], Operation[T]]
"""Builds the operation anew for every try: a retried transaction starts from the beginning."""


class Transact(Struct, Generic[T], frozen=True):
    """A command: run an operation in a transaction."""

    build: Build[T]
    write: bool = True


Notify: TypeAlias = Callable[[str | None], None]
"""Called with the queue that may have a job to take; None is any queue."""


class Notifier(Protocol):
    """Notifies a worker when jobs may be due."""

    is_listening: bool
    """False while it is not listening, and jobs may arrive without a notification."""

    async def listen(self, notify: Notify, answered: asyncio.Event) -> None:
        """Call `notify` until cancelled.

        `answered` is set when the database has answered the worker: it may be back.
        """
        ...


class Exchanges(Protocol):
    """Runs the operations of a worker in one event loop, each in one round trip."""

    def send(self, build: Build[T], answered: Callable[[T | None], None]) -> bool:
        """Send an operation at once; False if that is not possible now.

        `answered` is called in the event loop, with the result, or with None if the operation
        failed. Then it may have been committed, or be committed later.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Store(Protocol):
    """Runs operations: a database in transactions of its own, a borrowed connection in one."""

    @property
    def database(self) -> Database:
        """The database itself, or the one that the connection is connected to."""
        ...

    def transact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation in a transaction."""
        ...

    async def atransact(self, build: Build[T], *, write: bool = True) -> T:
        """`transact`, awaited."""
        ...

    async def alook(self, build: Build[T]) -> T:
        """Read a few rows by their keys, in one statement, awaited.

        It may run in the event loop itself.
        """
        ...

    def batch(self, item: Item[Any, T]) -> T:
        """Run an item of a plural operation, committed together with items of other callers."""
        ...

    async def abatch(self, item: Item[Any, T]) -> T:
        """`batch`, awaited."""
        ...


class Database(Store, Protocol):
    """A database, sync and async."""

    sql: Sql
    clock: Clock
    url: str
    """As it was given: with the password."""
    label: str
    """The database in messages: its URL without a password."""
    database_wait: float
    """Seconds for which a request waits for it."""

    def handler_transaction(self) -> AbstractContextManager[Any]:
        """A connection of ours, in a transaction for a handler."""
        ...

    def ahandler_transaction(
        self, first: Build[Any] | None = None
    ) -> AbstractAsyncContextManager[Any]:
        """`handler_transaction`, awaited.

        If the connection has an `answer`, it has run `first` together with the begin, and runs
        the operation that is set as its `last` together with the commit.
        """
        ...

    async def anotifier(self) -> Notifier:
        """Notifies a worker when jobs were stored."""
        ...

    def exchanges(self) -> Exchanges | None:
        """A faster way for the exchanges of a worker in this event loop; None if there is none."""
        ...

    def identity(self) -> Identity:
        """The identity of the installation; raises if its version is too old or too new."""
        ...

    async def aidentity(self) -> Identity:
        """`identity`, awaited."""
        ...

    def migrate(self, *, fresh: bool = False) -> list[Migration]:
        """Bring the schema up to date, under a lock; returns the applied migrations.

        `fresh` drops all tables before, with everything in them.
        """
        ...

    async def amigrate(self) -> list[Migration]:
        """`migrate`, awaited."""
        ...

    def surroundings(self) -> Surroundings:
        """What no statement tells, such as a pooler, or the free space of a disk."""
        ...

    def close(self) -> None:
        """Close all connections. Safe to call twice."""
        ...

    async def aclose(self) -> None:
        """`close`, awaited."""
        ...


def raise_translated(ours: BaseException, error: BaseException) -> NoReturn:
    """Raise our error with the driver's as its cause, or the driver's alone if it is kept."""
    if ours is error:
        raise error
    raise ours from error


def open_database(
    url: str,
    *,
    schema: str,
    clock: Clock,
    busy_timeout: timedelta,
    database_wait: timedelta,
    shards: int | None,
    prepared_statements: bool | None,
    notifies: bool,
) -> Database:
    """The database of a URL. Nothing is connected yet."""
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput("url", f"must be a string, got {type(url).__name__}")
    scheme = url.partition(":")[0]
    match scheme:
        case "sqlite":
            from onefold.databases.sqlite.database import SqliteDatabase

            return SqliteDatabase(
                url,
                clock=clock,
                busy_timeout=busy_timeout,
                database_wait=database_wait,
                shards=shards,
            )
        case "postgresql" | "postgres":
            try:
                from onefold.databases.postgres import PostgresDatabase
            except ImportError as error:
                raise InvalidInput(
                    "url", "names PostgreSQL; install its driver: pip install 'onefold[postgres]'"
                ) from error
            return PostgresDatabase(
                url,
                schema=schema,
                clock=clock,
                busy_timeout=busy_timeout,
                database_wait=database_wait,
                shards=shards,
                prepared_statements=prepared_statements,
                notifies=notifies,
            )
        case _:
            # No other part of the URL is shown: each may contain a password.
            got = f"the scheme {scheme!r}" if _SCHEME.fullmatch(scheme) and ":" in url else "none"
            raise InvalidInput("url", f"must start with sqlite:/// or postgresql://, got {got}")
