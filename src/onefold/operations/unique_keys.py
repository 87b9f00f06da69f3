"""Unique keys: insert each request, or find the job that holds its key.

The constraint of the database decides. A look-up only follows a rejected insert, to find the
holder. Keys are requested in one order everywhere, so that two batches never wait for each other.
"""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import astuple

from onefold.errors import DatabaseBusy
from onefold.model.job import JobState, state_of
from onefold.model.lifecycle import KEEP, State
from onefold.model.new_job import INSERT_COLUMNS, NewJobRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from onefold.operations.statement import Operation, Sql

ROUNDS: Final = 8
"""A key that changes its holder so often during one call belongs to a busy loop."""

CHUNK: Final = 2_000
"""Rows per statement: enough to outweigh the round trip, few enough for memory."""

CHUNK_CHARACTERS: Final = 4 * 1024 * 1024
"""Characters of payload per statement: far below the limit of either database."""


class Restart(Exception):
    """Keys would be requested out of order: roll back and begin the transaction again.

    Only raised in a transaction of our own. To continue could make two batches wait for each
    other.
    """


class NeverSettled(DatabaseBusy):
    """A key changed its holder more often than we look."""


class Stand(msgspec.Struct, frozen=True, gc=False):
    """The job that stands for a request: new, or the holder of its key."""

    id: str
    stored: int = State.QUEUED
    fingerprint: str | None = None
    new: bool = True
    state: JobState | None = None
    """None: it was inserted by this call."""


key_order: Final = attrgetter("shard", "tenant", "unique_kind", "unique_key")
"""A request's key in the unique index, and the order in which keys are locked."""


def in_lock_order(requests: Collection[NewJobRow]) -> list[NewJobRow]:
    """By shard and key; requests without a key come first, in their order."""
    keyed = sum([request.unique_key is not None for request in requests])
    if not keyed:
        return sorted(requests, key=attrgetter("shard"))
    if keyed < len(requests):
        return sorted(requests, key=lock_order)
    # Twice, which is faster: text is compared quickly, and most batches have one kind.
    by_key = sorted(requests, key=attrgetter("unique_key"))
    by_key.sort(key=attrgetter("shard", "tenant", "unique_kind"))
    return by_key


def lock_order(request: NewJobRow) -> tuple[int, str, str, str, str]:
    """The sort key of the lock order; requests without a key keep their order."""
    shard, tenant, kind, key = request.unique or (request.shard, "", "", "")
    return (shard, tenant, kind, key, request.id if request.unique is None else "")


def chunks_by_shard(requests: Sequence[NewJobRow]) -> Iterator[Sequence[NewJobRow]]:
    """Runs of one shard, in order, none larger than a statement should be."""
    if is_one_chunk(requests):
        yield requests
        return
    start, size = 0, 0
    for end, request in enumerate(requests, start=1):
        size += len(request.payload)
        full = end - start == CHUNK or size >= CHUNK_CHARACTERS
        if end == len(requests) or full or requests[end].shard != request.shard:
            yield requests[start:end]
            start, size = end, 0


def is_one_chunk(requests: Sequence[NewJobRow]) -> bool:
    """True: one statement is enough, which is the usual case."""
    if len(requests) > CHUNK or len({request.shard for request in requests}) != 1:
        return False
    return sum([len(request.payload) for request in requests]) < CHUNK_CHARACTERS


def settle(
    sql: Sql, requests: Sequence[NewJobRow], *, alone: bool = False, tried: bool = False
) -> Operation[dict[str, Stand]]:
    """Insert what is new and find the holders of the rest, until each request has its job.

    A holder may end between the insert and the look-up: its key must be requested again, although
    greater keys are ours by now. `alone`: nothing else depends on the insert. `tried`: the first
    insert has been tried already.
    """
    stands: dict[str, Stand] = {}
    pending = list(requests)
    for turn in range(ROUNDS):
        if turn == 0 and _can_look_first(sql, pending):
            yield from _store_or_find(sql, pending, stands)
        elif turn > 0 or not tried:
            yield from insert(sql, pending, stands, alone=alone)
        pending = [request for request in pending if request.id not in stands]
        if not pending:
            return stands
        resent = sql.resends or turn > 0 or not sql.stores_without_looking
        released = yield from _find(sql, pending, stands, resent=resent)
        pending = [request for request in pending if request.id not in stands]
        if not pending:
            return stands
        if len(pending) > len(released):
            restart(sql, requests)
    raise never_settled(pending[0])


def insert_or_find(sql: Sql, request: NewJobRow) -> Operation[Stand | None]:
    """Insert one request, or find the holder of its key; None: `settle` has to do it.

    On PostgreSQL this is one statement. It is tried twice: the first try may have waited for a
    rival that it could not see.
    """
    # Nothing else depends on it, so it may be committed by itself.
    if request.unique_key is None or not sql.finds_at_once:
        inserted = yield from _insert_one(sql, request, alone=True)
        return Stand(request.id) if inserted else None
    for _ in range(2):
        rows = yield sql(
            "enqueue_one",
            INSERT_COLUMNS,
            [astuple(request)],
            each=True,
            alone=True,
            # It sets its own lock timeout.
            waits=False,
            notifies=sql.notifies,
        )
        for holder_id, stored, fingerprint, now, lapsed, *waits in rows:
            if holder_id == request.id:
                return Stand(request.id)
            return None if lapsed else _held(holder_id, stored, fingerprint, now, waits)
    return None


def _held(
    holder_id: str,
    stored: int,
    fingerprint: str | None,
    now: int,
    waits: Sequence[Any],
    *,
    new: bool = False,
) -> Stand:
    attempt, run_at, awaits = waits
    state = state_of(stored, attempt=attempt, run_at=run_at, now=now, awaits=awaits)
    return Stand(holder_id, stored, fingerprint, new=new, state=state)


def _can_look_first(sql: Sql, requests: Sequence[NewJobRow]) -> bool:
    """Whether one statement can insert a batch or find the holders; with shards Citus cannot."""
    keyed = len(requests) > 1 and _has_keys(requests)
    return keyed and sql.stores_without_looking and sql.shards == 1


def _has_keys(requests: Sequence[NewJobRow]) -> bool:
    return any(request.unique_key is not None for request in requests)


def _store_or_find(
    sql: Sql, requests: Sequence[NewJobRow], stands: dict[str, Stand]
) -> Operation[None]:
    """Insert in lock order, or find the holders, in one statement.

    A holder whose time is over is left to `settle`. A rival that comes after the look is an error
    of the database, and the transaction is tried again with `resends`.
    """
    for chunk in chunks_by_shard(requests):
        rows = yield sql(
            "store_keyed_jobs",
            INSERT_COLUMNS,
            list(map(astuple, chunk)),
            common=COMMON_COLUMNS | {"unique_kind"},
            **sql.notify(request.queue for request in chunk),
        )
        left: list[NewJobRow | None] = list(chunk)
        for place, holder_id, stored, fingerprint, now, lapsed, *waits in rows:
            if place is None:
                continue
            index = int(place) - 1
            request_id = chunk[index].id
            left[index] = None
            is_new = holder_id == request_id
            if is_new or not lapsed:
                stands[request_id] = _held(holder_id, stored, fingerprint, now, waits, new=is_new)
        stands.update([(new.id, Stand(new.id)) for new in left if new is not None])


def restart(sql: Sql, requests: Sequence[NewJobRow]) -> None:
    """Restart, rather than request keys out of order, if that is possible and matters."""
    if sql.restarts and len(requests) > 1:
        raise Restart


def never_settled(request: NewJobRow) -> NeverSettled:
    """The error for a key that changed its holder too often."""
    return NeverSettled(
        f"the key {request.unique_key!r} changed hands {ROUNDS} times while we looked",
        waited=timedelta(0),
    )


def insert(
    sql: Sql, requests: Sequence[NewJobRow], stands: dict[str, Stand], *, alone: bool = False
) -> Operation[None]:
    """Insert in lock order; `stands` receives the inserted ones."""
    waits = _has_keys(requests)
    # A single row is inserted or not; rows without keys cannot conflict.
    alone = alone and (len(requests) == 1 or not waits)
    each = sql.inserts_row_by_row
    for chunk in chunks_by_shard(requests):
        whole = len(chunk) == len(requests)
        if len(chunk) == 1:
            if (yield from _insert_one(sql, chunk[0], alone=alone and whole)):
                stands[chunk[0].id] = Stand(chunk[0].id)
        elif not waits and (each or sql.stores_without_looking):
            inserted = yield sql(
                "store_job" if each else "store_jobs",
                STORE_COLUMNS,
                list(map(store_row, chunk)),
                common=COMMON_COLUMNS,
                each=each,
                alone=alone and whole,
                waits=False,
                **sql.notify(request.queue for request in chunk),
            )
            ids = [row[0] for row in inserted] if each else [request.id for request in chunk]
            stands.update([(job_id, Stand(job_id)) for job_id in ids])
        else:
            inserted = yield sql(
                "insert_job" if each else "insert_jobs",
                INSERT_COLUMNS,
                list(map(astuple, chunk)),
                common=COMMON_COLUMNS,
                each=each,
                alone=alone and whole,
                waits=waits,
                **sql.notify(request.queue for request in chunk),
            )
            stands.update([(job_id, Stand(job_id)) for (job_id,) in inserted])


def _insert_one(sql: Sql, request: NewJobRow, *, alone: bool) -> Operation[bool]:
    """Insert one row; False if its key is held, or its id exists already."""
    inserted = yield sql(
        "insert_routed_job" if sql.distributed else "insert_job",
        INSERT_COLUMNS,
        [astuple(request)],
        each=True,
        alone=alone,
        waits=request.unique_key is not None,
        **sql.notify_one(),
    )
    if inserted and sql.distributed and sql.notifies:
        yield sql("notify", ("queue",), [(request.queue,)], alone=alone, waits=False)
    return bool(inserted)


STORE_COLUMNS: Final = (
    "id", "shard", "tenant", "queue", "kind", "priority", "run_at", "delay", "max_attempts",
    "payload", "expires_at", "options", "group_key",
)  # fmt: skip
COMMON_COLUMNS: Final = frozenset(
    {"shard", "tenant", "queue", "kind", "priority", "delay", "max_attempts", "unique_states"}
)
store_row: Final = attrgetter(*STORE_COLUMNS)
"""A request in the order of `STORE_COLUMNS`."""


FIND_COLUMNS: Final = ("id", "shard", "tenant", "unique_kind", "unique_key")


WINDOW_OVER: Final = 1
EXPIRED: Final = 2


def _find(
    sql: Sql, requests: Sequence[NewJobRow], stands: dict[str, Stand], *, resent: bool
) -> Operation[set[str]]:
    """Find the holders, or the job itself if an earlier response was lost.

    Expired holders release their keys; returns the requests that were waiting for these keys.
    """
    released: set[str] = set()
    for chunk in chunks_by_shard(requests):
        rows = yield sql(
            "find_holders",
            FIND_COLUMNS,
            [(r.id, r.shard, r.tenant, r.unique_kind, r.unique_key) for r in chunk],
            resent=resent,
        )
        over: dict[int, set[str]] = {WINDOW_OVER: set(), EXPIRED: set()}
        at = 0
        for request_id, holder_id, stored, fingerprint, now, lapsed, *waits in rows:
            if lapsed and holder_id != request_id:
                over[lapsed].add(holder_id)
                released.add(request_id)
                at = now
            else:
                stands[request_id] = _held(
                    holder_id, stored, fingerprint, now, waits, new=holder_id == request_id
                )
        shard = chunk[0].shard
        if holders := over[WINDOW_OVER]:
            yield sql("release_holders", ("shard", "id"), id_rows(shard, holders), at=at)
        if holders := over[EXPIRED]:
            yield from _expire(sql, shard, holders, at)
    return released


def _expire(sql: Sql, shard: int, holders: Iterable[str], at: int) -> Operation[None]:
    """Bury expired holders; the successor of one becomes the next holder."""
    rows = id_rows(shard, holders)
    buried = yield sql("expire_holders", ("shard", "id"), rows, at=at, keep=KEEP[State.DEAD])
    if followed := {job_id: waiting for job_id, waiting in buried if waiting is not None}:
        yield from insert_successors(sql, list(followed.values()))
        yield sql("clear_successors", ("shard", "id"), id_rows(shard, followed))


_decoder: Final = msgspec.json.Decoder(NewJobRow)


def insert_successors(sql: Sql, waiting: Sequence[str]) -> Operation[None]:
    """Insert the successors of holders that have ended, in the same transaction.

    If a newer job has taken the key meanwhile, it covers the successor, and no row is needed.
    """
    requests = sorted((_decoder.decode(text) for text in waiting), key=lock_order)
    yield from insert(sql, requests, {})


def id_rows(shard: int, ids: Iterable[str]) -> list[tuple[int, str]]:
    """The rows of one shard, in lock order."""
    return [(shard, job_id) for job_id in sorted(ids)]
