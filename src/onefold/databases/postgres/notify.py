"""Wake-up of workers on PostgreSQL: LISTEN on a connection of its own, which reconnects.

A connection that only listens does not notice that the other side has dropped it. Keepalives find a
dead network. For other causes, the server is asked for a response once a minute; until then the
worker finds jobs by its looks.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from onefold.databases.postgres.pool import AGAIN
from onefold.errors import DatabaseError
from onefold.operations.statement import quoted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from onefold.databases import Notify

CHANNEL_BYTES: Final = 63
SHORTEST_PAUSE: Final = 0.2
"""Seconds between two attempts to connect, even if the database answers on other connections."""
LONGEST_PAUSE: Final = 1.0
CHECK: Final = 60.0
"""Seconds between two checks of the connection."""
CHECKED: Final = sql.SQL("select 1")
ANSWER: Final = 3.0
"""Seconds that the server has to answer one."""


def channel(schema: str) -> str:
    """The channel that insert statements notify: `onefold.job`, or that of another schema."""
    spelled = schema if schema == "onefold" else quoted(schema)
    return f"{spelled}.job"[:CHANNEL_BYTES]


class PostgresNotifier:
    """Calls back with the queue of stored jobs, and with None if some may have been missed."""

    def __init__(
        self, connect: Callable[[], Awaitable[psycopg.AsyncConnection[Any]]], schema: str
    ) -> None:
        """`connect` returns a connection in autocommit mode."""
        self._connect = connect
        self._channel = channel(schema)
        self.is_listening: bool = False

    async def listen(self, notify: Notify, answered: asyncio.Event) -> None:
        """Run until cancelled."""
        while True:
            answered.clear()
            # While the server is unavailable, the worker's own calls report it.
            with suppress(psycopg.Error, DatabaseError):
                await self._listen(notify)
            await asyncio.sleep(SHORTEST_PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(random.random() * (LONGEST_PAUSE - SHORTEST_PAUSE)):
                    await answered.wait()

    async def _listen(self, notify: Notify) -> None:
        connection = await self._connect()
        try:
            listen = sql.SQL("listen {}").format(sql.Identifier(self._channel))
            if not await _answers(connection, listen):
                return
            self.is_listening = True
            notify(None)  # notifications may have been missed
            while await _answers(connection, CHECKED):
                async for notification in connection.notifies(timeout=CHECK):
                    notify(notification.payload)
        finally:
            self.is_listening = False
            await connection.close()


async def _answers(
    connection: psycopg.AsyncConnection[Any], statement: sql.SQL | sql.Composed
) -> bool:
    """Whether the server responds in time; raises if it is known to be gone."""
    asked = asyncio.create_task(connection.execute(statement))
    try:
        await asyncio.wait({asked}, timeout=ANSWER)
        if answered := asked.done():
            await asked
        return answered
    finally:
        # Cancelled repeatedly: psycopg first waits for the server that it asks to cancel.
        while not asked.done():
            asked.cancel()
            await asyncio.wait({asked}, timeout=AGAIN)
        _ = asked.cancelled() or asked.exception()  # else asyncio reports it as not retrieved


class SilentNotifier:
    """Behind a transaction pooler, LISTEN does not work: the worker polls."""

    is_listening: bool = False

    async def listen(self, notify: Notify, answered: asyncio.Event) -> None:
        """Run until cancelled; never calls back."""
        del notify, answered
        await asyncio.Event().wait()
