"""Why a job waits.

The reasons are looked for in the order in which a take would meet them: the job itself, its queue,
its workers, the limits. Nothing is locked, so an answer may be old when it arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.errors import JobNotFound
from onefold.model.attempt import Attempt
from onefold.model.ids import enqueue_order, shard_of
from onefold.model.job import JobRow
from onefold.model.lifecycle import State
from onefold.model.limit import parse_rate
from onefold.model.timestamps import to_micros
from onefold.model.waiting import MOST_AHEAD, MOST_NAMED, Ahead, WaitingReasons
from onefold.operations import queues, workers
from onefold.operations.limited_take import WINDOW
from onefold.operations.queues import home_of
from onefold.operations.statement import in_all_shards, read_all_shards

if TYPE_CHECKING:
    from onefold.model.queue import Queue
    from onefold.model.waiting import Waiting
    from onefold.operations.statement import Operation, Row, Sql

_HEAD_ID: Final = 2
"""The column of find_group_heads that has the id."""


def why(sql: Sql, tenant: str, job_id: str) -> Operation[Waiting | None]:
    """Why the job waits; None if it runs or has ended."""
    shard = shard_of(job_id, sql.shards)
    rows = yield sql("get_jobs", ("shard", "id"), [(shard, job_id)], tenant=tenant)
    if not rows:
        raise JobNotFound(job_id)
    job = JobRow(*rows[0])
    reasons = WaitingReasons(job)
    if job.state == State.RUNNING and job.awaiting == job.fence and job.lease_until is not None:
        return reasons.awaits(job.lease_until)
    if job.state != State.QUEUED:
        return None
    if job.expires_at is not None and job.expires_at <= job.now:
        return reasons.expired(job.expires_at)
    if job.run_at > job.now:
        ended = yield sql("find_attempts", shard=shard, id=job_id)
        return reasons.not_due(Attempt.from_row(ended[-1]) if ended else None)
    queue = yield from queues.read(sql, job.queue)
    if queue.paused:
        return reasons.paused(queue)
    return (yield from _due(sql, job, queue, reasons))


def _due(sql: Sql, job: JobRow, queue: Queue, reasons: WaitingReasons) -> Operation[Waiting]:
    """Why a due job of an open queue waits."""
    pushed = queue.endpoint is not None
    known = yield from workers.find(sql)
    serving = [worker for worker in known if worker.takes_from(job.queue, pushed=pushed)]
    if not serving:
        return reasons.no_worker(pushed=pushed)
    able = [worker for worker in serving if worker.kinds is None or job.kind in worker.kinds]
    if not able:
        return reasons.unknown_kind(len(serving))
    limited = yield from _limited(sql, job, queue, reasons)
    if limited is None and job.group_key is not None:
        limited = yield from _limited_group(sql, job, queue, job.group_key, reasons)
    if limited is not None:
        return limited
    ahead = yield from _ahead(sql, job)
    busy = all(worker.running >= worker.concurrency for worker in able)
    return reasons.taken_in_turn(len(able), ahead, busy=busy)


def _limited(
    sql: Sql, job: JobRow, queue: Queue, reasons: WaitingReasons
) -> Operation[Waiting | None]:
    """The hold, the concurrency or the rate of the queue."""
    if queue.held_until is not None:
        since = to_micros(queue.held_until, "held_until")
        if since > job.now:
            return reasons.held(queue)
        if probes := (yield from read_all_shards(sql, "find_probe", queue=job.queue, since=since)):
            return reasons.probed([str(row[0]) for row in probes])
    if queue.concurrency is not None:
        running = yield from _running(sql, job, None, queue.concurrency)
        if running is not None:
            return reasons.limit(queue.concurrency, None, running)
    if queue.rate_limit is not None:
        until = yield from _until(sql, job, queue.rate_limit, "")
        if until is not None:
            return reasons.rate(queue.rate_limit, None, until)
    return None


def _limited_group(
    sql: Sql, job: JobRow, queue: Queue, group: str, reasons: WaitingReasons
) -> Operation[Waiting | None]:
    """The order, the concurrency or the rate of the job's group."""
    most = 1 if queue.ordered else queue.group_concurrency
    if most is not None:
        running = yield from _running(sql, job, group, most)
        if running is not None and queue.ordered:
            return reasons.order(group, running)
        if running is not None:
            return reasons.limit(most, group, running)
    if queue.ordered:
        heads = yield from read_all_shards(
            sql, "find_group_heads", queue=job.queue, groups=[group], unknown=[]
        )
        first = min((str(row[_HEAD_ID]) for row in heads), key=enqueue_order)
        if first != job.id:
            return reasons.order(group, [first])
    if queue.group_rate_limit is not None:
        until = yield from _until(sql, job, queue.group_rate_limit, group)
        if until is not None:
            return reasons.rate(queue.group_rate_limit, group, until)
    return None


def _running(sql: Sql, job: JobRow, group: str | None, most: int) -> Operation[list[str] | None]:
    """Some running jobs of the queue or the group, if as many run as may; else None."""
    if group is None:
        rows = yield from read_all_shards(sql, "count_running", queue=job.queue, most=most)
        count = sum(row[0] for row in rows)
    else:
        rows = yield from read_all_shards(
            sql, "count_groups_running", queue=job.queue, groups=[group], most=most
        )
        count = sum(row[1] for row in rows)
    if count < most:
        return None
    found = yield from read_all_shards(
        sql,
        "find_running_jobs",
        queue=job.queue,
        group_key=group,
        tenant=job.tenant,
        limit=MOST_NAMED,
    )
    return [str(row[0]) for row in found][:MOST_NAMED]


def _until(sql: Sql, job: JobRow, rate_limit: str, group: str) -> Operation[int | None]:
    """When a rate allows the next job; None if it does now."""
    rate = parse_rate(rate_limit)
    rows = yield sql("find_rates", shard=home_of(sql, job.queue), queue=job.queue, groups=[group])
    full_at = rate.believed(rows[0][1], job.now) if rows else 0
    return None if rate.left(full_at, job.now) else job.now + rate.wait(full_at, job.now)


def _ahead(sql: Sql, job: JobRow) -> Operation[Ahead]:
    """The due jobs of the queue that are before this one."""
    due: list[Row] = yield from in_all_shards(
        sql, "find_ready_jobs", queue=job.queue, limit=MOST_AHEAD, unknown=[]
    )
    grouped = yield from in_all_shards(sql, "find_due_groups", queue=job.queue, unknown=[])
    place = (job.priority, job.run_at, job.id)
    number = len({row[2] for row in (*due, *grouped) if tuple(row[:3]) < place})
    return Ahead(number, is_all=number < MOST_AHEAD and len(grouped) < WINDOW)
