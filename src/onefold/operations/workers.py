"""Workers that run: each has a row, which it renews."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.model.ids import hash12
from onefold.model.statistics import WorkerStatus
from onefold.model.timestamps import MICROSECOND, from_micros
from onefold.operations.statement import read_all_shards

if TYPE_CHECKING:
    from onefold.operations.statement import Operation, Sql

RENEWAL: Final = timedelta(seconds=40)
"""Between two renewals of a worker."""
ALIVE: Final = RENEWAL * 3 // MICROSECOND
FORGOTTEN: Final = timedelta(hours=1) // MICROSECOND
"""After this time, the row of a worker that was killed is deleted."""

_names: Final = msgspec.json.Decoder(tuple[str, ...])


class WorkerRow(msgspec.Struct, frozen=True):
    """What a worker stores about itself."""

    id: str
    name: str
    host: str
    pid: int
    queues: tuple[str, ...]
    kinds: tuple[str, ...] | None
    concurrency: int


def save(sql: Sql, row: WorkerRow) -> Operation[None]:
    """Store that a worker runs, or that it still does."""
    yield sql(
        "save_worker",
        alone=True,
        # It sets its own lock timeout, so an idle worker sends one statement, not four.
        waits=False,
        shard=_shard(sql, row.id),
        id=row.id,
        worker=row.name,
        host=row.host,
        pid=row.pid,
        queues=msgspec.json.encode(row.queues).decode(),
        kinds=None if row.kinds is None else msgspec.json.encode(row.kinds).decode(),
        concurrency=row.concurrency,
    )


def delete(sql: Sql, row: WorkerRow) -> Operation[None]:
    """The worker has stopped."""
    yield sql("delete_worker", alone=True, shard=_shard(sql, row.id), id=row.id)


def _shard(sql: Sql, worker_id: str) -> int:
    return hash12("worker", worker_id) % sql.shards


def find(sql: Sql) -> Operation[tuple[WorkerStatus, ...]]:
    """All workers, by name."""
    rows = yield from read_all_shards(sql, "find_workers")
    running: Counter[str] = Counter()
    if rows:
        for worker, count in (yield from read_all_shards(sql, "count_worker_jobs")):
            running[worker] += count
    found = [
        WorkerStatus(
            name=name,
            host=host,
            pid=pid,
            queues=_names.decode(queues),
            kinds=None if kinds is None else _names.decode(kinds),
            concurrency=concurrency,
            running=running[name],
            started_at=from_micros(started_at),
            seen_at=from_micros(seen_at),
            alive=now - seen_at < ALIVE,
        )
        for name, host, pid, queues, kinds, concurrency, started_at, seen_at, now in rows
    ]
    return tuple(sorted(found, key=lambda worker: (worker.name, worker.started_at)))


def prune(sql: Sql, *, shard: int = 0) -> Operation[None]:
    """Delete workers that have not been seen for long."""
    yield sql("delete_old_workers", shard=shard, age=FORGOTTEN)
