"""The doorbell of a SQLite file: its data version, which every other connection's commit moves."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.databases import Ring

SHORTEST: Final = 0.01
LONGEST: Final = 0.05
"""Seconds between two looks, more while nothing happens. Each costs microseconds, and no disk."""


class SqliteBell:
    """Rings after any commit: whether there is something to take is for the worker to see."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """`connect` gives a connection that nobody else writes with."""
        self._connect = connect
        self.is_heard: bool = False

    async def listen(self, ring: Ring) -> None:
        """Until cancelled."""
        connection = self._connect()
        try:
            seen = _version(connection)
            self.is_heard = True
            ring(None)
            pause = SHORTEST
            while True:
                await asyncio.sleep(pause)
                pause = min(pause * 1.1, LONGEST)
                if (now := _version(connection)) != seen:
                    seen, pause = now, SHORTEST
                    ring(None)
        finally:
            self.is_heard = False
            connection.close()


def _version(connection: sqlite3.Connection) -> int:
    try:
        version: int = connection.execute("pragma data_version").fetchone()[0]
    except sqlite3.OperationalError:
        return -1  # somebody has the whole file: look again, and at what they did
    return version
