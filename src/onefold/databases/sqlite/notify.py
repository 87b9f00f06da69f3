"""Wake-up of workers on SQLite: `data_version`, which changes with every commit of others."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.databases import Notify

SHORTEST: Final = 0.01
LONGEST: Final = 0.05
"""Seconds between two looks, growing while nothing happens. A look costs microseconds, no disk."""


class SqliteNotifier:
    """Calls back after any commit: the worker checks whether there is a job."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """`connect` returns a connection that is not used to write."""
        self._connect = connect
        self.is_listening: bool = False

    async def listen(self, notify: Notify) -> None:
        """Run until cancelled."""
        connection = self._connect()
        try:
            seen = _version(connection)
            self.is_listening = True
            notify(None)
            pause = SHORTEST
            while True:
                await asyncio.sleep(pause)
                pause = min(pause * 1.1, LONGEST)
                if (now := _version(connection)) != seen:
                    seen, pause = now, SHORTEST
                    notify(None)
        finally:
            self.is_listening = False
            connection.close()


def _version(connection: sqlite3.Connection) -> int:
    try:
        version: int = connection.execute("pragma data_version").fetchone()[0]
    except sqlite3.OperationalError:
        return -1  # another process has locked the whole file: look again later
    return version
