"""Stored keys for operators: list them, and explain who holds a key.

A key is looked up among the jobs and the claims of all surfaces, shard by shard.
"""

from __future__ import annotations

from itertools import accumulate, starmap
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.model.claim import ClaimKey
from onefold.model.ids import shard_of
from onefold.model.stored_key import (
    HeldJob,
    HolderRow,
    KeyPage,
    KeyState,
    StoredKey,
    Why,
    cursor,
    holder,
)
from onefold.operations.jobs import PAGE_BYTES, READ_AT_ONCE, noted
from onefold.operations.replay import Replayable
from onefold.operations.statement import ids_by_shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onefold.model.stored_key import Duplicates, KeyHolder, Question
    from onefold.operations.statement import Operation, Row, Sql


HIDDEN: Final = frozenset({"chore", "cron", "step"})


class KeyFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of keys; None matches all."""

    tenant: str
    surface: str | None = None
    scope: str | None = None
    key: str | None = None
    state: KeyState | None = None


def find(
    sql: Sql, wanted: KeyFilter, *, after: tuple[str, str, str], limit: int, results: bool
) -> Operation[KeyPage]:
    """A page of keys, ordered by surface, scope and key, merged over all shards.

    It ends after the bytes of a page of jobs, too: results may be long.
    """
    found: list[Row] = []
    for shard in range(sql.shards):
        # One more than wanted shows whether there is a next page.
        left, room = limit + 1, PAGE_BYTES
        for surface in (yield from _surfaces(sql, shard, wanted, after[0])):
            place = _start(wanted, surface, after)
            while left and room >= 0:
                most = min(left, READ_AT_ONCE) if results else left
                rows = yield sql(
                    "find_keys",
                    shard=shard,
                    tenant=wanted.tenant,
                    surface=surface,
                    scope=wanted.scope,
                    key=wanted.key,
                    state=wanted.state,
                    after_scope=place[0],
                    after_key=place[1],
                    limit=most,
                    results=results,
                )
                found += rows
                left -= len(rows)
                room -= sum(map(_size, rows))
                if len(rows) < most:
                    break
                place = (rows[-1][2], rows[-1][3])
        # The order of text in the databases: by bytes.
        found.sort(key=lambda row: _bytes(*row[1:4]))
        del found[_fitting(found, limit) + 1 :]
    page = tuple(map(StoredKey.from_row, found[: _fitting(found, limit)]))
    return KeyPage(page, cursor(page[-1].place) if len(found) > len(page) else None)


def _fitting(rows: Sequence[Row], limit: int) -> int:
    """How many of the rows a page has; one at least."""
    sizes = accumulate(map(_size, rows[:limit]))
    return max(sum(size <= PAGE_BYTES for size in sizes), min(1, len(rows)))


def _size(row: Row) -> int:
    """The bytes of a result."""
    return len((row[-1] or "").encode())


def _surfaces(sql: Sql, shard: int, wanted: KeyFilter, after: str) -> Operation[list[str]]:
    """The surfaces to look at, in order. Those of jobs and chores only if they are named."""
    if wanted.surface is not None:
        return [wanted.surface] if _bytes(wanted.surface) >= _bytes(after) else []
    rows = yield sql("find_surfaces", shard=shard, tenant=wanted.tenant, after_surface=after)
    return [surface for (surface,) in rows if surface not in HIDDEN]


def _start(wanted: KeyFilter, surface: str, after: tuple[str, str, str]) -> tuple[str, str]:
    """The place after which the keys of a surface are wanted."""
    first = (wanted.scope or "", "")
    return max(first, after[1:], key=lambda place: _bytes(*place)) if surface == after[0] else first


def _bytes(*parts: str) -> tuple[bytes, ...]:
    return tuple(part.encode() for part in parts)


UNNOTED: Final = frozenset({"chore", "cron", "lock", "publish", "step"})
"""The surfaces that suppress no duplicates, or whose job has the notes."""


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """Which key is wanted; None: any surface, or any scope."""

    tenant: str
    key: str
    surface: str | None = None
    scope: str | None = None


def forget(sql: Sql, shard: int, keys: Iterable[ClaimKey]) -> Operation[None]:
    """Delete the notes of claims that are deleted from a shard."""
    gone = [(shard, key.notes) for key in keys if key.surface not in UNNOTED]
    if gone:
        yield sql("delete_duplicates", ("shard", "id"), gone)
        yield sql("delete_tallies", ("shard", "id"), gone)


def find_why(sql: Sql, sought: Sought, question: Question) -> Operation[Why]:
    """All holders of the key, by surface and scope."""
    rows: list[tuple[int, HolderRow]] = []
    for shard in range(sql.shards):
        found = yield sql(
            "find_key_holders",
            shard=shard,
            tenant=sought.tenant,
            key=sought.key,
            surface=sought.surface,
            scope=sought.scope,
        )
        rows += [(shard, HolderRow.from_row(row)) for row in found]
    jobs = yield from _jobs(sql, sought.tenant, [row.job_id for _, row in rows if row.job_id])
    holders: list[KeyHolder] = []
    for shard, row in rows:
        job = None if row.job_id is None else jobs.get(row.job_id, HeldJob(row.job_id))
        if row.holds(None if job is None else job.state):
            suppressed = yield from _suppressed(sql, shard, sought, row)
            holders.append(holder(row, sought.key, job, suppressed, question))
    holders.sort(key=lambda one: (one.surface, one.scope))
    return Why(sought.key, tuple(holders))


def _jobs(sql: Sql, tenant: str, ids: Sequence[str]) -> Operation[dict[str, HeldJob]]:
    """The jobs that keys point to, tombstones included: they hold their keys."""
    jobs: dict[str, HeldJob] = {}
    for _, wanted in ids_by_shard(sql, ids):
        rows = yield sql("find_replayable", ("shard", "id"), wanted, tenant=tenant)
        for found in starmap(Replayable, rows):
            jobs[found.id] = HeldJob(found.id, found.kind, found.queue, found.word)
    return jobs


def _suppressed(sql: Sql, shard: int, sought: Sought, row: HolderRow) -> Operation[Duplicates]:
    """The notes of a job are stored under its id, for all of its keys."""
    if row.job_id is not None:
        return (yield from noted(sql, shard_of(row.job_id, sql.shards), row.job_id))
    key = ClaimKey(sought.tenant, row.surface, row.scope, sought.key)
    return (yield from noted(sql, shard, key.notes))
