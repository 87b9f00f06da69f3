"""Maintenance: prune finished jobs, sweep expired claims, fold the notes of duplicates, erase.

`look` finds out what there is to do. The others work in batches, and each batch is a transaction of
its own; the caller continues while a batch is full. Any process may run them at any time: they only
remove what is over.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from onefold.model.checks import qualified
from onefold.model.claim import ClaimKey
from onefold.model.ids import new_id, shard_of
from onefold.model.lifecycle import State
from onefold.model.statistics import KEPT
from onefold.operations import statistics, stored_keys, workers
from onefold.operations import steps as claim_steps
from onefold.operations.attempts import forget
from onefold.operations.endings import remove
from onefold.operations.jobs import RECENT_DUPLICATES, decode_notes
from onefold.operations.publish_keys import KEY_COLUMNS, SURFACE
from onefold.operations.queues import notify_changed
from onefold.operations.statement import Statement, ids_by_shard, in_all_shards, read_all_shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.operations.statement import Operation, Row, Rows, Sql


class Look(msgspec.Struct, frozen=True):
    """What there is to do, and when the next schedule is due."""

    ticks: tuple[int, ...]
    """The shards that have due schedules."""
    chores: frozenset[str]
    """The chores that may have something to do."""
    next_at: int | None
    now: int
    """By the clock of the database."""


CHORES: Final = ("rescue", "fold", "prune", "sweep", "sample")
"""In the order of the statement that looks for them."""


def look(sql: Sql) -> Operation[Look]:
    """What is due on any shard: all that an idle worker needs."""
    ticks: list[int] = []
    ahead: list[int] = []
    chores: set[str] = set()
    rows = yield from read_all_shards(
        sql, "due_chores", statistic_age=KEPT, worker_age=workers.FORGOTTEN
    )
    for shard, is_due, next_at, *may_be_due, _ in rows:
        ticks += [shard] if is_due else []
        ahead += [] if next_at is None else [next_at]
        chores.update(compress(CHORES, may_be_due))
    return Look(tuple(ticks), frozenset(chores), min(ahead, default=None), rows[-1][-1])


def begin_chore(sql: Sql, name: str, *, every: int) -> Operation[bool]:
    """Whether this process runs the chore now; the next turn is after `every`.

    The claim is on the first shard that is visited.
    """
    owner, shard = new_id(), sql.visited[0]
    rows = yield sql(
        "begin_chore", alone=True, waits=False, shard=shard, chore=name, owner=owner, every=every
    )
    return bool(rows)


class Pruned(msgspec.Struct, frozen=True):
    """The result of a prune of finished jobs."""

    deleted: int = 0
    stripped: int = 0
    """Stripped to tombstones: their keys are held for longer."""

    @property
    def total(self) -> int:
        """How many rows it changed."""
        return self.deleted + self.stripped


def prune(sql: Sql, *, shard: int = 0, limit: int = 1_000) -> Operation[Pruned]:
    """Remove one batch of finished jobs whose retention is over."""
    rows = yield sql("lock_prunable_jobs", shard=shard, limit=limit)
    promised = {job_id for job_id, is_promised in rows if is_promised}
    deleted, stripped = yield from remove(sql, shard, [row[0] for row in rows], keep=promised)
    return Pruned(deleted, stripped)


class Swept(msgspec.Struct, frozen=True):
    """The result of a sweep, and where the next batch starts."""

    deleted: int = 0
    next: int | None = None
    """None: this shard has nothing more."""


def sweep(sql: Sql, *, shard: int = 0, limit: int = 1_000, start: int = 0) -> Operation[Swept]:
    """Delete one batch of expired claims. Held and unknown claims never expire.

    A publish key stays until its job has ended. The steps of a claim are deleted with it, and its
    notes of duplicates.
    """
    rows = yield sql("find_expired_claims", shard=shard, limit=limit, start=start)
    alive = yield from _jobs_alive(sql, rows)
    over = [(*row[:6],) for row in rows if not (row[2] == SURFACE and row[6] in alive)]
    deleted: Rows = ()
    if over:
        deleted = yield sql("delete_claims", (*KEY_COLUMNS, "owner"), over)
        gone = {row[0] for row in deleted}
        keys = [ClaimKey(*row[1:5]) for row in over if row[5] in gone]
        yield from claim_steps.forget(sql, shard, keys)
        yield from stored_keys.forget(sql, shard, keys)
    if len(rows) < limit:
        return Swept(len(deleted))
    # A full batch that ends where it began would be read forever: skip it.
    last: int = rows[-1][7]
    return Swept(len(deleted), last + 1 if last == start and not deleted else last)


def _jobs_alive(sql: Sql, rows: Rows) -> Operation[set[str]]:
    ids = [row[6] for row in rows if row[2] == SURFACE and row[6] is not None]
    alive: set[str] = set()
    for _, wanted in ids_by_shard(sql, ids):
        found = yield sql("job_states", ("shard", "id"), wanted)
        alive.update(job_id for job_id, state, *_ in found if not State(state).is_final)
    return alive


def fold_duplicates(sql: Sql, *, shard: int = 0, limit: int = 5_000) -> Operation[int]:
    """Fold one batch of notes into a count per job and its last few; returns how many.

    They are also added to the statistics of their minutes.
    """
    rows = yield sql("lock_unfolded_duplicates", shard=shard, limit=limit)
    if not rows:
        return 0
    by_job: dict[str, list[Row]] = {}
    for row in rows:
        by_job.setdefault(row[1], []).append(row)
    ids = [(shard, job_id) for job_id in sorted(by_job)]
    stored = yield sql("find_tallies", ("shard", "id"), ids)
    tallies = {row[0]: row[1:] for row in stored}
    folded = [_fold(shard, job_id, by_job[job_id], tallies.get(job_id)) for _, job_id in ids]
    columns = ("shard", "job_id", "count", "first_at", "last_at", "recent")
    yield sql("save_tallies", columns, folded)
    yield from statistics.add_duplicates(sql, shard, rows)
    yield sql("delete_folded_duplicates", ("shard", "number"), [(shard, row[0]) for row in rows])
    return len(rows)


def _fold(
    shard: int, job_id: str, rows: Sequence[Row], tally: Sequence[object] | None
) -> tuple[object, ...]:
    notes: list[tuple[int, str | None]] = [(row[2], row[3]) for row in rows]
    moments = [at for at, _ in notes]
    count, first, last = len(notes), min(moments), max(moments)
    if tally is not None:
        known, known_first, known_last, recent = tally
        notes += decode_notes(str(recent))
        count += int(str(known))
        first, last = min(first, int(str(known_first))), max(last, int(str(known_last)))
    notes.sort(key=lambda note: note[0], reverse=True)
    kept = msgspec.json.encode(notes[:RECENT_DUPLICATES]).decode()
    return (shard, job_id, count, first, last, kept)


class Erased(msgspec.Struct, frozen=True):
    """What an erase removed."""

    jobs: int = 0
    claims: int = 0
    schedules: int = 0
    queues: int = 0
    """Queues of the server."""
    api_keys: int = 0
    """API keys that were revoked, and have lost their names."""


def erase(sql: Sql, tenant: str, *, key: str | None = None) -> Operation[Erased]:
    """Remove everything that is stored for a tenant, or under one key of it, keys included.

    This frees the keys: an explicit decision of an operator, as with `delete`.
    """
    if key is not None:
        return (yield from _erase_work(sql, tenant, key=key))[0]
    api_keys = yield from in_all_shards(sql, "erase_api_keys", tenant=tenant)
    # Before the jobs, so that no tick makes another one meanwhile.
    schedules = yield from in_all_shards(sql, "erase_schedules", tenant=tenant)
    served = yield from in_all_shards(sql, "erase_served_queues", tenant=tenant)
    # A queue whose name has no tenant is shared by all, unless the server has it.
    prefix, queues = f"{{{tenant}}}", [qualified(tenant, name) for (name,) in served]
    settings = yield from in_all_shards(sql, "erase_queues", prefix=prefix, queues=queues)
    if served or settings:
        yield from notify_changed(sql)
    erased, groups = yield from _erase_work(sql, tenant)
    for shard in range(sql.shards):
        columns = ("queue", "group_key")
        yield sql("erase_rates", columns, sorted(groups), shard=shard, prefix=prefix, queues=queues)
    yield from in_all_shards(sql, "erase_statistics", prefix=prefix, queues=queues)
    return replace(erased, schedules=len(schedules), queues=len(served), api_keys=len(api_keys))


def _erase_work(
    sql: Sql, tenant: str, *, key: str | None = None
) -> Operation[tuple[Erased, set[tuple[str, str]]]]:
    """Remove jobs and claims. Also returns the queues and groups of the jobs."""
    jobs = claims = 0
    groups: set[tuple[str, str]] = set()
    published: list[str] = []
    for shard in range(sql.shards):
        rows, steps = yield from _erase_claims(sql, shard, tenant, key=key)
        claims += len(rows) + steps
        published += [result for surface, result, *_ in rows if surface == SURFACE and result]
    for shard in range(sql.shards):
        rows = yield sql("erase_jobs", shard=shard, tenant=tenant, key=key)
        groups.update((queue, group) for _, queue, group in rows if group is not None)
        named = [job_id for job_id in published if shard_of(job_id, sql.shards) == shard]
        gone = [(shard, row[0]) for row in rows]
        if named:
            gone_too = yield sql("delete_jobs", ("shard", "id"), [(shard, i) for i in named])
            gone += [(shard, row[0]) for row in gone_too]
        if gone:
            yield sql("delete_duplicates", ("shard", "id"), gone)
            yield sql("delete_tallies", ("shard", "id"), gone)
            yield from forget(sql, shard, [(job_id, tenant) for _, job_id in gone])
        jobs += len(gone)
    return Erased(jobs, claims), groups


def erase_scope(
    sql: Sql, tenant: str, *, scope: str | None, surface: str | None, key: str | None
) -> Operation[Erased]:
    """Remove the claims of a scope or a surface, and what is stored with them; no jobs."""
    claims = 0
    for shard in range(sql.shards):
        rows, steps = yield from _erase_claims(
            sql, shard, tenant, key=key, scope=scope, surface=surface
        )
        claims += len(rows) + steps
    return Erased(claims=claims)


def _erase_claims(
    sql: Sql,
    shard: int,
    tenant: str,
    *,
    key: str | None = None,
    scope: str | None = None,
    surface: str | None = None,
) -> Operation[tuple[Rows, int]]:
    rows = yield sql(
        "erase_claims", shard=shard, tenant=tenant, key=key, scope=scope, surface=surface
    )
    parents = [ClaimKey(tenant, of, where, called) for of, _, where, called in rows]
    steps = 0
    if (key, scope, surface) != (None, None, None):  # else they are among the rows
        steps = yield from claim_steps.forget(sql, shard, parents)
    yield from stored_keys.forget(sql, shard, parents)
    return rows, steps


def empty_tables(sql: Sql) -> Operation[None]:
    """Delete everything except the identity and the applied migrations. For tests."""
    for (text,) in (yield sql("empty_tables")):
        yield Statement("empty_tables", text, {})
