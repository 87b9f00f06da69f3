"""The doorbell of PostgreSQL: LISTEN, on a connection of its own, which is made anew when lost.

Who only listens sends nothing, and does not hear that the other side has forgotten the connection.
So the server is asked for an answer every few seconds, as often as an idle worker looks.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from onefold.databases.postgres.pool import AGAIN
from onefold.errors import DatabaseError
from onefold.operations.statement import quoted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from onefold.databases import Ring

CHANNEL_BYTES: Final = 63
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
CHECK: Final = 5.0
"""Seconds between two checks of the connection."""
CHECKED: Final = sql.SQL("select 1")
ANSWER: Final = 3.0
"""Seconds that the server has to answer one."""


def channel(schema: str) -> str:
    """What insert statements notify: `onefold.job`, spelled for another schema as they are."""
    spelled = schema if schema == "onefold" else quoted(schema)
    return f"{spelled}.job"[:CHANNEL_BYTES]


class PostgresBell:
    """Rings with the queue's name when jobs were stored, and with None when some were perhaps."""

    def __init__(
        self, connect: Callable[[], Awaitable[psycopg.AsyncConnection[Any]]], schema: str
    ) -> None:
        """`connect` gives a connection in autocommit mode."""
        self._connect = connect
        self._channel = channel(schema)
        self._pause = FIRST_PAUSE
        self.is_heard: bool = False

    async def listen(self, ring: Ring) -> None:
        """Until cancelled."""
        while True:
            # While the server is away, the worker's own calls say so.
            with suppress(psycopg.Error, DatabaseError):
                await self._hear(ring)
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE)

    async def _hear(self, ring: Ring) -> None:
        connection = await self._connect()
        try:
            listen = sql.SQL("listen {}").format(sql.Identifier(self._channel))
            if not await _answers(connection, listen):
                return
            self.is_heard, self._pause = True, FIRST_PAUSE
            ring(None)  # nobody rang while nobody listened
            while await _answers(connection, CHECKED):
                async for notification in connection.notifies(timeout=CHECK):
                    ring(notification.payload)
        finally:
            self.is_heard = False
            await connection.close()


async def _answers(
    connection: psycopg.AsyncConnection[Any], statement: sql.SQL | sql.Composed
) -> bool:
    """Whether the server answers in time; raises where it is known to be gone."""
    asked = asyncio.create_task(connection.execute(statement))
    try:
        await asyncio.wait({asked}, timeout=ANSWER)
        if answered := asked.done():
            await asked
        return answered
    finally:
        # Cancelled again and again: psycopg first waits for a server that it asks to cancel.
        while not asked.done():
            asked.cancel()
            await asyncio.wait({asked}, timeout=AGAIN)
        _ = asked.cancelled() or asked.exception()  # else asyncio reports it as not retrieved


class SilentBell:
    """Behind a pooler of transactions nobody can listen: the worker looks for itself."""

    is_heard: bool = False

    async def listen(self, ring: Ring) -> None:
        """Until cancelled; never rings."""
        del ring
        await asyncio.Event().wait()
