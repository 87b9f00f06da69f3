"""Queues: settings, limits, pause, hold, counts.

A queue with settings or limits has a row on every shard, so that a take reads its own shard only.
The rows are written in the order of the shards. The row on the shard of the queue's name is the
lock under which limits are counted, and decides about holds.

A held queue gives no job until the hold is over, and then one job at a time, until one succeeds or
an operator opens the queue. Plain takes skip it meanwhile.

The settings of a queue of the server are on the shard of the queue's name, beside its row, and are
locked before any row of the queue.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import InvalidInput, QueueNotEmpty
from onefold.model.checks import parted, qualified
from onefold.model.ids import hash12
from onefold.model.job import DEFAULT_QUEUE, Job
from onefold.model.queue import (
    Outlook,
    QueueConfiguration,
    QueueCounts,
    QueueLimits,
    QueueSettings,
    ServedQueue,
    SigningSecret,
    encode_configuration,
    read_configuration,
    rotated,
    stored_limit,
)
from onefold.model.timestamps import from_micros
from onefold.operations import jobs
from onefold.operations.endings import notify

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from onefold.model.queue import HeldWhy
    from onefold.operations.statement import Operation, Row, Sql


NO_LIMITS: Final = QueueLimits()
SHOWN: Final = 10
"""Queues that an error names."""


class TakenUnderControl(msgspec.Struct, frozen=True):
    """The jobs that a queue gave under its limits."""

    jobs: list[Job]
    wait: int | None = None
    """Microseconds until a rate allows more; None if only other jobs are in the way."""
    after: str = ""
    """The group after which the next take starts."""
    proves: bool = False
    """True: the hold is over, and a job that succeeds opens the queue."""


def home_of(sql: Sql, queue: str) -> int:
    """The shard that has a queue's lock and its rates."""
    return hash12("queue", queue) % sql.shards


def pause(sql: Sql, queue: str) -> Operation[None]:
    """Stop taking jobs from a queue; running jobs continue."""
    for shard in range(sql.shards):
        yield sql("pause_queue", shard=shard, queue=queue, paused=True)


def resume(sql: Sql, queue: str) -> Operation[None]:
    """Resume a paused queue."""
    for shard in range(sql.shards):
        yield sql("pause_queue", shard=shard, queue=queue, paused=False)
    yield from notify(sql, [queue])


def check_known(sql: Sql, queue: str, declared: Collection[str]) -> Operation[None]:
    """Reject a queue that is not declared and has no stored row.

    A misspelled name must not look like a queue that was paused.
    """
    if queue == DEFAULT_QUEUE or queue in declared:
        return
    for shard in range(sql.shards):
        if (yield sql("knows_queue", shard=shard, queue=queue)):
            return
    there = [settings.name for settings in (yield from find(sql))]
    known = sorted({DEFAULT_QUEUE, *declared, *there})
    more = ", …" if len(known) > SHOWN else ""
    raise InvalidInput(
        "queue",
        f"{queue!r} is not known: it has no jobs, schedules or settings, and no job is declared for"
        f" it here. There are {', '.join(known[:SHOWN])}{more}",
    )


def set_limits(sql: Sql, queue: str, limits: QueueLimits) -> Operation[None]:
    """Set limits as an operator: they replace what the code declares, and stay."""
    yield from _save(sql, {queue: limits}, declared=False, force=True)
    yield from notify(sql, [queue])


def clear_limits(sql: Sql, queue: str) -> Operation[None]:
    """Delete an operator's limits: those of the code apply again after its next declaration."""
    yield from _save(sql, {queue: NO_LIMITS}, declared=True, force=True)
    yield from notify(sql, [queue])


def declare(sql: Sql, queues: Mapping[str, QueueLimits]) -> Operation[None]:
    """Store the limits that the code declares; they never replace an operator's."""
    yield from _save(sql, queues, declared=True, force=False)
    yield from notify(sql, queues)


def _save(
    sql: Sql, queues: Mapping[str, QueueLimits], *, declared: bool, force: bool
) -> Operation[None]:
    for shard in range(sql.shards):
        for queue in sorted(queues):
            said = queues[queue]
            (concurrency, count, period), (of_group, group_count, group_period) = said.stored
            saved = yield sql(
                "save_queue",
                shard=shard,
                queue=queue,
                declared=declared,
                force=force,
                controlled=said.controlled,
                ordered=said.ordered,
                concurrency=concurrency,
                rate_count=count,
                rate_period=period,
                group_concurrency=of_group,
                group_rate_count=group_count,
                group_rate_period=group_period,
            )
            if saved and shard == home_of(sql, queue):
                yield sql(
                    "clamp_rates",
                    shard=shard,
                    queue=queue,
                    period=period,
                    group_period=group_period,
                )


def look(sql: Sql, queues: Sequence[str]) -> Operation[list[Outlook]]:
    """The due jobs of some queues, and when there will be more."""
    seen: dict[str, Outlook] = {}
    for shard in range(sql.shards):
        rows = yield sql("look", shard=shard, queues=list(queues))
        for queue, paused, controlled, due, due_grouped, next_at, now in rows:
            here = Outlook(
                queue, bool(paused), bool(controlled), bool(due), bool(due_grouped), next_at, now
            )
            seen[queue] = seen[queue].joined(here) if queue in seen else here
    return [seen[queue] for queue in queues]


def find(sql: Sql) -> Operation[list[QueueSettings]]:
    """The queues that have settings or jobs, by name."""
    settings: dict[str, Row] = {}
    counts: dict[str, _Counts] = {}
    for shard in range(sql.shards):
        rows = yield sql("find_queues", shard=shard)
        settings.update((row[0], row) for row in rows)
        rows = yield sql("count_jobs", shard=shard)
        for queue, *here in rows:
            counts[queue] = counts.get(queue, NO_JOBS).joined(_Counts(*here))
    return [
        _settings(queue, settings.get(queue), counts.get(queue, NO_JOBS))
        for queue in sorted({*settings, *counts})
    ]


class _Counts(msgspec.Struct, frozen=True):
    """The jobs that wait and run in a queue."""

    ready: int = 0
    scheduled: int = 0
    running: int = 0
    oldest: int | None = None
    """Microseconds since the oldest one is due; negative if none is."""

    def joined(self, other: _Counts) -> _Counts:
        """The sum with the counts of another shard."""
        return _Counts(
            self.ready + other.ready,
            self.scheduled + other.scheduled,
            self.running + other.running,
            max((age for age in (self.oldest, other.oldest) if age is not None), default=None),
        )


NO_JOBS: Final = _Counts()


def _settings(queue: str, row: Row | None, counts: _Counts) -> QueueSettings:
    here = QueueSettings(
        name=queue,
        ready=counts.ready,
        scheduled=counts.scheduled,
        running=counts.running,
        oldest=timedelta(microseconds=counts.oldest or 0) if counts.ready else None,
    )
    if row is None:
        return here
    return msgspec.structs.replace(
        here,
        paused=bool(row[1]),
        declared=bool(row[2]),
        ordered=bool(row[3]),
        limit=stored_limit(*row[4:7]),
        group_limit=stored_limit(*row[7:10]),
        held_until=None if row[10] is None else from_micros(row[10]),
        held_why=row[11],
    )


def forget_rates(sql: Sql, *, shard: int = 0, limit: int = 1_000) -> Operation[int]:
    """Delete one batch of rates whose buckets are full; returns how many."""
    rows = yield sql("delete_rates", shard=shard, limit=limit)
    return len(rows)


def hold(
    sql: Sql,
    queue: str,
    *,
    why: str,
    after: int | None = None,
    until: int | None = None,
    force: bool = False,
) -> Operation[int]:
    """Hold a queue for a time, or until a time; returns when the hold ends.

    A hold that ends later is not shortened, unless this one is forced.
    """
    home, ends = home_of(sql, queue), 0
    for shard in range(sql.shards):
        rows = yield sql(
            "hold_queue", shard=shard, queue=queue, after=after, until=until, why=why, force=force
        )
        # One time for all shards: their clocks differ a little between statements.
        ((held_until, until),) = rows
        ends = held_until if shard == home else ends
    return ends


def open_gate(
    sql: Sql,
    queue: str,
    *,
    force: bool = False,
    taken_at: int | None = None,
    only: HeldWhy | None = None,
) -> Operation[bool]:
    """End a hold, and forget the failures of the endpoint; False if there is nothing to end.

    Unless forced, a hold stays if it is not over yet, if it ended after `taken_at` (when the job
    that succeeded was taken), or if its reason is not `only`. A hold that began after the look-up
    stays, too.
    """
    rows = yield sql("find_gate", shard=home_of(sql, queue), queue=queue)
    if not rows:
        return False
    ((held_until, held_why, failures, now),) = rows
    if held_until is None and not failures:
        return False
    if held_until is not None and not force:
        is_proof = taken_at is None or taken_at >= held_until
        if held_until > now or not is_proof or only not in (None, held_why):
            return False
    opened = False
    for shard in range(sql.shards):
        rows = yield sql("open_queue", shard=shard, queue=queue, held_until=held_until)
        opened = opened or bool(rows)
    if held_until is not None and opened:
        yield from notify(sql, [queue])
    return opened


def failed(sql: Sql, queue: str) -> Operation[int]:
    """Count a failure of a queue's endpoint; returns how many there are in a row."""
    rows = yield sql("fail_queue", shard=home_of(sql, queue), queue=queue)
    ((failures,),) = rows
    return int(failures)


PAGE_LIMIT: Final = 1_001
_NOTHING: Final = QueueCounts()


def save(
    sql: Sql,
    tenant: str,
    name: str,
    said: QueueConfiguration,
    *,
    secret: SigningSecret,
    paused: bool | None = None,
) -> Operation[ServedQueue]:
    """Create a queue, or replace its settings.

    Secrets stay if none are given; `secret` is for a queue with an endpoint that has none. The
    queue stays paused, with its reason, unless `paused` is given. Limits that are not given are
    removed. A new endpoint starts without failures.
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
        # Another call was faster: the secret that it returned must stay. If that queue is deleted
        # by now, ours is created after all.
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
    secret: SigningSecret,
    *,
    paused: bool | None,
) -> QueueConfiguration:
    """The new settings, with what stays from the old ones."""
    known = QueueConfiguration() if before is None else before
    secrets = said.secrets or known.secrets
    if not secrets and said.endpoint is not None:
        secrets = (secret,)
    reason = None if paused is False else said.paused_reason or known.paused_reason
    return msgspec.structs.replace(said, secrets=secrets, paused_reason=reason)


def set_paused(sql: Sql, tenant: str, name: str, *, paused: bool) -> Operation[ServedQueue | None]:
    """Pause or resume a queue, whatever the reason was. None if there is no queue."""
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
    yield from notify(sql, [queue])


def rotate(
    sql: Sql, tenant: str, name: str, *, secret: str, now: datetime, overlap: timedelta
) -> Operation[ServedQueue | None]:
    """Add a secret; the old ones sign, too, for a while. None if there is no queue.

    Under the lock of the row: of two calls at once, both secrets sign.
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
    """Pause a queue with a reason, unless its endpoint has changed; True if it was paused.

    Under the lock of the row: a change that is made meanwhile is not undone.
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


def find_served(
    sql: Sql, tenant: str, *, after: str | None, limit: int, counts: bool = False
) -> Operation[list[ServedQueue]]:
    """A tenant's queues by name, after `after`."""
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
    """Delete a queue and its settings; False if there is none.

    Raises `QueueNotEmpty` while it has queued or running jobs. Ended jobs stay.
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
    """Delete one batch of a queue's queued and running jobs; returns how many."""
    removed = 0
    for shard in range(sql.shards):
        rows = yield sql("find_live_jobs", shard=shard, queue=queue, limit=limit - removed)
        for tenant, mine in groupby(sorted(rows, key=itemgetter(1)), key=itemgetter(1)):
            removed += len((yield from jobs.delete(sql, tenant, [row[0] for row in mine])))
        if removed >= limit:
            break
    return removed
