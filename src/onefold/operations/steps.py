"""Steps, guarded by a delivery or by a claim.

1. Every write names the fence of its delivery (or the owner and fence of its claim), and counts
   only while that is current. A step needs no lease of its own.
2. A step begins only while its job is running. Its end is stored even if the job was cancelled or
   given up meanwhile, as long as no other worker has taken the job. Only the end of a step that a
   handler elsewhere reports is rejected then (`only_running`).
3. The row of a step is locked after the row of its job or claim.
4. The steps of a claim are stored under a scope that all attempts with the key share. The
   generation tells them apart: `resume` keeps the id of the claim, `rerun` makes a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from onefold.errors import InvalidInput, LeaseLost
from onefold.model import checks
from onefold.model.claim import TAKEOVERS, Holding, Takeover
from onefold.model.ids import new_id, shard_of
from onefold.model.step import NOTHING, Notes, Step, StepPage, StepRow, read_name, shown
from onefold.operations import claims
from onefold.operations.claims import HELD_COLUMNS
from onefold.operations.jobs import READ_AT_ONCE, fitting
from onefold.operations.publish_keys import KEY_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onefold.model.claim import Claim, ClaimKey
    from onefold.model.delivery import Delivery
    from onefold.operations.statement import Operation, Sql

LONGEST_MOMENT: Final = 19


class StepWrite(msgspec.Struct, frozen=True):
    """A step as it should become, and as it was read."""

    key: str
    owner: str
    """Made by the client for every begin: a repeated write finds its own row."""
    state: Holding
    notes: Notes
    takeover: Takeover = "rerun"
    fingerprint: str | None = None
    seen: StepRow | None = None
    """None: no row was read."""

    @property
    def begins(self) -> bool:
        """True: work follows."""
        return self.state is Holding.HELD and (self.seen is None or self.seen.owner != self.owner)

    @property
    def columns(self) -> dict[str, Any]:
        """The stored columns, and those of the row that was read."""
        seen = self.seen
        return {
            "state": int(self.state),
            "takeover": TAKEOVERS.index(self.takeover),
            "fingerprint": self.fingerprint,
            "result": self.notes.text,
            **({} if seen is None else {"seen_owner": seen.owner, "seen_state": seen.state}),
        }

    def is_as_seen(self, now: StepRow) -> bool:
        """True: the row has not changed since it was read."""
        seen = self.seen
        return seen is not None and (now.owner, now.state) == (seen.owner, seen.state)

    def unstored(self, fence: int) -> StepRow:
        """The row that it would be, for a step that is only kept in memory."""
        takeover = TAKEOVERS.index(self.takeover)
        result = self.notes.text
        return StepRow(
            self.key, self.owner, self.state, fence, self.fingerprint, takeover, 0, None, result
        )


def write(
    sql: Sql, delivery: Delivery, tenant: str, wanted: StepWrite, *, only_running: bool = False
) -> Operation[StepRow]:
    """Write a step; returns it as stored, which may be another attempt's row.

    `LeaseLost` if the delivery no longer has the job.
    """
    rows = yield sql(
        "insert_step" if wanted.seen is None else "write_step",
        alone=True,
        shard=shard_of(delivery.id, sql.shards),
        job=delivery.id,
        fence=delivery.fence,
        running=only_running or wanted.begins,
        key=wanted.key,
        owner=wanted.owner,
        **wanted.columns,
    )
    if rows:
        return StepRow.from_row(rows[0])
    found = yield from find(sql, delivery.id, tenant, key=wanted.key)
    if not found or wanted.is_as_seen(found[0]):
        raise LeaseLost(f"job {delivery.id}", fence=delivery.fence)
    return found[0]


def find(sql: Sql, job_id: str, tenant: str, *, key: str | None = None) -> Operation[list[StepRow]]:
    """The steps of a job, or the one with this key."""
    shard = shard_of(job_id, sql.shards)
    return (yield from _read(sql, shard, tenant, job_id, key=key))


def _read(
    sql: Sql,
    shard: int,
    tenant: str,
    scope: str,
    *,
    key: str | None = None,
    after: tuple[int, str] | None = None,
    limit: int | None = None,
) -> Operation[list[StepRow]]:
    after_at, after_key = after or (None, None)
    place: dict[str, Any] = {"shard": shard, "tenant": tenant, "job": scope, "key": key}
    rows = yield sql("read_steps", **place, after_at=after_at, after_key=after_key, limit=limit)
    return [StepRow.from_row(row) for row in rows]


def find_page(
    sql: Sql, job_id: str, tenant: str, *, after: str | None = None
) -> Operation[StepPage]:
    """A page of the steps of a job, with their results."""
    shard, limit = shard_of(job_id, sql.shards), READ_AT_ONCE
    place = None if after is None else _place(after)
    found = yield from _read(sql, shard, tenant, job_id, after=place, limit=limit + 1)
    page = found[: fitting(found, limit)]
    items = yield from _shown(sql, job_id, page, results=True)
    has_more = len(found) > len(page)
    return StepPage(items, f"{page[-1].created_at}:{page[-1].key}" if has_more else None)


def _place(cursor: str) -> tuple[int, str]:
    began, colon, key = checks.text(cursor, "after").partition(":")
    if not (colon and began.isascii() and began.isdigit() and len(began) < LONGEST_MOMENT):
        raise InvalidInput("after", f"must be the `next` of a page, got {cursor!r}")
    return int(began), key


def look(sql: Sql, job_id: str, tenant: str, *, results: bool) -> Operation[list[Step]]:
    """The steps of a job, for display."""
    found = yield from find(sql, job_id, tenant)
    return (yield from _shown(sql, job_id, found, results=results))


def _shown(
    sql: Sql, job_id: str, found: Iterable[StepRow], *, results: bool
) -> Operation[list[Step]]:
    shard = shard_of(job_id, sql.shards)
    jobs = yield sql("delivery_states", ("shard", "id"), [(shard, job_id)])
    state, fence = (jobs[0][1], jobs[0][2]) if jobs else (None, None)
    return [shown(row, state=state, fence=fence, results=results) for row in found]


def force(
    sql: Sql, job_id: str, tenant: str, *, label: str, state: Holding, value: str | None = None
) -> Operation[bool]:
    """Set the state of an unfinished step for an operator; False if there is none."""
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
    """Set the state of the step that was read at a place: shard, tenant and scope."""
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
    """Write a step; returns it as stored, which may be another attempt's row.

    `LeaseLost` if this attempt no longer holds the claim.
    """
    values = (*claim.key.place(sql.shards), claim.owner, claim.fence)
    held: dict[str, Any] = dict(zip(HELD_COLUMNS, values, strict=True))
    rows = yield sql(
        "insert_claim_step" if wanted.seen is None else "write_claim_step",
        alone=True,
        **held,
        steps=claim.key.steps,
        step=wanted.key,
        step_owner=wanted.owner,
        **wanted.columns,
    )
    if rows:
        return StepRow.from_row(rows[0])
    found = yield from find_claim_steps(sql, claim.key, key=wanted.key)
    if not found or wanted.is_as_seen(found[0]):
        raise LeaseLost(f"{claim.key.surface} {claim.key.key!r}", fence=claim.fence)
    return found[0]


def find_claim_steps(
    sql: Sql, parent: ClaimKey, *, key: str | None = None
) -> Operation[list[StepRow]]:
    """The steps of all attempts with a key, or the one with this key of its own."""
    shard, tenant, *_ = parent.place(sql.shards)
    return (yield from _read(sql, shard, tenant, parent.steps, key=key))


def force_claim_step(
    sql: Sql, parent: ClaimKey, *, label: str, state: Holding, value: str | None = None
) -> Operation[bool]:
    """Set the state of an unfinished step of the last attempt; False if there is none."""
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
    """Delete the steps of claims that are deleted from a shard; returns how many."""
    scopes = sorted(
        (shard, parent.tenant, parent.steps) for parent in parents if parent.surface not in STEPLESS
    )
    if not scopes:
        return 0
    found = yield sql("find_job_claims", ("shard", "tenant", "scope"), scopes)
    if found:
        yield sql("delete_job_claims", KEY_COLUMNS, [(shard, *place) for place in found])
    return len(found)
