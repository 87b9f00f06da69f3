"""Renews the leases of claims while their requests run, in a thread of its own.

So a handler that blocks the event loop does not lose its key.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final, final

from onefold.model.timestamps import span
from onefold.operations import claims

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.app.context import Context
    from onefold.model.claim import Claim

PART: Final = 3
"""A lease is renewed after a third of it, so that two renewals may fail."""

log: logging.Logger = logging.getLogger("onefold.web")


class KeptLease:
    """A lease that is renewed."""

    def __init__(self, claim: Claim, lease: timedelta) -> None:
        """The lease starts now."""
        self.claim: Claim = claim
        self.seconds: float = lease.total_seconds()
        self.lease: int = span(lease, "lease")
        self.begun(time.monotonic())
        self._is_taken = False

    def begun(self, started: float) -> None:
        """The lease was renewed. It counts from the start of the request for it."""
        self.due: float = started + self.seconds / PART
        self._ends: float = started + self.seconds

    def take(self) -> None:
        """Another attempt has the key."""
        self._is_taken = True

    @property
    def lost(self) -> bool:
        """True if another attempt has the key, or may have it."""
        return self._is_taken or time.monotonic() >= self._ends


@final
class LeaseKeeper:
    """Renews the leases of all running requests of this process."""

    def __init__(self, context: Context) -> None:
        """No thread starts before there is a lease to renew."""
        self._context = context
        self._process = os.getpid()
        self._leases: set[KeptLease] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes = 0.0

    def keep(self, claim: Claim, lease: timedelta) -> KeptLease:
        """Renew a lease until `let_go`."""
        if self._process != os.getpid():
            # A forked child has neither the thread nor the requests of its parent.
            self.__init__(self._context)
        kept = KeptLease(claim, lease)
        with self._changed:
            self._leases.add(kept)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="onefold-leases", daemon=True
                )
                self._thread.start()
            elif kept.due < self._wakes:
                self._changed.notify()
        return kept

    def let_go(self, kept: KeptLease) -> None:
        """Stop renewing a lease."""
        with self._changed:
            self._leases.discard(kept)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._leases:
                    self._wakes = time.monotonic() + _IDLE
                    self._changed.wait(_IDLE)
                if not self._leases:
                    self._thread = None
                    return
                now = time.monotonic()
                due = [kept for kept in self._leases if kept.due <= now]
                if not due:
                    self._wakes = min(kept.due for kept in self._leases)
                    self._changed.wait(self._wakes - now)
                    continue
            for kept in due:
                self._renew(kept)

    def _renew(self, kept: KeptLease) -> None:
        started = time.monotonic()
        try:
            renewal = partial(claims.renew, claim=kept.claim, lease=kept.lease)
            until = self._context.store.transact(renewal)
        except Exception as error:  # noqa: BLE001 - without the thread all leases would end
            log.warning("A lease could not be renewed; trying again: %s", error)
            kept.due = started + kept.seconds / PART / PART
            if kept.lost:
                self.let_go(kept)
            return
        if until is None:
            kept.take()
            self.let_go(kept)
        else:
            kept.begun(started)


_IDLE: Final = 30.0
"""Seconds without a request after which the thread ends."""
