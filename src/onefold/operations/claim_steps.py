"""Steps of a claim: what an attempt that has a key has done so far, for the one who resumes it.

1. A step's row lives beside its claim's, under a scope that all attempts with the key share. Which
   of them it belongs to is its generation: a `resume` keeps the claim's id, a `rerun` begins anew.
2. Every write names the holder, and counts only while the claim is held by it: whoever was taken
   over writes nothing. No lease of a step's own is needed.
3. A step's row is locked after its claim's, and goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from onefold.errors import LeaseLost
from onefold.model.step import StepRow, read_name
from onefold.operations import claims, steps
from onefold.operations.claims import HELD_COLUMNS
from onefold.operations.publish import KEY_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onefold.model.claim import Claim, ClaimKey, Holding
    from onefold.operations.statement import Operation, Sql
    from onefold.operations.steps import StepWrite

STEPLESS: Final = frozenset({"cron", "lock", "publish", "step"})
"""The surfaces whose claims never have steps."""


def write(sql: Sql, claim: Claim, wanted: StepWrite) -> Operation[StepRow]:
    """Write a step; answers with it as it now is, which may be another's word.

    `LeaseLost` where the claim is no longer held by this attempt.
    """
    values = _values(sql, claim, wanted)
    if wanted.seen is None:
        statement = sql("insert_claim_step", **values)
    else:
        seen_owner, seen_state = wanted.seen.owner, wanted.seen.state
        statement = sql("write_claim_step", seen_owner=seen_owner, seen_state=seen_state, **values)
    rows = yield statement.but(alone=True, waits=True)
    if rows:
        return StepRow.from_row(rows[0])
    found = yield from find(sql, claim.key, key=wanted.key)
    if not found or wanted.is_as_seen(found[0]):
        raise LeaseLost(f"{claim.key.surface} {claim.key.key!r}", fence=claim.fence)
    return found[0]


def _values(sql: Sql, claim: Claim, wanted: StepWrite) -> dict[str, Any]:
    held = (*claim.key.place(sql.shards), claim.owner, claim.fence)
    return {
        **dict(zip(HELD_COLUMNS, held, strict=True)),
        "steps": claim.key.steps,
        "step": wanted.key,
        "step_owner": wanted.owner,
        **wanted.columns,
    }


def find(sql: Sql, parent: ClaimKey, *, key: str | None = None) -> Operation[list[StepRow]]:
    """The steps of every attempt with a key, or the one with this key of its own."""
    shard, tenant, *_ = parent.place(sql.shards)
    rows = yield sql("read_steps", shard=shard, tenant=tenant, job=parent.steps, key=key)
    return [StepRow.from_row(row) for row in rows]


def force(
    sql: Sql, parent: ClaimKey, *, label: str, state: Holding, value: str | None = None
) -> Operation[bool]:
    """An operator's word about a step, of the last attempt, that is not over; False if none is."""
    claim = yield from claims.find(sql, parent)
    if claim is None:
        return False
    found = yield from find(sql, parent)
    generation = UUID(claim.id).int
    for row in found:
        name = read_name(row.key)
        if (name.generation, name.label) == (generation, label):
            shard, tenant, *_ = parent.place(sql.shards)
            place = (shard, tenant, parent.steps)
            return (yield from steps.say(sql, place, row, state=state, value=value))
    return False


def forget(sql: Sql, shard: int, parents: Iterable[ClaimKey]) -> Operation[int]:
    """Remove the steps of claims that are gone from a shard; answers with how many."""
    scopes = sorted(
        (shard, parent.tenant, parent.steps) for parent in parents if parent.surface not in STEPLESS
    )
    if not scopes:
        return 0
    found = yield sql("find_job_claims", ("shard", "tenant", "scope"), scopes)
    if found:
        yield sql("delete_job_claims", KEY_COLUMNS, [(shard, *place) for place in found])
    return len(found)
