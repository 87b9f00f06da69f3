"""Steps of a job: begin one, say how it ended, look at them.

1. Every write names the fence of its delivery, and counts only while the job has it: a worker whose
   job was taken by another writes nothing. No lease of a step's own is needed.
2. A step begins only while its job is running. How it ended is written even where the job was
   cancelled or given up meanwhile, as long as nobody else has it: what has happened has happened.
3. A step's row is locked after its job's.

Steps of a claim: what an attempt that has a key has done so far, for the one who resumes it.

1. A step's row lives beside its claim's, under a scope that all attempts with the key share. Which
   of them it belongs to is its generation: a `resume` keeps the claim's id, a `rerun` begins anew.
2. Every write names the holder, and counts only while the claim is held by it: whoever was taken
   over writes nothing. No lease of a step's own is needed.
3. A step's row is locked after its claim's, and goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from onefold.errors import LeaseLost
from onefold.model.claim import TAKEOVERS, Holding, Takeover
from onefold.model.ids import new_id, shard_of
from onefold.model.step import NOTHING, Notes, Step, StepRow, read_name, shown
from onefold.operations import claims
from onefold.operations.claims import HELD_COLUMNS
from onefold.operations.publish_keys import KEY_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onefold.model.claim import Claim, ClaimKey
    from onefold.model.delivery import Delivery
    from onefold.operations.statement import Operation, Sql


class StepWrite(msgspec.Struct, frozen=True):
    """A step as it is to be, and as it was seen."""

    key: str
    owner: str
    """Made by the client, for every time that a step begins: a resent write finds its own."""
    state: Holding
    notes: Notes
    takeover: Takeover = "rerun"
    fingerprint: str | None = None
    seen: StepRow | None = None
    """None where nobody has seen it yet."""

    @property
    def begins(self) -> bool:
        """True where work is to follow."""
        return self.state is Holding.HELD and (self.seen is None or self.seen.owner != self.owner)

    @property
    def columns(self) -> dict[str, Any]:
        """What is stored of it."""
        return {
            "state": int(self.state),
            "takeover": TAKEOVERS.index(self.takeover),
            "fingerprint": self.fingerprint,
            "result": self.notes.text,
        }

    def is_as_seen(self, now: StepRow) -> bool:
        """True where nobody has written it since."""
        seen = self.seen
        return seen is not None and (now.owner, now.state) == (seen.owner, seen.state)


def write(sql: Sql, delivery: Delivery, tenant: str, wanted: StepWrite) -> Operation[StepRow]:
    """Write a step; answers with it as it now is, which may be another's word.

    `LeaseLost` where the job is no longer this delivery's.
    """
    values = _values(sql, delivery, wanted)
    if wanted.seen is None:
        rows = yield sql("insert_step", alone=True, **values)
    else:
        seen_owner, seen_state = wanted.seen.owner, wanted.seen.state
        rows = yield sql(
            "write_step", alone=True, seen_owner=seen_owner, seen_state=seen_state, **values
        )
    if rows:
        return StepRow.from_row(rows[0])
    found = yield from find(sql, delivery.id, tenant, key=wanted.key)
    if not found or wanted.is_as_seen(found[0]):
        raise LeaseLost(f"job {delivery.id}", fence=delivery.fence)
    return found[0]


def _values(sql: Sql, delivery: Delivery, wanted: StepWrite) -> dict[str, Any]:
    return {
        "shard": shard_of(delivery.id, sql.shards),
        "job": delivery.id,
        "fence": delivery.fence,
        "running": wanted.begins,
        "key": wanted.key,
        "owner": wanted.owner,
        **wanted.columns,
    }


def find(sql: Sql, job_id: str, tenant: str, *, key: str | None = None) -> Operation[list[StepRow]]:
    """The steps of a job, or the one with this key."""
    shard = shard_of(job_id, sql.shards)
    rows = yield sql("read_steps", shard=shard, tenant=tenant, job=job_id, key=key)
    return [StepRow.from_row(row) for row in rows]


def look(sql: Sql, job_id: str, tenant: str, *, results: bool) -> Operation[list[Step]]:
    """The steps of a job, as their reader sees them."""
    found = yield from find(sql, job_id, tenant)
    shard = shard_of(job_id, sql.shards)
    jobs = yield sql("delivery_states", ("shard", "id"), [(shard, job_id)])
    state, fence = (jobs[0][1], jobs[0][2]) if jobs else (None, None)
    return [shown(row, state=state, fence=fence, results=results) for row in found]


def force(
    sql: Sql, job_id: str, tenant: str, *, label: str, state: Holding, value: str | None = None
) -> Operation[bool]:
    """An operator's word about a step that is not over; False where there is none."""
    found = yield from find(sql, job_id, tenant)
    named = {read_name(row.key): row for row in found if read_name(row.key).label == label}
    if not named:
        return False
    seen = named[max(named, key=lambda name: name.generation)]
    shard = shard_of(job_id, sql.shards)
    return (yield from say(sql, (shard, tenant, job_id), seen, state=state, value=value))


def say(
    sql: Sql, place: tuple[int, str, str], seen: StepRow, *, state: Holding, value: str | None
) -> Operation[bool]:
    """An operator's word about the step that was seen in a place: shard, tenant and scope."""
    shard, tenant, scope = place
    notes = msgspec.structs.replace(
        seen.notes,
        value=NOTHING if value is None else msgspec.Raw(value.encode()),
        failure=seen.notes.failure if value is None else None,
    )
    rows = yield sql(
        "force_step",
        shard=shard,
        tenant=tenant,
        job=scope,
        key=seen.key,
        owner=new_id(),
        seen_owner=seen.owner,
        state=int(state),
        result=notes.text,
    )
    return bool(rows)


STEPLESS: Final = frozenset({"cron", "lock", "publish", "step"})
"""The surfaces whose claims never have steps."""


def write_claim_step(sql: Sql, claim: Claim, wanted: StepWrite) -> Operation[StepRow]:
    """Write a step; answers with it as it now is, which may be another's word.

    `LeaseLost` where the claim is no longer held by this attempt.
    """
    values = _claim_step_values(sql, claim, wanted)
    if wanted.seen is None:
        rows = yield sql("insert_claim_step", alone=True, **values)
    else:
        seen_owner, seen_state = wanted.seen.owner, wanted.seen.state
        rows = yield sql(
            "write_claim_step", alone=True, seen_owner=seen_owner, seen_state=seen_state, **values
        )
    if rows:
        return StepRow.from_row(rows[0])
    found = yield from find_claim_steps(sql, claim.key, key=wanted.key)
    if not found or wanted.is_as_seen(found[0]):
        raise LeaseLost(f"{claim.key.surface} {claim.key.key!r}", fence=claim.fence)
    return found[0]


def _claim_step_values(sql: Sql, claim: Claim, wanted: StepWrite) -> dict[str, Any]:
    held = (*claim.key.place(sql.shards), claim.owner, claim.fence)
    return {
        **dict(zip(HELD_COLUMNS, held, strict=True)),
        "steps": claim.key.steps,
        "step": wanted.key,
        "step_owner": wanted.owner,
        **wanted.columns,
    }


def find_claim_steps(
    sql: Sql, parent: ClaimKey, *, key: str | None = None
) -> Operation[list[StepRow]]:
    """The steps of every attempt with a key, or the one with this key of its own."""
    shard, tenant, *_ = parent.place(sql.shards)
    rows = yield sql("read_steps", shard=shard, tenant=tenant, job=parent.steps, key=key)
    return [StepRow.from_row(row) for row in rows]


def force_claim_step(
    sql: Sql, parent: ClaimKey, *, label: str, state: Holding, value: str | None = None
) -> Operation[bool]:
    """An operator's word about a step, of the last attempt, that is not over; False if none is."""
    claim = yield from claims.find(sql, parent)
    if claim is None:
        return False
    found = yield from find_claim_steps(sql, parent)
    generation = UUID(claim.id).int
    for row in found:
        name = read_name(row.key)
        if (name.generation, name.label) == (generation, label):
            shard, tenant, *_ = parent.place(sql.shards)
            place = (shard, tenant, parent.steps)
            return (yield from say(sql, place, row, state=state, value=value))
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
