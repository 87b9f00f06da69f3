"""The heart of requests in flight: renews the leases of those whose handlers take long.

A thread, so that a handler that blocks its event loop does not lose its key by that.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from onefold.model.timestamps import span
from onefold.operations import claims
from onefold.runtime import Transact

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.app.context import Context
    from onefold.model.claim import Claim
    from onefold.runtime import Procedure

PART: Final = 3
"""A lease is renewed when this part of it is over: two beats may fail."""

log: logging.Logger = logging.getLogger("onefold.web")


class KeptLease:
    """One lease that is kept alive."""

    def __init__(self, claim: Claim, lease: timedelta) -> None:
        """It counts from now."""
        self.claim: Claim = claim
        self.seconds: float = lease.total_seconds()
        self.lease: int = span(lease, "lease")
        self.begun(time.monotonic())
        self._is_taken = False

    def begun(self, asked: float) -> None:
        """The lease runs from no later than when it was asked for."""
        self.due: float = asked + self.seconds / PART
        self._ends: float = asked + self.seconds

    def take(self) -> None:
        """It is somebody else's."""
        self._is_taken = True

    @property
    def lost(self) -> bool:
        """True where the key may be somebody else's by now."""
        return self._is_taken or time.monotonic() >= self._ends


@final
class LeaseKeeper:
    """Renews whatever is in flight in this process."""

    def __init__(self, context: Context) -> None:
        """It does not beat before there is something to renew."""
        self._context = context
        self._process = os.getpid()
        self._beats: set[KeptLease] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes = 0.0

    def keep(self, claim: Claim, lease: timedelta) -> KeptLease:
        """Renew a lease until it is let go."""
        if self._process != os.getpid():
            # A forked child has none of its parent's threads, and none of its requests.
            self.__init__(self._context)
        beat = KeptLease(claim, lease)
        with self._changed:
            self._beats.add(beat)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="onefold-heart", daemon=True)
                self._thread.start()
            elif beat.due < self._wakes:
                self._changed.notify()
        return beat

    def let_go(self, beat: KeptLease) -> None:
        """It has ended, one way or the other."""
        with self._changed:
            self._beats.discard(beat)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._beats:
                    self._wakes = time.monotonic() + _IDLE
                    self._changed.wait(_IDLE)
                if not self._beats:
                    self._thread = None
                    return
                now = time.monotonic()
                due = [beat for beat in self._beats if beat.due <= now]
                if not due:
                    self._wakes = min(beat.due for beat in self._beats)
                    self._changed.wait(self._wakes - now)
                    continue
            for beat in due:
                self._renew(beat)

    def _renew(self, beat: KeptLease) -> None:
        asked = time.monotonic()
        try:
            until = self._context.runtime.run(_renewed(beat))
        except Exception as error:  # noqa: BLE001 - a heart that stops loses all that is in flight
            log.warning("A lease could not be renewed, and is tried again: %s", error)
            beat.due = asked + beat.seconds / PART / PART
            if beat.lost:
                self.let_go(beat)
            return
        if until is None:
            beat.take()
            self.let_go(beat)
        else:
            beat.begun(asked)


_IDLE: Final = 30.0
"""Seconds without a request, after which the thread ends."""


def _renewed(beat: KeptLease) -> Procedure[Any]:
    renewal = partial(claims.renew, claim=beat.claim, lease=beat.lease)
    until: object = yield Transact(renewal)
    return until
