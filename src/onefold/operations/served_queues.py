"""Queues of the server: make, change, find and remove them.

The row is on the shard of the engine's queue, beside that queue's own row: one statement tells of
both. It is locked before any row of the engine's queue.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import InvalidInput, QueueNotEmpty
from onefold.model.names import parted
from onefold.model.queue import QueueLimits
from onefold.model.served_queue import (
    QueueConfiguration,
    QueueCounts,
    Secret,
    ServedQueue,
    encode_configuration,
    qualified,
    read_configuration,
    rotated,
)
from onefold.operations import jobs
from onefold.operations.bell import ring
from onefold.operations.gates import open_gate
from onefold.operations.queues import home_of, pause, resume

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from onefold.operations.statement import Operation, Sql

PAGE_LIMIT: Final = 1_001
_NOTHING: Final = QueueCounts()


def save(
    sql: Sql,
    tenant: str,
    name: str,
    said: QueueConfiguration,
    *,
    secret: Secret,
    paused: bool | None = None,
) -> Operation[ServedQueue]:
    """Make a queue, or say anew what holds for it.

    Secrets stay where none are given; `secret` is what a queue signs with that has an endpoint and
    had none. It stays paused, and why, unless `paused` is given. Limits that are not said any more
    are taken off. Another endpoint begins afresh.
    """
    queue = qualified(tenant, name)
    home = home_of(sql, queue)
    rows = yield sql("lock_served_queue", shard=home, tenant=tenant, served=name)
    while not rows:
        settings = encode_configuration(_completed(said, None, secret, paused=paused))
        inserted = yield sql(
            "insert_served_queue", shard=home, tenant=tenant, served=name, settings=settings
        )
        if inserted:
            break
        # Somebody was faster: what they were told to sign with must stay true. Should theirs be
        # removed by now, ours is to be made after all.
        rows = yield sql("lock_served_queue", shard=home, tenant=tenant, served=name)
    before = read_configuration(rows[0][0]) if rows else None
    if before is not None:
        settings = encode_configuration(_completed(said, before, secret, paused=paused))
        yield sql("update_served_queue", shard=home, tenant=tenant, served=name, settings=settings)
        if before.endpoint != said.endpoint:
            yield from open_gate(sql, queue, force=True)
    if said.limit is not None or (before is not None and before.limit is not None):
        yield from _limit(sql, queue, QueueLimits(said.limit))
    if paused is not None:
        yield from (pause if paused else resume)(sql, queue)
    found = yield sql(
        "find_served_queues", shard=home, tenant=tenant, served=name, after=None, limit=1
    )
    return msgspec.structs.replace(ServedQueue.from_row(found[0]), is_new=before is None)


def _completed(
    said: QueueConfiguration,
    before: QueueConfiguration | None,
    secret: Secret,
    *,
    paused: bool | None,
) -> QueueConfiguration:
    """What is said, with what stays though nobody says it."""
    known = QueueConfiguration() if before is None else before
    secrets = said.secrets or known.secrets
    if not secrets and said.endpoint is not None:
        secrets = (secret,)
    reason = None if paused is False else said.paused_reason or known.paused_reason
    return msgspec.structs.replace(said, secrets=secrets, paused_reason=reason)


def set_paused(sql: Sql, tenant: str, name: str, *, paused: bool) -> Operation[ServedQueue | None]:
    """Pause a queue, or let it go on, whyever it was paused. None where there is no queue."""
    queue = qualified(tenant, name)
    home = home_of(sql, queue)
    rows = yield sql("lock_served_queue", shard=home, tenant=tenant, served=name)
    if not rows:
        return None
    before = read_configuration(rows[0][0])
    if not paused and before.paused_reason is not None:
        settings = encode_configuration(msgspec.structs.replace(before, paused_reason=None))
        yield sql("update_served_queue", shard=home, tenant=tenant, served=name, settings=settings)
    yield from (pause if paused else resume)(sql, queue)
    return (yield from get(sql, tenant, name))


def _limit(sql: Sql, queue: str, limits: QueueLimits) -> Operation[None]:
    (concurrency, count, period), _ = limits.stored
    for shard in range(sql.shards):
        rows = yield sql(
            "limit_queue",
            shard=shard,
            queue=queue,
            limited=limits.controlled,
            concurrency=concurrency,
            rate_count=count,
            rate_period=period,
        )
        if shard == home_of(sql, queue):
            yield sql(
                "clamp_rates", shard=shard, queue=queue, period=period, group_period=rows[0][0]
            )
    yield from ring(sql, [queue])


def rotate(
    sql: Sql, tenant: str, name: str, *, secret: str, now: datetime, overlap: timedelta
) -> Operation[ServedQueue | None]:
    """Sign with another secret; the old ones sign along for a while. None where there is no queue.

    Under the lock of the row: of two at once, both secrets sign, and neither sender was told wrong.
    """
    home = home_of(sql, qualified(tenant, name))
    rows = yield sql("lock_served_queue", shard=home, tenant=tenant, served=name)
    if not rows:
        return None
    before = read_configuration(rows[0][0])
    secrets = rotated(before.secrets, secret, now=now, overlap=overlap)
    settings = encode_configuration(msgspec.structs.replace(before, secrets=secrets))
    yield sql("update_served_queue", shard=home, tenant=tenant, served=name, settings=settings)
    return (yield from get(sql, tenant, name))


def stop(sql: Sql, queue: str, *, endpoint: str, why: str) -> Operation[bool]:
    """Pause a queue, and say why, unless its endpoint is another by now; True where it was done.

    Under the lock of the row: what somebody says of the queue meanwhile is not undone by this.
    """
    tenant, name = parted(queue)
    home = home_of(sql, queue)
    rows = yield sql("lock_served_queue", shard=home, tenant=tenant, served=name)
    before = read_configuration(rows[0][0]) if rows else None
    if before is None or before.endpoint != endpoint:
        return False
    settings = encode_configuration(msgspec.structs.replace(before, paused_reason=why))
    yield sql("update_served_queue", shard=home, tenant=tenant, served=name, settings=settings)
    yield from pause(sql, queue)
    return True


def get(sql: Sql, tenant: str, name: str, *, counts: bool = False) -> Operation[ServedQueue | None]:
    """The queue of that name."""
    home = home_of(sql, qualified(tenant, name))
    rows = yield sql(
        "find_served_queues", shard=home, tenant=tenant, served=name, after=None, limit=1
    )
    found = [ServedQueue.from_row(row) for row in rows]
    if counts:
        found = yield from _counted(sql, tenant, found)
    return found[0] if found else None


def find(
    sql: Sql, tenant: str, *, after: str | None, limit: int, counts: bool = False
) -> Operation[list[ServedQueue]]:
    """A tenant's queues by name, from `after` on."""
    if type(limit) is not int or not 1 <= limit <= PAGE_LIMIT:
        raise InvalidInput("limit", f"must be a whole number from 1 to {PAGE_LIMIT}, got {limit!r}")
    found: list[ServedQueue] = []
    for shard in range(sql.shards):
        rows = yield sql(
            "find_served_queues",
            shard=shard,
            tenant=tenant,
            served=None,
            after=after,
            limit=limit,
        )
        found += map(ServedQueue.from_row, rows)
    found = sorted(found, key=lambda queue: queue.name)[:limit]
    return (yield from _counted(sql, tenant, found)) if counts else found


def _counted(sql: Sql, tenant: str, found: list[ServedQueue]) -> Operation[list[ServedQueue]]:
    counts = {served.queue: _NOTHING for served in found}
    for shard in range(sql.shards if found else 0):
        rows = yield sql("count_queue_jobs", shard=shard, tenant=tenant, queues=list(counts))
        for queue, *counted in rows:
            counts[queue] = counts[queue].plus(QueueCounts(*counted))
    return [msgspec.structs.replace(each, counts=counts[each.queue]) for each in found]


def pushed(sql: Sql) -> Operation[list[ServedQueue]]:
    """The queues of all tenants that have an endpoint."""
    found: list[ServedQueue] = []
    for shard in range(sql.shards):
        rows = yield sql("find_pushed_queues", shard=shard)
        found += map(ServedQueue.from_row, rows)
    return sorted(found, key=lambda queue: (queue.tenant, queue.name))


def delete(sql: Sql, tenant: str, name: str) -> Operation[bool]:
    """Remove a queue, and what was said about it; False where there is none.

    Raises `QueueNotEmpty` while jobs are queued in it or running. Those that have ended stay.
    """
    queue = qualified(tenant, name)
    home = home_of(sql, queue)
    if not (yield sql("lock_served_queue", shard=home, tenant=tenant, served=name)):
        return False
    for shard in range(sql.shards):
        if (yield sql("find_live_jobs", shard=shard, queue=queue, limit=1)):
            raise QueueNotEmpty(name)
    yield sql("delete_served_queue", shard=home, tenant=tenant, served=name)
    for shard in range(sql.shards):
        yield sql("delete_queue", shard=shard, queue=queue)
    return True


def empty(sql: Sql, queue: str, *, limit: int) -> Operation[int]:
    """Remove one batch of the jobs of a queue that are queued or running; answers how many."""
    removed = 0
    for shard in range(sql.shards):
        rows = yield sql("find_live_jobs", shard=shard, queue=queue, limit=limit - removed)
        for tenant, mine in groupby(sorted(rows, key=itemgetter(1)), key=itemgetter(1)):
            removed += len((yield from jobs.delete(sql, tenant, [row[0] for row in mine])))
        if removed >= limit:
            break
    return removed
