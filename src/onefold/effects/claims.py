"""`run.once` and `run.lock`: keys of a job's own, and locks that end with its lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onefold.calls.claims import LEASE, ClaimCalls, ClaimOptions
from onefold.calls.lock import AsyncLock, Lock
from onefold.calls.procedure import Conductor, Procedure, Transaction
from onefold.errors import Busy, ConflictingOptions, LeaseLost
from onefold.model.claim import (
    JOINED_RETRY,
    ClaimAnswer,
    ClaimKey,
    Holding,
    Wanted,
    Won,
    claim_key,
    want,
)
from onefold.model.delivery import Delivery
from onefold.model.ids import hash_of
from onefold.operations import claims, deliveries

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from onefold.model.claim import Takeover
    from onefold.model.job import Job
    from onefold.model.outcome import ErrorRule
    from onefold.operations.statement import Operation, Sql


class JobClaims(ClaimCalls):
    """Keys that are this job's alone, beside it on its shard.

    Nobody else can want them, so what an earlier delivery has left is abandoned as soon as there is
    a later one: it is met as its takeover says, and not waited for. The earlier one may still be
    there, and not know it: it claims nothing any more.
    """

    def __init__(
        self,
        conductor: Conductor,
        job: Job,
        check: Callable[[], None],
        lose: Callable[[], object],
    ) -> None:
        """`check` raises where the run must not go on; `lose` is called where the job is gone."""
        self._conductor = conductor
        self._tenant = job.tenant
        self._job = job
        self._check = check
        self._lose = lose
        self._mine: set[str] = set()
        """Who has claimed something in this run."""

    def _key(self, scope: object, key: object, surface: str = "once") -> ClaimKey:
        """Of the job's generation: after a fresh replay, everything is done anew."""
        del scope
        plain = claim_key(self._tenant, surface, self._job.id, key)
        checked = claim_key(self._tenant, surface, self._job.id, self._spelled(plain.key))
        return msgspec.structs.replace(checked, home=hash_of(self._job.id))

    def _spelled(self, key: str) -> str:
        return f"{self._job.generation}:{key}"

    def _want(self, surface: str, scope: str, key: str, options: ClaimOptions) -> Wanted:
        if options.get("lease") is not None:
            raise ConflictingOptions("lease", "is the job's own, which its worker extends")
        takeover = options.get("takeover")
        wanted = want(
            self._key(scope, key, surface),
            fingerprint=options.get("fingerprint"),
            lease=LEASE,
            takeover="refuse" if takeover is None else takeover,
            retention=options.get("retention"),
        )
        # Over at once: only a later delivery of this job can come upon it.
        return msgspec.structs.replace(wanted, lease=0)

    def _not_done(
        self, not_done: object, takeover: Takeover | None
    ) -> tuple[ErrorRule, ...] | None:
        """Unless it may be repeated, any exception that is not declared leaves it unknown."""
        strict = not_done is None and takeover in (None, "refuse")
        return super()._not_done(() if strict else not_done, takeover)

    def _claim(self, wanted: Wanted) -> Procedure[ClaimAnswer]:
        self._check()
        try:
            answer: ClaimAnswer = yield Transaction(lambda sql: self._claimed(sql, wanted))
        except LeaseLost:
            self._lose()
            raise
        if isinstance(answer, Won):
            self._mine.add(answer.claim.owner)
        return answer

    def _claimed(self, sql: Sql, wanted: Wanted) -> Operation[ClaimAnswer]:
        """Another task of this very run may be at work on it."""
        yield from deliveries.hold(sql, Delivery(self._job.id, self._job.fence))
        found = yield from claims.find(sql, wanted.key)
        if found is not None and found.state == Holding.HELD and found.owner in self._mine:
            return Busy(key=wanted.key.key, retry_after=JOINED_RETRY)
        return (yield from claims.claim(sql, wanted))


class RunLock(Lock):
    """A lock that is lost with the job, too."""

    def __init__(
        self,
        conductor: Conductor,
        key: ClaimKey,
        ttl: timedelta,
        wait: timedelta | None,
        *,
        is_lost: Callable[[], bool],
    ) -> None:
        """`is_lost` says whether the job is still ours."""
        super().__init__(conductor, key, ttl, wait)
        self._is_lost = is_lost

    @property
    def lost(self) -> bool:
        """True where the lease of the lock, or the job, may be somebody else's by now."""
        return self._is_lost() or super().lost


class AsyncRunLock(AsyncLock):
    """`RunLock` for `async with`."""

    def __init__(
        self,
        conductor: Conductor,
        key: ClaimKey,
        ttl: timedelta,
        wait: timedelta | None,
        *,
        is_lost: Callable[[], bool],
    ) -> None:
        """`is_lost` says whether the job is still ours."""
        super().__init__(conductor, key, ttl, wait)
        self._is_lost = is_lost

    @property
    def lost(self) -> bool:
        """True where the lease of the lock, or the job, may be somebody else's by now."""
        return self._is_lost() or super().lost
