"""The pace of a worker: how many jobs it holds beside those that run.

As many as end while a flight is under way, so that nobody waits for the database, and no more: a
job that waits here for its turn could run elsewhere. Where jobs take seconds, that is none.
"""

from __future__ import annotations

import math
from typing import Final

HALF: Final = 0.5
"""The weight of the newest flight."""
INSTANT: Final = 1e-6
"""No flight follows another in less than a microsecond, whatever the clock says."""
AMPLE: Final = 2.0
"""Twice what is expected: a flight may take longer than the last one."""


class Pace:
    """Learns from flight to flight."""

    def __init__(self, prefetch: int | None, most: int) -> None:
        """`prefetch` is a number that somebody has fixed; else it grows up to `most`."""
        self._fixed = prefetch
        self._most = most
        self._rate = 0.0
        """Jobs that end in a second."""
        self._flight = 0.0
        """Seconds that a flight takes."""
        self._ended = 0
        self._landed_at: float | None = None

    @property
    def prefetch(self) -> int:
        """Jobs to hold beside those that run."""
        if self._fixed is not None:
            return self._fixed
        return min(self._most, math.ceil(self._rate * self._flight * AMPLE - HALF))

    def ended(self) -> None:
        """A job has ended."""
        self._ended += 1

    def landed(self, took: float, now: float) -> None:
        """A flight has landed after so many seconds."""
        since = None if self._landed_at is None else now - self._landed_at
        if since is not None and since > 0:
            self._rate += (self._ended / max(since, INSTANT) - self._rate) * HALF
        self._flight += (took - self._flight) * HALF
        self._ended, self._landed_at = 0, now
