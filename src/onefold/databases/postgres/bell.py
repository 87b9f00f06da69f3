"""The doorbell of PostgreSQL: LISTEN, on a connection of its own, which is made anew when lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from onefold.errors import DatabaseError
from onefold.operations.statement import quoted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from onefold.databases import Ring

CHANNEL_BYTES: Final = 63
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0


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
        try:
            async with await self._connect() as connection:
                listen = sql.SQL("listen {}").format(sql.Identifier(self._channel))
                await connection.execute(listen)
                self.is_heard, self._pause = True, FIRST_PAUSE
                ring(None)  # nobody rang while nobody listened
                async for notification in connection.notifies():
                    ring(notification.payload)
        finally:
            self.is_heard = False


class SilentBell:
    """Behind a pooler of transactions nobody can listen: the worker looks for itself."""

    is_heard: bool = False

    async def listen(self, ring: Ring) -> None:
        """Until cancelled; never rings."""
        del ring
        await asyncio.Event().wait()
