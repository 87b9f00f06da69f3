"""Queues: settings, limits, pause, hold, counts.

A queue with settings or limits has a row on every shard, so that a take reads its own shard only.
The rows are written in the order of the shards. The row on the shard of the queue's name is the
lock under which limits are counted, and decides about holds.

A held queue gives no job until the hold is over, and then one job at a time, until one succeeds or
an operator opens the queue. Plain takes skip it meanwhile.

The settings of a queue of the server are on the shard of the queue's name, beside its row, and are
locked before any row of the queue.

A change of what servers have in memory (settings, holds, failures) is notified, so that they need
not read all queues again and again. Not a version number in one row: a transaction that changes a
queue would stall the changes of all others.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from onefold.errors import InvalidInput, QueueNotEmpty
from onefold.model.checks import parted, qualified
from onefold.model.ids import hash12
from onefold.model.job import DEFAULT_QUEUE, Job, JobRow
from onefold.model.places import Places
from onefold.model.queue import (
    FailingCounts,
    Outlook,
    Queue,
    QueueCounts,
    QueueLimits,
    QueueSettings,
    encode_settings,
    read_settings,
)
from onefold.model.timestamps import MICROSECOND, as_duration
from onefold.operations import jobs
from onefold.operations.endings import notify
from onefold.operations.statement import in_all_shards, read_all_shards

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    from onefold.model.queue import HoldReason
    from onefold.operations.statement import Operation, Sql


NO_LIMITS: Final = QueueLimits()
CHANGED: Final = ""
"""Notified in place of the name of a queue: servers read the queues again."""
SHOWN: Final = 10
"""Queues that an error names."""


class TakenUnderControl(msgspec.Struct, frozen=True):
    """The jobs that a queue gave under its limits."""

    rows: list[JobRow]
    wait: int | None = None
    """Microseconds until a rate allows more; None if only other jobs are in the way."""
    after: str = ""
    """The group after which the next take starts."""
    proves: bool = False
    """True: the hold is over, and a job that succeeds opens the queue."""

    @property
    def jobs(self) -> list[Job]:
        """The complete jobs."""
        return [row.job() for row in self.rows]


def home_of(sql: Sql, queue: str) -> int:
    """The shard that has a queue's lock and its rates."""
    return hash12("queue", queue) % sql.shards


def notify_changed(sql: Sql) -> Operation[None]:
    """Let servers read the queues again after the commit."""
    yield from notify(sql, [CHANGED])


def pause(sql: Sql, queue: str) -> Operation[None]:
    """Stop taking jobs from a queue; running jobs continue."""
    yield from in_all_shards(sql, "pause_queue", queue=queue, paused=True)


def resume(sql: Sql, queue: str) -> Operation[None]:
    """Resume a paused queue."""
    yield from in_all_shards(sql, "pause_queue", queue=queue, paused=False)
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
    there = [known.full_name for known in (yield from find(sql, "", counts=True))]
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
            limits = queues[queue]
            (concurrency, count, period), (of_group, group_count, group_period) = limits.stored
            saved = yield sql(
                "save_queue",
                shard=shard,
                queue=queue,
                declared=declared,
                force=force,
                controlled=limits.controlled,
                ordered=limits.ordered,
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


def look(sql: Sql, queues: Sequence[str], places: Places | None = None) -> Operation[list[Outlook]]:
    """The due jobs of some queues, and when there will be more. Begins like takes at `places`."""
    seen: dict[str, Outlook] = {}
    spans = (places or Places()).spans(sql.visited, queues)
    rows = yield from read_all_shards(
        sql, "look", alone=True, waits=False, queues=list(queues), **spans
    )
    for queue, paused, controlled, due, due_grouped, next_at, now in rows:
        here = Outlook(
            queue, bool(paused), bool(controlled), bool(due), bool(due_grouped), next_at, now
        )
        seen[queue] = seen[queue].joined(here) if queue in seen else here
    return [seen[queue] for queue in queues]


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
    yield from notify_changed(sql)
    return ends


def end_hold(
    sql: Sql,
    queue: str,
    *,
    force: bool = False,
    taken_at: int | None = None,
    only: HoldReason | None = None,
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
    rows = yield from in_all_shards(sql, "open_queue", queue=queue, held_until=held_until)
    names = [CHANGED] if held_until is None else [CHANGED, queue]
    yield from notify(sql, names if rows else [])
    return bool(rows)


def failed(sql: Sql, queue: str) -> Operation[int]:
    """Count a failure of a queue's endpoint; returns how many there are in a row."""
    rows = yield sql("fail_queue", shard=home_of(sql, queue), queue=queue)
    ((failures,),) = rows
    yield from notify_changed(sql)
    return int(failures)


ALL: Final = 2**31 - 1
_NO_JOBS: Final = QueueCounts()


def save(
    sql: Sql, tenant: str, name: str, wanted: QueueSettings, *, secret: str, new: bool = False
) -> Operation[Queue]:
    """Create a queue, or replace its settings; with `new`, only create it.

    Secrets stay if none are given; `secret` is for a queue with an endpoint that has none. The
    queue stays paused, with its reason, unless the settings have `paused`. Limits that are not
    given are removed. A new endpoint starts without failures.
    """
    queue = qualified(tenant, name)
    home = home_of(sql, queue)
    before = None if new else (yield from _lock(sql, tenant, name))
    while before is None:
        settings = encode_settings(_completed(wanted, QueueSettings(), secret))
        inserted = yield sql(
            "insert_served_queue", shard=home, tenant=tenant, served=name, settings=settings
        )
        if inserted:
            yield from notify_changed(sql)
            break
        if new:
            reason = "belongs to a queue that exists: choose another, or edit that queue"
            raise InvalidInput("name", reason)
        # Another call was faster: the secret that it returned must stay. If that queue is deleted
        # by now, ours is created after all.
        before = yield from _lock(sql, tenant, name)
    if before is not None:
        yield from _update(sql, tenant, name, _completed(wanted, before, secret))
        if before.endpoint != wanted.endpoint:
            yield from end_hold(sql, queue, force=True)
    if wanted.limit is not None or (before is not None and before.limit is not None):
        yield from _limit(sql, queue, QueueLimits(wanted.limit))
    if wanted.paused is not None:
        yield from (pause if wanted.paused else resume)(sql, queue)
    saved = yield from get(sql, tenant, name)
    assert saved is not None
    return saved


def _update(sql: Sql, tenant: str, name: str, settings: QueueSettings) -> Operation[None]:
    yield sql(
        "update_served_queue",
        shard=home_of(sql, qualified(tenant, name)),
        tenant=tenant,
        served=name,
        settings=encode_settings(settings),
    )
    yield from notify_changed(sql)


def _completed(wanted: QueueSettings, before: QueueSettings, secret: str) -> QueueSettings:
    """The new settings, with what stays from the old ones."""
    kept: dict[str, Any] = {}
    if wanted.signing_secret is None:
        created = None if wanted.endpoint is None else secret
        kept["signing_secret"] = before.signing_secret or created
        kept["previous_secrets"] = before.previous_secrets
    reason = wanted.paused_reason or before.paused_reason
    return replace(wanted, **kept, paused_reason=None if wanted.paused is False else reason)


def _lock(sql: Sql, tenant: str, name: str) -> Operation[QueueSettings | None]:
    """The settings of a queue, locked for a change: nothing that happens meanwhile is undone."""
    home = home_of(sql, qualified(tenant, name))
    rows = yield sql("lock_served_queue", shard=home, tenant=tenant, served=name)
    return read_settings(rows[0][0]) if rows else None


def set_paused(sql: Sql, tenant: str, name: str, *, paused: bool) -> Operation[Queue | None]:
    """Pause or resume a queue, whatever the reason was. None if there is no queue."""
    before = yield from _lock(sql, tenant, name)
    if before is None:
        return None
    if not paused and before.paused_reason is not None:
        yield from _update(sql, tenant, name, replace(before, paused_reason=None))
    yield from (pause if paused else resume)(sql, qualified(tenant, name))
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
) -> Operation[Queue | None]:
    """Add a secret; the old ones also sign for a while. None if there is no queue."""
    before = yield from _lock(sql, tenant, name)
    if before is None:
        return None
    yield from _update(sql, tenant, name, before.rotated(secret, now=now, overlap=overlap))
    return (yield from get(sql, tenant, name))


def pause_endpoint(sql: Sql, queue: str, *, endpoint: str, why: str) -> Operation[bool]:
    """Pause a queue with a reason, unless its endpoint has changed; True if it was paused."""
    tenant, name = parted(queue)
    before = yield from _lock(sql, tenant, name)
    if before is None or before.endpoint != endpoint:
        return False
    yield from _update(sql, tenant, name, replace(before, paused_reason=why))
    yield from pause(sql, queue)
    return True


def get(sql: Sql, tenant: str, name: str, *, counts: bool = False) -> Operation[Queue | None]:
    """The saved queue of that name."""
    rows = yield sql(
        "find_served_queues",
        shard=home_of(sql, qualified(tenant, name)),
        tenant=tenant,
        served=name,
        after=None,
        limit=1,
    )
    found = [Queue.from_row(row) for row in rows]
    if counts:
        found = yield from _counted(sql, tenant, found)
    return found[0] if found else None


def read(sql: Sql, queue: str) -> Operation[Queue]:
    """The queue of that full name, saved or not."""
    if (saved := (yield from get(sql, *parted(queue)))) is not None:
        return saved
    rows = yield sql("find_queues", shard=home_of(sql, queue), queue=queue)
    return Queue.from_row(rows[0]) if rows else _unsaved(queue)


def find_saved(
    sql: Sql, tenant: str, *, after: str | None, limit: int, counts: bool
) -> Operation[list[Queue]]:
    """The saved queues of a tenant, by name, after the name `after`."""
    rows = yield from in_all_shards(
        sql, "find_served_queues", tenant=tenant, served=None, after=after, limit=limit
    )
    found = sorted(map(Queue.from_row, rows), key=lambda queue: queue.name)[:limit]
    return (yield from _counted(sql, tenant, found)) if counts else found


def find(sql: Sql, tenant: str, *, counts: bool) -> Operation[list[Queue]]:
    """The queues that are saved, or have limits, a state or unfinished jobs, by full name.

    Of all tenants if `tenant` is empty.
    """
    saved = find_saved(sql, tenant, after=None, limit=ALL, counts=False)
    found = {one.full_name: one for one in (yield from saved if tenant else all_saved(sql))}
    rows = yield from read_all_shards(sql, "find_queues", queue=None)
    found = {row[0]: Queue.from_row(row) for row in rows} | found
    if counts:
        found = yield from _with_unfinished_jobs(sql, found)
    mine = [one for one in found.values() if not tenant or one.tenant == tenant]
    return sorted(mine, key=lambda queue: queue.full_name)


def _with_unfinished_jobs(sql: Sql, found: Mapping[str, Queue]) -> Operation[dict[str, Queue]]:
    jobs: dict[str, _Jobs] = {}
    for queue, *here, oldest in (yield from read_all_shards(sql, "count_jobs")):
        jobs[queue] = jobs.get(queue, _NONE).plus(_Jobs(QueueCounts(*here), oldest))
    return {
        name: jobs.get(name, _NONE).counted(found.get(name) or _unsaved(name), dead=None)
        for name in {*found, *jobs}
    }


def count_failing(sql: Sql, tenant: str) -> Operation[dict[str, FailingCounts]]:
    """By full name, the queues with retrying or dead jobs; of all tenants if `tenant` is empty."""
    retrying: Counter[str] = Counter()
    dead: Counter[str] = Counter()
    rows = yield from read_all_shards(sql, "count_failing_jobs", tenant=tenant)
    for queue, retried, buried in rows:
        retrying[queue] += retried
        dead[queue] += buried
    return {queue: FailingCounts(retrying[queue], dead[queue]) for queue in retrying}


def waiting(sql: Sql) -> Operation[dict[str, int]]:
    """By queue with unfinished jobs: the number of its due jobs."""
    numbers: Counter[str] = Counter()
    for queue, ready, *_ in (yield from read_all_shards(sql, "count_jobs")):
        numbers[queue] += ready
    return dict(numbers)


def _unsaved(full_name: str) -> Queue:
    tenant, name = parted(full_name)
    return Queue(tenant=tenant, name=name)


class _Jobs(msgspec.Struct, frozen=True):
    """The jobs of a queue on some shards."""

    counts: QueueCounts = _NO_JOBS
    oldest: int | None = None
    """Microseconds since the oldest one is due; negative if none is."""

    def plus(self, other: _Jobs) -> _Jobs:
        ages = [age for age in (self.oldest, other.oldest) if age is not None]
        return _Jobs(self.counts.plus(other.counts), max(ages, default=None))

    def counted(self, queue: Queue, **changes: Any) -> Queue:
        """The queue with these counts."""
        oldest = as_duration((self.oldest or 0) * MICROSECOND) if self.counts.ready else None
        return replace(queue, counts=replace(self.counts, **changes), oldest=oldest)


_NONE: Final = _Jobs()


def _counted(sql: Sql, tenant: str, found: list[Queue]) -> Operation[list[Queue]]:
    if not found:
        return []
    jobs = {queue.full_name: _NONE for queue in found}
    rows = yield from read_all_shards(sql, "count_queue_jobs", tenant=tenant, queues=list(jobs))
    for queue, *here, oldest in rows:
        jobs[queue] = jobs[queue].plus(_Jobs(QueueCounts(*here), oldest))
    return [jobs[queue.full_name].counted(queue) for queue in found]


def all_saved(sql: Sql, *, pushed: bool = False) -> Operation[list[Queue]]:
    """The saved queues of all tenants, or those of them that have an endpoint."""
    rows = yield from read_all_shards(sql, "find_all_served_queues", pushed=pushed)
    return sorted(map(Queue.from_row, rows), key=lambda queue: (queue.tenant, queue.name))


def delete(sql: Sql, tenant: str, name: str) -> Operation[bool]:
    """Delete a queue and its settings; False if there is none.

    Raises `QueueNotEmpty` while it has queued or running jobs. Ended jobs stay.
    """
    queue = qualified(tenant, name)
    home = home_of(sql, queue)
    if (yield from _lock(sql, tenant, name)) is None:
        return False
    if (yield from in_all_shards(sql, "find_live_jobs", queue=queue, limit=1)):
        raise QueueNotEmpty(name)
    yield sql("delete_served_queue", shard=home, tenant=tenant, served=name)
    yield from in_all_shards(sql, "delete_queue", queue=queue)
    yield from notify_changed(sql)
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
