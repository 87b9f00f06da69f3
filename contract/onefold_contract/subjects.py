"""Subjects: the ways of calling Onefold that the contract suite tests.

A case is written once, in blocking style. A subject makes its calls on Onefold's own connections
or within a transaction of the caller, blocking or awaited.

    subject = SyncSubject("sqlite:////tmp/contract.db")
    subject = AsyncSubject("postgresql://…", schema="contract")
    subject = WithinSqlite3("sqlite:////tmp/contract.db")
    subject = WithinPsycopg(url, schema="contract")      # also WithinAsyncPsycopg, WithinAsyncpg

The suite needs a database (or a schema of PostgreSQL) for itself: `reset` deletes what a test
stored, and chores such as `rescue` and `prune` work on all jobs.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onefold_contract.subject import Subject, method

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from onefold import Within

__all__ = [
    "AsyncSubject",
    "Subject",
    "SyncSubject",
    "WithinAsync",
    "WithinAsyncPsycopg",
    "WithinAsyncpg",
    "WithinPsycopg",
    "WithinSqlite3",
    "WithinSync",
]


class SyncSubject(Subject):
    """Blocking calls, on Onefold's own connections."""

    def make(self, target: object, path: str, *args: Any, **options: Any) -> Any:
        """A plain call."""
        return method(target, path)(*args, **options)


class AsyncSubject(Subject):
    """Calls of the a-twins, awaited on one event loop, on Onefold's own connections."""

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of this subject."""
        return asyncio.new_event_loop()

    def make(self, target: object, path: str, *args: Any, **options: Any) -> Any:
        """A call of the a-twin, awaited."""
        return self.loop.run_until_complete(method(target, path, prefix="a")(*args, **options))

    def close(self) -> None:
        """Close the loop too."""
        super().close()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


class WithinSync(SyncSubject):
    """Each call in a transaction of the caller, who commits; an error rolls back.

    Calls that `Within` does not have are made on Onefold's own connections.
    """

    @abstractmethod
    def connect(self) -> Any:
        """A connection of the caller."""

    def transaction(self, connection: Any) -> AbstractContextManager[Any]:
        """A transaction of the caller on it."""
        return connection.transaction()  # type: ignore[no-any-return]

    def open(self) -> None:
        """Connect, and see which calls `Within` has."""
        super().open()
        self.connections.append(self.connect())
        with self.transaction(self.connections[0]):
            self.joined: Within = self.onefold.within(self.connections[0])

    def call(self, path: str, *args: Any, **options: Any) -> Any:
        """Make a call within a transaction of the caller."""
        if not has_call(self.joined, path):
            return super().call(path, *args, **options)
        (connection,) = self.connections
        caught: Exception | None = None
        answer: Any = None
        with self.transaction(connection):
            within = self.target(path).within(connection)
            try:
                answer = method(within, path)(*args, **options)
            except Exception as error:
                if not self.commits_errors:
                    raise
                caught = error
            # Fails if the call has broken the transaction.
            connection.execute("select 1")
        if caught is not None:
            raise caught
        return answer

    def close(self) -> None:
        """Close the connection too."""
        for connection in self.connections:
            connection.close()
        super().close()


class WithinSqlite3(WithinSync):
    """Within a transaction of sqlite3."""

    def connect(self) -> Any:
        """A plain connection."""
        return sqlite3.connect(self.url.removeprefix("sqlite:///"))

    def transaction(self, connection: Any) -> AbstractContextManager[Any]:
        """`with connection:` of sqlite3."""
        return connection  # type: ignore[no-any-return]


class WithinPsycopg(WithinSync):
    """Within a transaction of psycopg's sync connection."""

    def connect(self) -> Any:
        """A plain connection."""
        import psycopg

        return psycopg.connect(self.url)


class WithinAsync(AsyncSubject):
    """`WithinSync`, awaited."""

    @abstractmethod
    async def connect(self) -> Any:
        """A connection of the caller."""

    def transaction(self, connection: Any) -> AbstractAsyncContextManager[Any]:
        """A transaction of the caller on it."""
        return connection.transaction()  # type: ignore[no-any-return]

    def open(self) -> None:
        """Connect, and see which calls `Within` has."""
        super().open()
        self.joined: Within = self.loop.run_until_complete(self._join())

    async def _join(self) -> Within:
        self.connections.append(await self.connect())
        async with self.transaction(self.connections[0]):
            return self.onefold.within(self.connections[0])

    def call(self, path: str, *args: Any, **options: Any) -> Any:
        """Make a call within a transaction of the caller."""
        if not has_call(self.joined, path):
            return super().call(path, *args, **options)
        return self.loop.run_until_complete(self._within(path, *args, **options))

    async def _within(self, path: str, *args: Any, **options: Any) -> Any:
        (connection,) = self.connections
        caught: Exception | None = None
        answer: Any = None
        async with self.transaction(connection):
            within = self.target(path).within(connection)
            try:
                answer = await method(within, path, prefix="a")(*args, **options)
            except Exception as error:
                if not self.commits_errors:
                    raise
                caught = error
            # Fails if the call has broken the transaction.
            await connection.execute("select 1")
        if caught is not None:
            raise caught
        return answer

    def close(self) -> None:
        """Close the connection too."""
        for connection in self.connections:
            self.loop.run_until_complete(connection.close())
        super().close()


class WithinAsyncPsycopg(WithinAsync):
    """Within a transaction of psycopg's async connection."""

    async def connect(self) -> Any:
        """A plain connection."""
        import psycopg

        return await psycopg.AsyncConnection.connect(self.url)


class WithinAsyncpg(WithinAsync):
    """Within a transaction of asyncpg."""

    async def connect(self) -> Any:
        """A plain connection."""
        import asyncpg

        return await asyncpg.connect(self.url)


def has_call(within: Within, path: str) -> bool:
    """Whether a call can join a transaction of the caller."""
    try:
        method(within, path)
    except AttributeError:
        return False
    return True
