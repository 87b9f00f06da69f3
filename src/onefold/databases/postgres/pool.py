"""The connection pools of one process; a forked child starts without any.

The pool of an event loop ends with the loop, also without `aclose`. An ending loop cancels its
tasks once, and waits for them. Tasks of psycopg_pool may miss that: one that is connecting takes
it for a failed connection, and before Python 3.12 `asyncio.wait_for` may drop it. Then
`asyncio.run` would never return. So they are cancelled again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import psycopg
import psycopg_pool
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from onefold.databases.postgres.libpq import AsyncSession, LibpqSession, Session
from onefold.databases.postgres.reach import PostgresReach

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Self

    from onefold.databases.batching import Groups, TaskGroup, ThreadGroup
    from onefold.operations.migrations import Identity


Pool: TypeAlias = psycopg_pool.ConnectionPool[Session]
AsyncPool: TypeAlias = psycopg_pool.AsyncConnectionPool[AsyncSession]

CONNECTIONS: Final = 10
TCP: Final = {
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""A dead network is noticed in half a minute, well within a lease."""


class PooledSession(Session):
    """A connection of a pool that tries until the server accepts it.

    The pool itself would pause for up to minutes, and log each try.
    """

    @classmethod
    def connect(  # type: ignore[override]
        cls, conninfo: str = "", *, reach: PostgresReach, **settings: Any
    ) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Connect."""
        with reach.trying() as pauses:
            while True:
                try:
                    session = super().connect(conninfo, **settings)
                except psycopg.Error as error:
                    _check_away(error, reach)
                else:
                    reach.succeeded()
                    session.reach = reach
                    return session
                time.sleep(next(pauses))


class AsyncPooledSession(AsyncSession):
    """The same, awaited."""

    @classmethod
    async def connect(  # type: ignore[override]
        cls, conninfo: str = "", *, reach: PostgresReach, **settings: Any
    ) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Connect."""
        with reach.trying() as pauses:
            while True:
                try:
                    session = await super().connect(conninfo, **settings)
                except psycopg.Error as error:
                    _check_away(error, reach)
                else:
                    reach.succeeded()
                    session.reach = reach
                    return session
                await asyncio.sleep(next(pauses))


def _check_away(error: psycopg.Error, reach: PostgresReach) -> None:
    """Raise the error if no connection is needed any more; else the next try may succeed."""
    if reach.is_closed:
        raise error
    reach.failed(error)


def _is_told(record: logging.LogRecord) -> bool:
    """False for a line of psycopg_pool about one lost connection of ours: `Reach` has told it."""
    is_ours = isinstance(next(iter(record.args or ()), None), LibpqSession)
    return not (is_ours and str(record.msg).startswith("discarding "))


logging.getLogger("psycopg.pool").addFilter(_is_told)


def pool_settings(
    connection: dict[str, Any], reach: PostgresReach, *, timeout: float
) -> dict[str, Any]:
    """The options of our pools."""
    return {
        "min_size": 0,
        "max_size": CONNECTIONS,
        "timeout": timeout,
        "kwargs": connection | {"reach": reach},
        "name": "onefold",
    }


def is_full(pool: Pool | AsyncPool) -> bool:
    """True if every connection that the pool may have is in use, or being opened."""
    return pool.get_stats()["pool_size"] >= CONNECTIONS


class ProcessState:
    """The pools of one process: one for threads, one for each event loop."""

    def __init__(self, url: str, label: str) -> None:
        self.pid: int = os.getpid()
        self.reach: PostgresReach = PostgresReach(url, label)
        self.opening: threading.Lock = threading.Lock()
        self.identity: Identity | None = None
        self.pool: Pool | None = None
        self.pools: dict[asyncio.AbstractEventLoop, AsyncPool] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )
        self._failure: tuple[float, Exception] | None = None
        self.thread_groups: Groups[ThreadGroup] | None = None
        self.task_groups: dict[asyncio.AbstractEventLoop, Groups[TaskGroup]] = {}

    @contextmanager
    def outcome(self, asked: float) -> Generator[None]:
        """Raise one failure for all callers that waited for it, instead of one try for each."""
        if self._failure is not None and self._failure[0] >= asked:
            raise self._failure[1]
        try:
            yield
        except Exception as error:
            self._failure = (time.monotonic(), error)
            raise

    def opening_in(self, loop: asyncio.AbstractEventLoop) -> asyncio.Lock:
        """The lock of a loop for opening its pool, and for reading the identity."""
        return self._opening.setdefault(loop, asyncio.Lock())

    def turns_in(self, loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
        """The turns of reads that are not by keys: one connection of a loop is left to others."""
        turns = self._turns.get(loop)
        if turns is None:
            turns = self._turns[loop] = asyncio.Semaphore(CONNECTIONS - 1)
        return turns

    def forget_ended_loops(self) -> None:
        """Close the connections of event loops that have ended without `aclose`.

        After several `asyncio.run` they cannot be used any more, and the server would keep them.
        """
        for loop in [loop for loop in list(self._opening) if loop.is_closed()]:
            self._opening.pop(loop, None)
            self.task_groups.pop(loop, None)
        for loop, pool in list(self.pools.items()):
            if loop.is_closed() and self.pools.pop(loop, None) is not None:
                # The pool's own close would need the loop.
                idle: Any = getattr(pool, "_pool", ())
                for connection in idle:
                    connection.pgconn.finish()


AGAIN: Final = 0.05
"""Seconds: a task that has noticed the first cancel has ended by then."""


async def open_in_this_loop(url: str, **settings: Any) -> AsyncPool:
    """Open a pool."""
    pool: AsyncPool = psycopg_pool.AsyncConnectionPool(
        url, connection_class=AsyncPooledSession, open=False, **settings
    )
    others = asyncio.all_tasks()
    await pool.open()
    # This task waits for those of the pool, which keep a reference to it.
    asyncio.create_task(  # noqa: RUF006
        _cancel_until_ended(asyncio.all_tasks() - others), name="onefold-cancel-until-ended"
    )
    return pool


async def _cancel_until_ended(tasks: set[asyncio.Task[Any]]) -> None:
    """Wait until the tasks have ended; if cancelled, cancel them until they have."""
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        while running := (await asyncio.wait(tasks, timeout=AGAIN))[1]:
            for task in running:
                task.cancel()
        raise


def _is_usable(connection: Session | AsyncSession) -> bool:
    """Whether its transaction was ended, unlike after an interrupt, and it has our encoding."""
    pq = connection.pgconn
    is_idle = pq.transaction_status == TransactionStatus.IDLE
    return is_idle and pq.parameter_status(b"client_encoding") == b"UTF8"


def give_back(pool: Pool, connection: Session) -> None:
    """Reset the connection for the next use, whatever the handler has set, or close it."""
    if not _is_usable(connection):
        connection.close()
    else:
        connection.isolation_level = None
        connection.row_factory = tuple_row
        connection.was_lent = True
    pool.putconn(connection)


async def agive_back(pool: AsyncPool, connection: AsyncSession) -> None:
    """`give_back`, awaited."""
    if not _is_usable(connection):
        await connection.close()
    else:
        await connection.set_isolation_level(None)
        connection.row_factory = tuple_row
        connection.was_lent = True
    await pool.putconn(connection)
