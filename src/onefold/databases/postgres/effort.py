"""How long one call goes on trying."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.databases import raise_translated
from onefold.databases.gathering import HeldUp
from onefold.databases.postgres.errors import translated, verdict
from onefold.errors import DatabaseBusy, DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

# Spread retries, so that two who met once do not meet again.
PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 0.5

IMPATIENCE: Final = timedelta(milliseconds=100)
"""How long several callers together go on where keys keep changing hands."""


class Unconfirmed(msgspec.Struct, frozen=True):
    """A transaction whose commit was sent, and what its operation answers if it was committed."""

    number: str
    server: str
    result: Any


class StillOpen(Exception):
    """The server has not ended a transaction whose commit was sent on a connection that is lost."""


class Effort:
    """How long one call has been trying, and whether it should go on."""

    def __init__(
        self,
        label: str,
        patience: timedelta,
        busy: Callable[[timedelta], DatabaseBusy],
        *,
        patient: bool,
    ) -> None:
        """`busy` makes the error for a lock that was not given up in time.

        One that is not `patient` raises `HeldUp` at the first lock, and soon where keys keep
        changing hands.
        """
        self._label = label
        self._patience = patience
        self.patient = patient
        self._busy = busy
        self._started = time.monotonic()
        self._tries = 0
        self.resends: bool = False
        """True where an earlier try may have been stored, and its answer lost."""
        self.unconfirmed: Unconfirmed | None = None
        """The commit of an earlier try whose answer was lost."""

    def restart(self) -> float:
        """Seconds to wait before an operation begins anew; raises ours where it has too often."""
        waited = timedelta(seconds=time.monotonic() - self._started)
        if waited >= IMPATIENCE and not self.patient:
            # Alone, each would only have to ask again for its own key.
            raise HeldUp
        if waited >= self._patience:
            raise DatabaseBusy("the keys of this call kept changing hands.", waited=waited)
        # What was neither stored nor found by its key may be our own, from a call that was
        # interrupted: look for it by its id.
        self.resends = True
        return random.random() * PAUSE

    def wait(self) -> float:
        """Seconds to wait for a transaction that is still open; raises ours after too long."""
        waited = timedelta(seconds=time.monotonic() - self._started)
        if waited >= self._patience:
            raise DatabaseUnavailable(
                self._label,
                "the answer to a commit was lost, and the server has not ended that transaction"
                " yet. Whether it was stored is not known.",
            )
        return self._next_pause()

    def _next_pause(self) -> float:
        self._tries += 1
        return random.random() * min(PAUSE * 2.0**self._tries, LONGEST_PAUSE)

    def pause(self, error: psycopg.Error, *, connection_lost: bool) -> float:
        """Seconds to wait before the next try; raises ours where there is none."""
        waited = timedelta(seconds=time.monotonic() - self._started)
        meaning = verdict(error, connection_lost=connection_lost)
        if meaning == "waited" and not self.patient:
            raise HeldUp from error
        final = meaning == "final" or (meaning == "stored" and self.resends)
        if final or waited >= self._patience:
            raise_translated(translated(error, self._label, self._busy(waited)), error)
        self.resends = self.resends or meaning in {"stored", "lost"}
        return 0.0 if meaning in {"waited", "stored"} else self._next_pause()
