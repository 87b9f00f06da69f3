"""The claim of a request on its key: find it, claim it, or wait for another attempt.

A read replays most retries without a write. It decides nothing: a free key is claimed in the
database. A joined claim is the first statement of the handler's transaction. A leased claim on
PostgreSQL needs no read before: one statement claims the key, or finds its claim.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from onefold.errors import Busy
from onefold.model.claim import (
    JOINED_RETRY,
    Claim,
    ClaimKey,
    Mismatch,
    StoredClaim,
    TakeOver,
    Wanted,
    Won,
    decide,
    want,
)
from onefold.model.claim import ClaimAnswer as Claimed
from onefold.operations import claims
from onefold.runtime import Begin, End, FindByKey, Pause, RequestRuntime, transact, waits
from onefold.web.idempotency.fingerprint import fingerprint, fingerprint_like
from onefold.web.idempotency.key import claim_key
from onefold.web.transient_errors import is_busy

if TYPE_CHECKING:
    from onefold.databases import Build
    from onefold.databases.handler_transaction import HandlerTransaction
    from onefold.runtime import Procedure, Runtime
    from onefold.web.http import HttpRequest
    from onefold.web.idempotency.body import Digested
    from onefold.web.idempotency.keyed_routes import KeyedRoute
    from onefold.web.idempotency.policy import RoutePolicy

log: logging.Logger = logging.getLogger("onefold.web")


class RequestClaim:
    """A request, and the claim on its key."""

    def __init__(
        self,
        route: KeyedRoute,
        request: HttpRequest,
        body: Digested,
        *,
        principal: object,
        tenant: object,
        runtime: Runtime | None = None,
        target: object = None,
    ) -> None:
        """`runtime` and `target` replace the database and the transaction of the route."""
        self.route: KeyedRoute = route
        self.policy: RoutePolicy = route.policy
        self.request: HttpRequest = request
        self.body: Digested = body
        self.runtime: Runtime = RequestRuntime(runtime or route.registry.runtime)
        self.key: ClaimKey | None = None
        """None if the request has no key, and its route does not require one."""
        self.claim: Claim | None = None
        """The claim on the key, once it is ours."""
        self.transaction: HandlerTransaction | None = None
        """The transaction of the handler while it is open."""
        self.outcome: str = "none"
        """The result in one word, for metrics."""
        self._target = route.target if target is None else target
        self._principal = principal
        self._tenant = tenant
        self._fingerprint: str | None = None
        self._is_identified = False
        self._has_looked = False
        """True if a read has just found the key free."""
        self._running = timedelta()
        """How long the attempt that holds the key has been running, by the last read."""
        self._client_left = False
        """True if the client has disconnected: then there is no wait for another attempt."""

    def _identify(self) -> None:
        """Read the key and the fingerprint; `Refused` if the request cannot run."""
        if self._is_identified:
            return
        self.key = claim_key(
            self.policy,
            self.request,
            self.body,
            principal=self._principal,
            tenant=self._tenant,
            now=self.route.registry.context.now,
        )
        if self.key is not None:
            self._fingerprint = fingerprint(self.request, self.body, self.policy)
        self._is_identified = True

    def _claim_or_wait(self) -> Procedure[Claimed]:
        """Claim; wait for a running attempt if the policy has a `wait`."""
        pauses, is_waiting = waits(self.policy.wait), False
        try:
            while True:
                claimed = yield from self._claim()
                if not isinstance(claimed, Busy) or self._client_left:
                    return claimed
                if (pause := next(pauses, None)) is None:
                    return claimed
                is_waiting = is_waiting or self.route.waiters.acquire(blocking=False)
                if not is_waiting:
                    return claimed
                yield Pause(pause)
        finally:
            if is_waiting:
                self.route.waiters.release()

    def _claim(self) -> Procedure[Claimed]:
        claimed = yield from self._try_claim()
        if isinstance(claimed, Mismatch) and self._matches_stored(claimed.fingerprint):
            claimed = yield from self._try_claim()
        return claimed

    def _try_claim(self) -> Procedure[Claimed]:
        needs_look = not (self._has_looked or self._claims_at_once)
        found = (yield from self._find()) if needs_look else None
        self._has_looked = False
        if found is not None:
            return found
        wanted = self._wanted()
        if not self.policy.joined:
            claimed = yield from transact(partial(claims.claim, wanted=wanted))
            if isinstance(claimed, Busy) and self._claims_at_once:
                # For how long the attempt has been running; it may have ended meanwhile.
                found = yield from self._find()
            return found or claimed
        try:
            return (yield from self._join(wanted))
        except Exception as error:
            if not is_busy(error):
                raise
            # SQLite: another transaction has the file, and may be working on this very key.
            return Busy(key=wanted.key.key, retry_after=JOINED_RETRY)

    @property
    def _claims_at_once(self) -> bool:
        """True if the statement that claims a free key replays a settled one without a write."""
        sql = self.runtime.store.database.sql
        return not self.policy.joined and sql.has_advisory_locks and not sql.splits_statements

    def _find(self) -> Procedure[Claimed | None]:
        """The answer of the stored claim; None if the key is free."""
        stored: StoredClaim | None = yield self._stored()
        # It has no id: it is only compared.
        compared = Wanted(key=self._key, id="", fingerprint=self._fingerprint)
        found = None if stored is None else decide(stored, compared)
        if stored is None or found is None or isinstance(found, TakeOver):
            return None
        if isinstance(found, Busy):
            self._running = stored.running
        return found

    def _stored(self) -> FindByKey[StoredClaim | None]:
        key = self._key
        return FindByKey(lambda sql: claims.find(sql, key))

    def _join(self, wanted: Wanted) -> Procedure[Claimed]:
        first = partial(claims.claim, wanted=wanted)
        transaction: HandlerTransaction = yield Begin(self._target, self.route.is_plain, first)
        self.transaction = transaction
        claimed: Claimed = transaction.answer
        if not isinstance(claimed, Won):
            yield from self._end(commit=False)
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

    def _matches_stored(self, stored: str | None) -> bool:
        """True if the stored fingerprint was made by older options, and this request has it."""
        if stored is None:
            return False
        if fingerprint_like(stored, self.request, self.body, self.policy) != stored:
            return False
        self._fingerprint = stored
        return True

    def _roll_back(self) -> Procedure[None]:
        try:
            yield from self._end(commit=False)
        except Exception as error:  # noqa: BLE001 - a broken connection rolls back as well
            log.warning("A transaction could not be rolled back: %s", error)

    def _end(self, *, commit: bool, last: Build[Any] | None = None) -> Procedure[None]:
        transaction = self.transaction
        if transaction is None:
            return
        if last is None:
            self.transaction = None
        # If the last operation fails, there is still a transaction to roll back.
        yield End(transaction, commit, last)
        self.transaction = None

    @property
    def _key(self) -> ClaimKey:
        assert self.key is not None
        return self.key
