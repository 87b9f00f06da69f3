"""Statistics per minute and queue: add counts, read buckets, delete old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from onefold.model.statistics import KEPT, MINUTE, Buckets, Statistics, Tally
from onefold.operations.statement import read_all_shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onefold.operations.statement import Operation, Row, Sql

COLUMNS: Final = ("shard", "minute", "queue", *Tally.__struct_fields__)


def add(
    sql: Sql, tallies: Mapping[tuple[int | None, str], Tally], *, alone: bool = True
) -> Operation[None]:
    """Add counts by minute and queue, on the first shard that is visited; None is this minute.

    Only another `add` waits for these rows. `alone` is False after other statements.
    """
    rows = [
        (sql.visited[0], minute, queue, *msgspec.structs.astuple(tally))
        for (minute, queue), tally in sorted(tallies.items(), key=lambda item: _order(*item[0]))
    ]
    yield sql("add_statistics", COLUMNS, rows, alone=alone)


def _order(minute: int | None, queue: str) -> tuple[int, str]:
    """The order of locks. A call has either minutes, or none."""
    return minute or 0, queue


def add_duplicates(sql: Sql, shard: int, notes: Iterable[Row]) -> Operation[None]:
    """Add notes of duplicates, which are rows of lock_unfolded_duplicates."""
    found = list(notes)
    ids = sorted({row[1] for row in found})
    rows = yield sql("find_job_queues", ("shard", "id"), [(shard, job_id) for job_id in ids])
    # A claim has no queue, and a job may have been removed.
    queues: dict[str, str] = {row[0]: row[1] for row in rows}
    tallies: dict[tuple[int | None, str], Tally] = {}
    for _, job_id, at, _ in found:
        place = (at - at % MINUTE, queues.get(job_id, ""))
        tallies.setdefault(place, Tally()).duplicates += 1
    yield from add(sql.only([shard]), tallies, alone=False)


def read(sql: Sql, wanted: Buckets, *, queue: str | None, tenant: str) -> Operation[Statistics]:
    """The statistics of a queue, of all queues of a tenant, or of all."""
    rows = yield from read_all_shards(
        sql,
        "read_statistics",
        width=wanted.width,
        back=wanted.back,
        queue=queue,
        prefix=f"{{{tenant}}}" if tenant else "",
    )
    found = ((row[0], Tally(*row[1:-1])) for row in rows if row[0] is not None)
    return wanted.filled(found, rows[-1][-1])


def prune(sql: Sql, *, shard: int = 0, limit: int = 1_000) -> Operation[int]:
    """Delete one batch of old statistics; returns how many."""
    rows = yield sql("delete_old_statistics", shard=shard, limit=limit, age=KEPT)
    return len(rows)
