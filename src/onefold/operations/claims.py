"""Claims: take, settle, release, renew and force a key."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import Busy, DatabaseBusy, LeaseLost
from onefold.model.claim import (
    JOINED_RETRY,
    TAKEOVERS,
    Claim,
    ClaimAnswer,
    ClaimKey,
    Holding,
    StoredClaim,
    TakeOver,
    Wanted,
    Won,
    decide,
    own,
)
from onefold.model.timestamps import from_micros
from onefold.operations.publish_keys import INSERT_CLAIM_COLUMNS, KEY_COLUMNS, TAKE_OVER_COLUMNS
from onefold.operations.statement import shard_runs
from onefold.operations.unique_keys import ROUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from onefold.operations.statement import Operation, Row, Rows, Sql

HELD_COLUMNS: Final = (*KEY_COLUMNS, "owner", "fence")


def claim(sql: Sql, wanted: Wanted) -> Operation[ClaimAnswer]:
    """Take the key, or explain why not: the insert decides, the look-up only explains."""
    for _ in range(ROUNDS):
        answer = yield from _claim_or_find(sql, wanted)
        if answer is not None and not isinstance(answer, TakeOver):
            return answer
        if not (yield from _may_take(sql, wanted)):
            return _is_open(wanted)
        if answer is not None and (taken := (yield from take_over(sql, wanted, answer))):
            return Won(taken)
    raise DatabaseBusy(
        f"the key {wanted.key.key!r} changed hands {ROUNDS} times while we looked",
        waited=timedelta(0),
    )


def _claim_or_find(sql: Sql, wanted: Wanted) -> Operation[ClaimAnswer | TakeOver | None]:
    """Insert the claim, or decide by the one that exists; None if neither is possible yet."""
    rows = yield from (_insert(sql, wanted) if sql.splits_statements else _claim_one(sql, wanted))
    if not rows:
        found = yield from find(sql, wanted.key)
        return None if found is None else decide(found, wanted)
    outcome, *stored = rows[0]
    return _is_open(wanted) if outcome == "open" else decide(StoredClaim(*stored), wanted)


def _claim_one(sql: Sql, wanted: Wanted) -> Operation[Rows]:
    shared = not wanted.joined
    return (
        yield sql(
            "claim_one",
            # It does not wait: an open transaction that has the key has its advisory lock, too.
            alone=shared,
            waits=False,
            **_place(sql, wanted.key),
            id=wanted.id,
            takeover=TAKEOVERS.index(wanted.takeover),
            lease=wanted.lease,
            keep=wanted.keep,
            fingerprint=wanted.fingerprint,
            lock=wanted.key.lock(sql.schema),
            shared=shared,
        )
    )


def _insert(sql: Sql, wanted: Wanted) -> Operation[Rows]:
    """The row that claim_one returns for a claim that is won; none if it is not."""
    settings = (TAKEOVERS.index(wanted.takeover), wanted.lease, wanted.keep, wanted.fingerprint)
    lock, shared = wanted.key.lock(sql.schema), not wanted.joined
    row = (*wanted.key.place(sql.shards), wanted.id, int(Holding.HELD), *settings, None, lock)
    # The lock is on the node of the connection: behind another node of Citus, the insert waits.
    rows = yield sql(
        "insert_claims",
        INSERT_CLAIM_COLUMNS,
        [row],
        alone=shared,
        waits=sql.distributed,
        shared=shared,
    )
    return [
        ("won", wanted.id, owner, int(Holding.HELD), fence, None, 0, lease_until, None, None, 0)
        for owner, fence, lease_until in rows
    ]


def _is_open(wanted: Wanted) -> Busy:
    """The row belongs to another open transaction, which does the work."""
    return Busy(key=wanted.key.key, retry_after=JOINED_RETRY)


def _place(sql: Sql, key: ClaimKey) -> dict[str, Any]:
    return dict(zip(KEY_COLUMNS, key.place(sql.shards), strict=True))


def find(sql: Sql, key: ClaimKey) -> Operation[StoredClaim | None]:
    """The stored claim of a key."""
    rows = yield sql("find_claim", **_place(sql, key))
    return StoredClaim(*rows[0]) if rows else None


def _may_take(sql: Sql, wanted: Wanted) -> Operation[bool]:
    """False while an open transaction has the key; on SQLite there is no other one."""
    if not sql.has_advisory_locks:
        return True
    lock, shared = wanted.key.lock(sql.schema), not wanted.joined
    rows = yield sql("try_claim_lock", lock=lock, shared=shared)
    return bool(rows[0][0])


def take_over(sql: Sql, wanted: Wanted, over: TakeOver) -> Operation[Claim | None]:
    """Take a claim that was seen free, expired or abandoned; None if it has changed since."""
    seen = over.seen
    # The key still stands for the request of the abandoned attempt.
    abandoned = seen.fingerprint if seen.state == Holding.HELD else None
    row = (
        *wanted.key.place(sql.shards), over.id, wanted.id, int(Holding.HELD),
        TAKEOVERS.index(wanted.takeover), wanted.lease, wanted.keep,
        wanted.fingerprint or abandoned, None, seen.fence, seen.state, seen.owner,
    )  # fmt: skip
    rows = yield sql("take_over_claims", TAKE_OVER_COLUMNS, [row])
    return _won(rows[0], wanted, over.id, resumed=not over.fresh) if rows else None


def take_over_unknown(sql: Sql, wanted: Wanted, *, fence: int) -> Operation[Claim | None]:
    """Run what `verify` found not done; None if another attempt was faster."""
    seen = yield from find(sql, wanted.key)
    if seen is None or seen.fence != fence or seen.state != Holding.HELD:
        return None
    return (yield from take_over(sql, wanted, TakeOver(seen, wanted.id, fresh=True)))


def _won(row: Row, wanted: Wanted, claim_id: str, *, resumed: bool = False) -> Claim:
    _, fence, lease_until = row
    return own(wanted, claim_id, fence, lease_until, resumed=resumed)


def _held_row(sql: Sql, claim: Claim) -> tuple[Any, ...]:
    return (*claim.key.place(sql.shards), claim.owner, claim.fence)


class Settlement(msgspec.Struct, frozen=True):
    """A claim, and the result to store for it (JSON text)."""

    claim: Claim
    result: str | None


def settle(sql: Sql, settlements: Sequence[Settlement]) -> Operation[list[None]]:
    """Store results under their fences. Repeating a result is harmless; a stale fence raises."""
    words: dict[str, tuple[Any, ...]] = {}
    for word in settlements:
        words.setdefault(word.claim.owner, (*_held_row(sql, word.claim), word.result))
    settled: set[str] = set()
    columns = (*HELD_COLUMNS, "result")
    for group in shard_runs(words.values()):
        if len(words) == 1:
            # Without arrays it takes half the time.
            one = dict(zip(columns, group[0], strict=True))
            found = yield sql("settle_claim", alone=True, **one)  # a guard may have locked it
        else:
            found = yield sql("settle_claims", columns, group)
        settled.update(row[0] for row in found)
    for word in settlements:
        if word.claim.owner not in settled:
            yield from _settled_before(sql, word.claim)
    return [None] * len(settlements)


def _settled_before(sql: Sql, claim: Claim) -> Operation[None]:
    seen = yield from find(sql, claim.key)
    now = None if seen is None else (seen.owner, seen.state, seen.fence)
    if now != (claim.owner, Holding.SETTLED, claim.fence):
        raise LeaseLost(f"the key {claim.key.key!r}", fence=claim.fence)


def release(sql: Sql, claims: Sequence[Claim], *, strict: bool = False) -> Operation[set[str]]:
    """Release keys without a result; returns the owners that still held them."""
    released: set[str] = set()
    for group in shard_runs(_held_row(sql, claim) for claim in claims):
        rows = yield sql("release_claims", HELD_COLUMNS, group, strict=strict)
        released.update(row[0] for row in rows)
    return released


def abandon(sql: Sql, claim: Claim) -> Operation[None]:
    """Mark the outcome of a claim as unknown: its takeover becomes `refuse`."""
    if not (yield from _ended(sql, claim, TAKEOVERS.index("refuse"))):
        raise LeaseLost(f"the key {claim.key.key!r}", fence=claim.fence)


def renew(sql: Sql, claim: Claim, *, lease: int) -> Operation[datetime | None]:
    """Extend a lease that has not ended; never shorten it. None if it has ended."""
    rows = yield sql("renew_claims", (*HELD_COLUMNS, "lease"), [(*_held_row(sql, claim), lease)])
    return from_micros(rows[0][1]) if rows else None


def lapse(sql: Sql, claim: Claim) -> Operation[None]:
    """End a lease now: the next attempt takes the claim over by its takeover rule."""
    yield from _ended(sql, claim, None)


def _ended(sql: Sql, claim: Claim, takeover: int | None) -> Operation[bool]:
    row = (*_held_row(sql, claim), takeover)
    rows = yield sql("abandon_claims", (*HELD_COLUMNS, "takeover"), [row])
    return bool(rows)


def guard(sql: Sql, claim: Claim) -> Operation[None]:
    """Check the holder against the row that issued the fence, and lock it until the commit."""
    rows = yield sql("guard_claim", **dict(zip(HELD_COLUMNS, _held_row(sql, claim), strict=True)))
    if not rows:
        raise LeaseLost(f"{claim.key.surface} {claim.key.key!r}", fence=claim.fence)


def force(
    sql: Sql, key: ClaimKey, state: Holding, *, result: str | None = None, fence: int | None = None
) -> Operation[bool]:
    """Settle or free a key for an operator, and fence off the holder."""
    rows: Rows = yield sql(
        "force_claims",
        (*KEY_COLUMNS, "state", "result", "seen_fence"),
        [(*key.place(sql.shards), int(state), result, fence)],
    )
    return bool(rows)
