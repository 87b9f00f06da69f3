"""Where a key is claimed: the interface, keys of the application, and keys of one job."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypedDict

import msgspec

from onefold.databases.batching import Item
from onefold.errors import Busy, ConflictingOptions, DatabaseBusy, InvalidInput, LeaseLost
from onefold.model import checks
from onefold.model.claim import (
    JOINED_RETRY,
    ClaimAnswer,
    ClaimKey,
    Holding,
    Takeover,
    Unknown,
    Wanted,
    Won,
    claim_key,
    refuse_leased_within,
    want,
)
from onefold.model.delivery import Delivery
from onefold.model.ids import hash_of
from onefold.model.outcome import checked_rules
from onefold.operations import claims, deliveries
from onefold.runtime import Procedure, batch, transact

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.app.context import Context
    from onefold.databases.borrowed import Borrowed
    from onefold.model.claim import Claim
    from onefold.model.job import Job
    from onefold.model.outcome import ErrorRule
    from onefold.operations.statement import Operation, Sql
    from onefold.runtime import Runtime

LEASE: Final = timedelta(seconds=60)
SURFACE: Final = "once"

KEEPERS: Final = {
    "publish": "enqueue()",
    "lock": "lock()",
    "cron": "schedules",
    "step": "run.step()",
}
"""The surfaces whose rows have a meaning of their own, and what claims on them."""


class ClaimOptions(TypedDict, total=False):
    """How a key is claimed."""

    fingerprint: str | None
    """Digest of the request: the same key with another one is a Mismatch."""
    lease: timedelta | None
    """How long the work may take before another attempt may take the key over; 60 s. Not within a
    transaction.
    """
    takeover: Takeover | None
    """What happens when the work vanishes: rerun, resume or refuse (the default)."""
    retention: timedelta | None
    """How long the outcome is remembered; by default until it is removed."""


class ClaimBackend(ABC):
    """Where `once` claims its key: on the database, or on a server."""

    runtime: Runtime
    """Carries out the procedures below."""
    borrowed: Borrowed | None = None
    """The caller's connection, if claims are part of the caller's transaction."""

    def now(self) -> int:
        """The time of this process in microseconds."""
        return time.time_ns() // 1000

    @abstractmethod
    def want(self, surface: str, scope: str, key: str, options: ClaimOptions) -> Wanted:
        """Check the options of a claim."""

    def not_done(self, not_done: object, takeover: Takeover | None) -> tuple[ErrorRule, ...] | None:
        """The exceptions that release a key; None if all do."""
        del not_done, takeover
        return None

    @abstractmethod
    def claim(self, wanted: Wanted) -> Procedure[ClaimAnswer]:
        """Take the key, or return why not."""

    @abstractmethod
    def settle(self, claim: Claim, result: str) -> Procedure[None]:
        """Store the result, which is JSON text; `LeaseLost` if another attempt holds the key."""

    @abstractmethod
    def release(self, claim: Claim) -> Procedure[bool]:
        """Release the key unsettled; False if another attempt holds it."""

    def abandon(self, claim: Claim) -> Procedure[None]:
        """Leave the key with an unknown outcome."""
        raise NotImplementedError

    def settle_unknown(self, wanted: Wanted, unknown: Unknown, result: str) -> Procedure[None]:
        """Settle a key whose outcome was unknown."""
        raise NotImplementedError

    def take_unknown(self, wanted: Wanted, unknown: Unknown) -> Procedure[Claim | None]:
        """Claim a key whose outcome was unknown; None if another attempt was faster."""
        raise NotImplementedError


def want_with(key: ClaimKey, options: ClaimOptions, *, joined: bool = False) -> Wanted:
    """A claim with the options of a caller; without a lease inside of a caller's transaction."""
    lease, takeover = options.get("lease"), options.get("takeover")
    if joined:
        refuse_leased_within(lease=lease, takeover=takeover)
    elif lease is None:
        lease = LEASE
    return want(
        key,
        fingerprint=options.get("fingerprint"),
        lease=lease,
        takeover="refuse" if takeover is None else takeover,
        retention=options.get("retention"),
    )


class DatabaseClaims(ClaimBackend):
    """Claims keys of one tenant: under a lease, or inside of the caller's transaction."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.runtime: Runtime = context.runtime
        self.borrowed: Borrowed | None = context.borrowed

    def now(self) -> int:
        """The time of this process in microseconds."""
        return self.context.now()

    def key(self, scope: object, key: object, surface: str = SURFACE) -> ClaimKey:
        """The full key."""
        return claim_key(self.context.tenant, surface, scope, key)

    def want(self, surface: str, scope: str, key: str, options: ClaimOptions) -> Wanted:
        """Check the options of a claim."""
        joined = self.borrowed is not None
        return want_with(self.key(scope, key, open_surface(surface)), options, joined=joined)

    def claim(self, wanted: Wanted) -> Procedure[ClaimAnswer]:
        """Take the key, or return why not."""
        try:
            answer = yield from transact(lambda sql: claims.claim(sql, wanted))
        except DatabaseBusy:
            if not wanted.joined:
                raise
            # SQLite: another transaction has the file, and may be working on the same key.
            return Busy(key=wanted.key.key, retry_after=JOINED_RETRY)
        return answer

    def settle(self, claim: Claim, result: str) -> Procedure[None]:
        """Store the result; `LeaseLost` if another attempt holds the key."""
        yield from batch(settle_item(claim, result))

    def release(self, claim: Claim) -> Procedure[bool]:
        """Release the key unsettled; False if another attempt holds it."""
        released = yield from transact(lambda sql: claims.release(sql, [claim]))
        return bool(released)

    def abandon(self, claim: Claim) -> Procedure[None]:
        """Leave the key with an unknown outcome."""
        yield from transact(lambda sql: claims.abandon(sql, claim))

    def settle_unknown(self, wanted: Wanted, unknown: Unknown, result: str) -> Procedure[None]:
        """Settle a key whose outcome was unknown."""
        yield from transact(
            lambda sql: claims.force(
                sql, wanted.key, Holding.SETTLED, result=result, fence=unknown.fence
            )
        )

    def take_unknown(self, wanted: Wanted, unknown: Unknown) -> Procedure[Claim | None]:
        """Claim a key whose outcome was unknown; None if another attempt was faster."""
        return (
            yield from transact(
                lambda sql: claims.take_over_unknown(sql, wanted, fence=unknown.fence)
            )
        )

    def not_done(self, not_done: object, takeover: Takeover | None) -> tuple[ErrorRule, ...] | None:
        """The exceptions that release a key; None if all do."""
        if not_done is None:
            return None
        if self.borrowed is not None:
            raise ConflictingOptions("not_done", "is for a lease: what you roll back is not done")
        if takeover not in (None, "refuse"):
            raise ConflictingOptions("not_done", f"needs takeover='refuse', got {takeover!r}")
        return checked_rules(not_done, "not_done")


class JobClaims(DatabaseClaims):
    """Keys of one job, stored beside it on its shard.

    No other job can claim them. So a claim of an earlier delivery counts as abandoned as soon as a
    later delivery exists: its takeover decides at once, without waiting. An earlier delivery that
    is still running cannot claim any more.
    """

    def __init__(
        self, context: Context, job: Job, check: Callable[[], None], lose: Callable[[], object]
    ) -> None:
        """`check` raises if the run must not go on; `lose` is called if the job is lost."""
        super().__init__(context)
        self._job = job
        self._check = check
        self._lose = lose
        self._mine: set[str] = set()
        """The owners of the claims of this run."""

    def key(self, scope: object, key: object, surface: str = SURFACE) -> ClaimKey:
        """Of the job's generation: after a fresh replay, all keys are claimed anew."""
        del scope
        job = self._job
        plain = claim_key(job.tenant, surface, job.id, key)
        checked = claim_key(job.tenant, surface, job.id, f"{job.generation}:{plain.key}")
        return msgspec.structs.replace(checked, home=hash_of(job.id))

    def want(self, surface: str, scope: str, key: str, options: ClaimOptions) -> Wanted:
        """Check the options of a claim."""
        if options.get("lease") is not None:
            raise ConflictingOptions("lease", "is the job's own, which its worker extends")
        wanted = want_with(self.key(scope, key, surface), options)
        # Over at once: only a later delivery of this job can find it.
        return msgspec.structs.replace(wanted, lease=0)

    def not_done(self, not_done: object, takeover: Takeover | None) -> tuple[ErrorRule, ...] | None:
        """Unless it may be repeated, any exception that is not declared leaves it unknown."""
        strict = not_done is None and takeover in (None, "refuse")
        return super().not_done(() if strict else not_done, takeover)

    def claim(self, wanted: Wanted) -> Procedure[ClaimAnswer]:
        """Take the key, or return why not; `LeaseLost` if another delivery has the job."""
        self._check()
        try:
            answer = yield from transact(lambda sql: self._claimed(sql, wanted))
        except LeaseLost:
            self._lose()
            raise
        if isinstance(answer, Won):
            self._mine.add(answer.claim.owner)
        return answer

    def _claimed(self, sql: Sql, wanted: Wanted) -> Operation[ClaimAnswer]:
        """Another task of the same run may hold the key."""
        yield from deliveries.hold(sql, Delivery(self._job.id, self._job.fence))
        found = yield from claims.find(sql, wanted.key)
        if found is not None and found.state == Holding.HELD and found.owner in self._mine:
            return Busy(key=wanted.key.key, retry_after=JOINED_RETRY)
        return (yield from claims.claim(sql, wanted))


def settle_item(claim: Claim, result: str | None) -> Item[claims.Settlement, None]:
    """A settlement, committed together with those of other callers."""
    return Item(claims.settle, claims.Settlement(claim, result), "settle", claim.key)


def open_surface(surface: str) -> str:
    """A surface that applications may claim on."""
    keeper = KEEPERS.get(checks.name(surface, "surface"))
    if keeper is not None:
        raise InvalidInput("surface", f"{surface!r} is kept by {keeper}; take another")
    return surface
