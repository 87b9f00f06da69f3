"""The pool of one event loop, which ends with the loop even where nobody closes it.

A loop that ends cancels its tasks once, and waits for them. The tasks of psycopg_pool may go on: a
worker that is connecting takes the cancel for a connection that failed, and before Python 3.12 its
scheduler, which waits by `asyncio.wait_for`, forgets one that comes together with what it waits
for. `asyncio.run` would never return. So they are told again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import psycopg_pool

from onefold.databases.postgres.attempt import AsyncSession

if TYPE_CHECKING:
    from onefold.databases.postgres.process import AsyncPool

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
