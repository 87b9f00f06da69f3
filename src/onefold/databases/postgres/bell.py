"""The doorbell of PostgreSQL: LISTEN, on a connection of its own, which is made anew when lost."""

from __future__ import annotations

import asyncio
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
        self.is_heard: bool = False

    async def listen(self, ring: Ring) -> None:
        """Until cancelled."""
        pause = FIRST_PAUSE
        while True:
            try:
                async with await self._connect() as connection:
                    await connection.execute(sql.SQL("listen {}").format(self._identifier))
                    self.is_heard, pause = True, FIRST_PAUSE
                    ring(None)  # nobody rang while nobody listened
                    async for notification in connection.notifies():
                        ring(notification.payload)
            except (psycopg.Error, DatabaseError):
                pass
            finally:
                self.is_heard = False
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    @property
    def _identifier(self) -> sql.Identifier:
        return sql.Identifier(self._channel)


class SilentBell:
    """Behind a pooler of transactions nobody can listen: the worker looks for itself."""

    is_heard: bool = False

    async def listen(self, ring: Ring) -> None:
        """Until cancelled; never rings."""
        del ring
        await asyncio.Event().wait()
