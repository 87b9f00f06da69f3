"""What belongs to one process: its pools, and what it knows of the database.

A forked child starts with nothing of its parent's.

The pool of one event loop, which ends with the loop even where nobody closes it.

A loop that ends cancels its tasks once, and waits for them. The tasks of psycopg_pool may go on: a
worker that is connecting takes the cancel for a connection that failed, and before Python 3.12 its
scheduler, which waits by `asyncio.wait_for`, forgets one that comes together with what it waits
for. `asyncio.run` would never return. So they are told again.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg_pool

from onefold.databases.postgres.transaction import AsyncSession, Session

if TYPE_CHECKING:
    from collections.abc import Generator

    from onefold.databases.batching import Groups, TaskGroup, ThreadGroup
    from onefold.operations.migrations import Identity


Pool: TypeAlias = psycopg_pool.ConnectionPool[Session]
AsyncPool: TypeAlias = psycopg_pool.AsyncConnectionPool[AsyncSession]

CONNECTIONS: Final = 10


def is_full(pool: Pool | AsyncPool) -> bool:
    """True where every connection that the pool may have is in use, or on its way."""
    return pool.get_stats()["pool_size"] >= CONNECTIONS


class Process:
    """The pools of one process: one for threads, one for each event loop."""

    def __init__(self) -> None:
        """Nothing is connected yet."""
        self.pid: int = os.getpid()
        self.opening: threading.Lock = threading.Lock()
        self.identity: Identity | None = None
        self.pool: Pool | None = None
        self.pools: dict[asyncio.AbstractEventLoop, AsyncPool] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._failure: tuple[float, Exception] | None = None
        self.thread_groups: Groups[ThreadGroup] | None = None
        self.task_groups: dict[asyncio.AbstractEventLoop, Groups[TaskGroup]] = {}

    @contextmanager
    def outcome(self, asked: float) -> Generator[None]:
        """Share a failure with those who have waited for it, instead of letting each fail anew."""
        if self._failure is not None and self._failure[0] >= asked:
            raise self._failure[1]
        try:
            yield
        except Exception as error:
            self._failure = (time.monotonic(), error)
            raise

    def opening_in(self, loop: asyncio.AbstractEventLoop) -> asyncio.Lock:
        """The lock of a loop under which its pool is opened, and the identity read."""
        return self._opening.setdefault(loop, asyncio.Lock())

    def forget_ended_loops(self) -> None:
        """Close the connections of event loops that have ended without `aclose`.

        An `asyncio.run` after the other leaves them behind: nobody can use them any more, and the
        server would keep them for ever.
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
"""Seconds: who has heard the first time has ended by then."""


async def open_in_this_loop(url: str, **settings: Any) -> AsyncPool:
    """A pool that is open."""
    pool: AsyncPool = psycopg_pool.AsyncConnectionPool(
        url, connection_class=AsyncSession, open=False, **settings
    )
    others = asyncio.all_tasks()
    await pool.open()
    # The pool's tasks remember this one: it waits for them.
    asyncio.create_task(_see_off(asyncio.all_tasks() - others), name="onefold-see-off")  # noqa: RUF006
    return pool


async def _see_off(tasks: set[asyncio.Task[Any]]) -> None:
    """Wait until they have ended; once cancelled, see to it that they do."""
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        while running := (await asyncio.wait(tasks, timeout=AGAIN))[1]:
            for task in running:
                task.cancel()
        raise
