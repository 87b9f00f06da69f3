"""Subjects: whom the contract suite examines.

A subject has the calls of `Onefold` under their own names, and carries each out in its own way:
on its own pool or within a caller's transaction, blocking or awaited. A test is written once, in
sync style, and cannot tell the difference; that is what it proves.

    subject = SyncSubject("sqlite:////tmp/exam.db")
    subject = AsyncSubject("postgresql://…", schema="exam")
    subject = WithinSqlite3("sqlite:////tmp/exam.db")
    subject = WithinPsycopg(url, schema="exam")          # also WithinAsyncPsycopg, WithinAsyncpg

The database must be the suite's alone: `reset` erases what a test stored, and chores such as
`rescue` and `prune` see everything that is there.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import abstractmethod
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, cast

from onefold.testing.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

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
    """Blocking calls, on Onefold's own pool."""

    def carry_out(self, target: object, name: str, *args: Any, **options: Any) -> Any:
        """A plain call."""
        return getattr(target, name)(*args, **options)


class AsyncSubject(Subject):
    """The a-twins, awaited on one event loop, on Onefold's own pool."""

    def __init__(self, url: str, *, schema: str = "onefold", shards: int | None = None) -> None:
        """The loop is the subject's own."""
        super().__init__(url, schema=schema, shards=shards)
        self._loop = asyncio.new_event_loop()

    def carry_out(self, target: object, name: str, *args: Any, **options: Any) -> Any:
        """The a-twin, awaited."""
        return self._loop.run_until_complete(getattr(target, f"a{name}")(*args, **options))

    def close(self) -> None:
        """Close the loop too."""
        super().close()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class WithinSync(SyncSubject):
    """Each call in a transaction of the caller's, who commits; an error rolls back."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[object]:
        """A transaction of the caller's on a connection of its own."""

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        caught: Exception | None = None
        answer: Any = None
        with self.transaction() as connection:
            try:
                answer = getattr(self._calls().within(connection), name)(*args, **options)
            except Exception as error:
                if not self._commits_errors:
                    raise
                caught = error
        if caught is not None:
            raise caught
        return answer


class WithinSqlite3(WithinSync):
    """Within a transaction of sqlite3."""

    def __init__(self, url: str, *, schema: str = "onefold", shards: int | None = None) -> None:
        """The connection is opened when it is first used."""
        super().__init__(url, schema=schema, shards=shards)
        self._connections: list[sqlite3.Connection] = []

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """`with connection:` of sqlite3."""
        if not self._connections:
            self._connections.append(sqlite3.connect(self.url.removeprefix("sqlite:///")))
        with self._connections[0] as connection:
            yield connection

    def close(self) -> None:
        """Close the connection too."""
        for connection in self._connections:
            connection.close()
        super().close()


class WithinPsycopg(WithinSync):
    """Within a transaction of psycopg's sync connection."""

    def __init__(self, url: str, *, schema: str = "onefold", shards: int | None = None) -> None:
        """The connection is opened when it is first used."""
        super().__init__(url, schema=schema, shards=shards)
        self._connections: list[Any] = []

    @contextmanager
    def transaction(self) -> Generator[object]:
        """A transaction that still works when we are done with it."""
        import psycopg

        if not self._connections:
            self._connections.append(psycopg.connect(self.url))
        connection = cast("psycopg.Connection[Any]", self._connections[0])
        with connection.transaction():
            yield connection
            connection.execute("select 1")

    def close(self) -> None:
        """Close the connection too."""
        for connection in self._connections:
            connection.close()
        super().close()


class WithinAsync(AsyncSubject):
    """Each call awaited in a transaction of the caller's, who commits; an error rolls back."""

    def __init__(self, url: str, *, schema: str = "onefold", shards: int | None = None) -> None:
        """The connection is opened when it is first used."""
        super().__init__(url, schema=schema, shards=shards)
        self._connections: list[Any] = []

    @abstractmethod
    async def connect(self) -> Any:
        """A connection of the caller's."""

    @abstractmethod
    def transaction(self, connection: Any) -> AbstractAsyncContextManager[Any]:
        """A transaction of the caller's on it."""

    async def _within(self, name: str, *args: Any, **options: Any) -> Any:
        if not self._connections:
            self._connections.append(await self.connect())
        connection = self._connections[0]
        caught: Exception | None = None
        answer: Any = None
        async with self.transaction(connection):
            within = self._calls().within(connection)
            try:
                answer = await cast("Awaitable[Any]", getattr(within, f"a{name}")(*args, **options))
            except Exception as error:
                if not self._commits_errors:
                    raise
                caught = error
            # A transaction that we poisoned fails here, and does not roll back in silence.
            await connection.execute("select 1")
        if caught is not None:
            raise caught
        return answer

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        return self._loop.run_until_complete(self._within(name, *args, **options))

    def close(self) -> None:
        """Close the connection too."""
        for connection in self._connections:
            self._loop.run_until_complete(connection.close())
        super().close()


class WithinAsyncPsycopg(WithinAsync):
    """Within a transaction of psycopg's async connection."""

    async def connect(self) -> Any:
        """A plain connection."""
        import psycopg

        return await psycopg.AsyncConnection.connect(self.url)

    def transaction(self, connection: Any) -> AbstractAsyncContextManager[Any]:
        """`async with connection.transaction()`."""
        return cast("AbstractAsyncContextManager[Any]", connection.transaction())


class WithinAsyncpg(WithinAsync):
    """Within a transaction of asyncpg."""

    async def connect(self) -> Any:
        """A plain connection."""
        import asyncpg

        return await asyncpg.connect(self.url)

    def transaction(self, connection: Any) -> AbstractAsyncContextManager[Any]:
        """`async with connection.transaction()`."""
        return cast("AbstractAsyncContextManager[Any]", connection.transaction())
