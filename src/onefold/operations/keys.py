"""Unique keys, settled: each request is stored, or the job that holds its key is found.

The database decides by its constraint; a look-up only follows an insert that was refused, to say by
whom. Keys are asked for in one order everywhere, so that two batches never wait for each other.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import DatabaseBusy
from onefold.model.lifecycle import State
from onefold.model.request import INSERT_COLUMNS, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onefold.operations.statement import Operation, Sql

ROUNDS: Final = 8
"""A key that changes hands so often while we look is somebody's busy loop, not bad luck."""

CHUNK: Final = 2_000
"""Rows per statement: large enough to forget the round trip, small enough to stay in memory."""


class Stand(msgspec.Struct, frozen=True):
    """The job that stands for a request after the keys are settled."""

    id: str
    state: int = State.QUEUED
    fingerprint: str | None = None
    new: bool = True


def lock_order(request: Request) -> tuple[int, str, str, str, str]:
    """Sort by it: the order in which keys are asked for, requests without one as they came."""
    shard, tenant, kind, key = request.unique or (request.shard, "", "", "")
    return (shard, tenant, kind, key, request.id if request.unique is None else "")


def chunks_by_shard(requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
    """Runs of one shard, in order, none longer than a statement should be."""
    start = 0
    for end in range(1, len(requests) + 1):
        full = end - start == CHUNK
        if end == len(requests) or full or requests[end].shard != requests[start].shard:
            yield requests[start:end]
            start = end


def settle(sql: Sql, requests: Sequence[Request]) -> Operation[dict[str, Stand]]:
    """Insert what can be inserted and find who holds the rest, until each request has its job."""
    stands: dict[str, Stand] = {}
    pending = list(requests)
    for _ in range(ROUNDS):
        yield from insert(sql, pending, stands)
        pending = [request for request in pending if request.id not in stands]
        if not pending:
            return stands
        yield from _find(sql, pending, stands)
        pending = [request for request in pending if request.id not in stands]
        if not pending:
            return stands
    raise never_settled(pending[0])


def never_settled(request: Request) -> DatabaseBusy:
    """The error for a key that changed hands more often than anybody should have to look."""
    return DatabaseBusy(
        f"the key {request.unique_key!r} changed hands {ROUNDS} times while we looked",
        waited=timedelta(0),
    )


def insert(sql: Sql, requests: Sequence[Request], stands: dict[str, Stand]) -> Operation[None]:
    """Insert in lock order; `stands` gets those that went in."""
    for chunk in chunks_by_shard(requests):
        rows = yield sql("insert_jobs", INSERT_COLUMNS, [request.row for request in chunk])
        for (job_id,) in rows:
            stands[job_id] = Stand(job_id)


FIND_COLUMNS: Final = ("id", "shard", "tenant", "unique_kind", "unique_key")


def _find(sql: Sql, requests: Sequence[Request], stands: dict[str, Stand]) -> Operation[None]:
    """Who is in the way: the holder, or the job itself where an answer was lost before."""
    for chunk in chunks_by_shard(requests):
        rows = yield sql(
            "find_holders",
            FIND_COLUMNS,
            [(r.id, r.shard, r.tenant, r.unique_kind, r.unique_key) for r in chunk],
        )
        lapsed: set[str] = set()
        at = 0
        for request_id, holder_id, state, fingerprint, now, is_lapsed in rows:
            if is_lapsed and holder_id != request_id:
                lapsed.add(holder_id)
                at = now
            else:
                stands[request_id] = Stand(
                    holder_id, state, fingerprint, new=holder_id == request_id
                )
        if lapsed:
            shard = chunk[0].shard
            yield sql("release_holders", ("shard", "id"), id_rows(shard, lapsed), at=at)


def id_rows(shard: int, ids: Iterable[str]) -> list[tuple[int, str]]:
    """The rows of one shard, in lock order."""
    return [(shard, job_id) for job_id in sorted(ids)]
