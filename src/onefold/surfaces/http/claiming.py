"""Asking for a key: look, claim, and wait while another is at work.

1. A look answers retries without a write. It decides nothing: where it finds the key free, the
   claim is made, and that is the database's decision.
2. A joined claim is the first statement of the handler's transaction.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from onefold.calls.procedure import Pause, Transaction, waits
from onefold.errors import Busy
from onefold.model.claim import (
    JOINED_RETRY,
    ClaimKey,
    Found,
    Mismatch,
    TakeOver,
    Wanted,
    Won,
    decide,
    want,
)
from onefold.model.claim import Answer as Claimed
from onefold.operations import claims
from onefold.surfaces.http.failing import is_busy
from onefold.surfaces.http.fingerprint import again, fingerprint
from onefold.surfaces.stage import Close, Held, Open

if TYPE_CHECKING:
    from onefold.surfaces.http.asked import Asked, Waiters
    from onefold.surfaces.http.policy import Policy
    from onefold.surfaces.stage import Scene

log: logging.Logger = logging.getLogger("onefold.surfaces")


class Claiming:
    """One request that asks for its key."""

    def __init__(self, policy: Policy, asked: Asked, waiters: Waiters) -> None:
        """Nothing is asked of the database yet."""
        self.policy: Policy = policy
        self.asked: Asked = asked
        self.is_hurried: bool = False
        """Whether nobody waits any more: then it does not wait for others either."""
        self._waiters = waiters
        self._fingerprint: str | None = None
        self._has_looked = False
        """Whether a look has just found the key free."""
        self._running = timedelta()
        """How long the attempt that has the key has been running, as far as a look has told."""

    def _patiently(self) -> Scene[Claimed]:
        """Claim, waiting for whoever is at work where the policy says so."""
        pauses, waits_here = waits(self.policy.wait), False
        try:
            while True:
                claimed = yield from self._claimed()
                if not isinstance(claimed, Busy) or self.is_hurried:
                    return claimed
                if (pause := next(pauses, None)) is None:
                    return claimed
                waits_here = waits_here or self._waiters.enter()
                if not waits_here:
                    return claimed
                yield Pause(pause)
        finally:
            if waits_here:
                self._waiters.leave()

    def _claimed(self) -> Scene[Claimed]:
        claimed = yield from self._ask()
        if isinstance(claimed, Mismatch) and self._is_told_as_before(claimed):
            claimed = yield from self._ask()
        return claimed

    def _ask(self) -> Scene[Claimed]:
        seen = None if self._has_looked else (yield from self._seen())
        self._has_looked = False
        if seen is not None:
            return seen
        wanted = self._wanted()
        if not self.policy.joined:
            claimed: Claimed = yield Transaction(partial(claims.claim, wanted=wanted))
            return claimed
        try:
            return (yield from self._join(wanted))
        except Exception as error:
            if not is_busy(error):
                raise
            # SQLite: another transaction has the file, and may be working on this very key.
            return Busy(key=wanted.key.key, retry_after=JOINED_RETRY)

    def _seen(self) -> Scene[Claimed | None]:
        """What a look says; None where the key is to be had."""
        key = self._key
        known: Found | None = yield self._look(key)
        # Nobody's wish: it has no id, and takes nothing.
        wish = Wanted(key=key, id="", fingerprint=self._fingerprint)
        seen = None if known is None else decide(known, wish)
        if known is None or seen is None or isinstance(seen, TakeOver):
            return None
        self._running = known.running
        return seen

    def _join(self, wanted: Wanted) -> Scene[Claimed]:
        yield Open()
        try:
            claimed: Claimed = yield Held(partial(claims.claim, wanted=wanted))
        except Exception:
            yield from self._undo()
            raise
        if not isinstance(claimed, Won):
            yield Close(commit=False)
        return claimed

    def _wanted(self) -> Wanted:
        policy = self.policy
        return want(
            self._key,
            fingerprint=self._fingerprint,
            lease=None if policy.joined else policy.lease,
            takeover=policy.takeover or "refuse",
            retention=policy.retention,
        )

    def _look(self, key: ClaimKey) -> Transaction[Found | None]:
        return Transaction(lambda sql: claims.find(sql, key), write=False)

    def _digest(self, asked: Asked) -> str:
        policy = self.policy
        return fingerprint(
            asked.request,
            asked.body,
            policy.fingerprint,
            headers=policy.fingerprint_headers,
            canonical_query=policy.canonical_query,
            decode=policy.decode,
        )

    def _is_told_as_before(self, mismatch: Mismatch) -> bool:
        """Whether the stored request was digested in another way, and this is the same one so."""
        policy, stored = self.policy, mismatch.fingerprint
        if stored is None:
            return False
        told = again(
            stored,
            self.asked.request,
            self.asked.body,
            policy.fingerprint,
            headers=policy.fingerprint_headers,
            canonical_query=policy.canonical_query,
            decode=policy.decode,
        )
        if told != stored:
            return False
        self._fingerprint = stored
        return True

    def _undo(self) -> Scene[None]:
        try:
            yield Close(commit=False)
        except Exception as error:  # noqa: BLE001 - a broken connection undoes it as well
            log.warning("A transaction could not be rolled back by hand: %s", error)

    @property
    def _key(self) -> ClaimKey:
        assert self.asked.key is not None
        return self.asked.key
