"""Wake-up of workers on SQLite: `data_version`, which changes with every commit of others."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from onefold.databases.sqlite.forks import forks

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
        self._connection: sqlite3.Connection | None = None
        self._opened = 0
        self.is_listening: bool = False

    async def listen(self, notify: Notify, answered: asyncio.Event) -> None:
        """Run until cancelled."""
        del answered
        try:
            seen, pause = self._look(), SHORTEST
            self.is_listening = True
            notify(None)
            while True:
                await asyncio.sleep(pause)
                pause = min(pause * 1.1, LONGEST)
                if not forks.is_under_way and (now := self._look()) != seen:
                    seen, pause = now, SHORTEST
                    notify(None)
        finally:
            self.is_listening = False
            self.close_idle()

    def _look(self) -> tuple[int, int]:
        """The version of the data. Each connection counts its own."""
        with forks:
            if self._connection is None:
                self._connection = self._connect()
                self._opened += 1
            with suppress(sqlite3.OperationalError):
                (version,) = self._connection.execute("pragma data_version").fetchone()
                return self._opened, version
            return 0, 0  # another process has locked the whole file: look again later

    def close_idle(self) -> None:
        """Close the connection. The next look opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
