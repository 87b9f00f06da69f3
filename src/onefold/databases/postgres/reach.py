"""Whether a PostgreSQL server answers: tries to connect, and a question if a statement is slow."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg

from onefold.databases.postgres.errors import classify
from onefold.databases.reach import Reach
from onefold.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator

LEAST: Final = 2
"""The shortest `connect_timeout` of libpq, in seconds."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 0.25
"""Seconds between two tries: so late it is noticed that the server is back."""


class PostgresReach(Reach):
    """Whether a server answers."""

    def __init__(self, url: str, label: str) -> None:
        """`label` is the database in messages."""
        super().__init__(label)
        self._url = url
        self.is_closed: bool = False
        """True after the close: no connection is needed any more."""
        self._tries: list[float] = []
        self._asking = threading.Lock()
        self.answered_at: float = 0.0
        """When the server has said that it accepts connections."""

    def ask(self) -> None:
        """Ask the server in the background whether it is there: a statement takes long.

        One question at a time. A slow statement is none of a request's wait for its database.
        """
        if self._asking.acquire(blocking=False):
            threading.Thread(target=self._ask, name="onefold-reach", daemon=True).start()

    def _ask(self) -> None:
        try:
            psycopg.connect(self._url, connect_timeout=LEAST).close()
        except psycopg.Error as error:
            if classify(error, connection_lost=True) == "connection_lost":
                return  # else the server has answered: it is full, or rejects this user
        finally:
            self._asking.release()
        self.answered_at = time.monotonic()

    @contextmanager
    def trying(self) -> Generator[Generator[float]]:
        """Try to connect in this block; gives the seconds to wait after each try that fails."""
        began = time.monotonic()
        self._tries.append(began)
        try:
            yield _pauses()
        finally:
            self._tries.remove(began)

    def refuse_hopeless(self) -> None:
        """Refuse a request at once, if another one has just waited in vain."""
        if self.is_hopeless:
            raise DatabaseUnavailable(self.label, "other requests have just waited for it in vain.")

    def refuse_away(self, wait: float, error: Exception) -> None:
        """Refuse a request that has waited so long for a connection, unless all are in use."""
        now = time.monotonic()
        if any(now - began >= wait / 2 for began in list(self._tries)):
            reason = self._reason if self._is_away else f"no connection in {wait:g} s"
            self.gave_up(reason)
            raise DatabaseUnavailable(
                self.label,
                f"the server cannot be reached ({reason}). Is it running, and is the URL right?",
            ) from error


def _pauses() -> Generator[float]:
    pause = FIRST_PAUSE
    while True:
        yield pause * (0.5 + random.random() / 2)
        pause = min(pause * 2, LONGEST_PAUSE)
