"""Whether a database answers: how long a request waits for it, and one line for each change.

A call of the library waits as long as it says (`busy_timeout`). A request waits at most for the
`database_wait` of its Onefold, while others try again, so that a restart of a second is no error.
Once a request has waited in vain, the others fail at once, as long as the last try has failed less
than a second ago.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

JUST: Final = 1.0
"""Seconds after a try that has failed in which no other request waits."""

log: logging.Logger = logging.getLogger("onefold")

database_wait: Final[ContextVar[float | None]] = ContextVar("database_wait", default=None)
"""Seconds for which the request of this context waits for its database; None in other calls."""


@contextmanager
def waiting(seconds: float | None) -> Generator[None]:
    """Wait so long for the database in this block, as a request; None: as a call does."""
    outer = database_wait.set(seconds)
    try:
        yield
    finally:
        database_wait.reset(outer)


class Reach:
    """What the calls of one process know about a database."""

    def __init__(self, label: str) -> None:
        """`label` is the database in messages."""
        self.label: str = label
        # Reentrant: a signal handler may fail in the middle of a failure.
        self._lock = threading.RLock()
        self._is_away = False
        self._away_since = 0.0
        self._failed_at = 0.0
        self._reason = ""
        self._in_vain = False

    @property
    def is_hopeless(self) -> bool:
        """Whether a request has waited in vain, and the last try has just failed."""
        return self._in_vain and time.monotonic() - self._failed_at < JUST

    def failed(self, reason: object) -> None:
        """A try has failed."""
        with self._lock:
            self._failed_at = time.monotonic()
            self._reason = " ".join(str(reason).split())
            if not self._is_away:
                self._is_away, self._away_since = True, self._failed_at
                log.warning("The database does not answer: %s (%s)", self.label, self._reason)

    def gave_up(self, reason: object) -> None:
        """A request has waited in vain."""
        self.failed(reason)
        self._in_vain = True

    def succeeded(self) -> None:
        """The database has answered."""
        if not self._is_away:
            return
        with self._lock:
            was_away, self._is_away, self._in_vain = self._is_away, False, False
            if was_away:
                seconds = time.monotonic() - self._away_since
                log.warning("The database answers again, after %.1f s: %s", seconds, self.label)
