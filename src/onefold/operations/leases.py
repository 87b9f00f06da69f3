"""Deliveries that go well: take, heartbeat, finish.

Every word about a delivery names its fence, and the fence alone decides whether it counts: a finish
after the lease ended, but before anybody else took the job, is accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onefold.model.delivery import Beat, Delivery, Ended
from onefold.model.job import Job
from onefold.model.lifecycle import KEEP, Event, State
from onefold.model.moment import from_micros
from onefold.operations.endings import ENDS, discard, judge
from onefold.operations.keys import insert_successors
from onefold.operations.shards import by_shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from onefold.model.delivery import TakeOrder
    from onefold.operations.statement import Operation, Row, Rows, Sql


def take_in_turn(sql: Sql, order: TakeOrder, *, turn: int) -> Operation[list[Job]]:
    """Lease due jobs: those of the shard whose turn it is, then of the next ones where it has few.

    The order is strict within a shard. What was taken comes in the order in which it is to run.
    """
    taken: list[Job] = []
    for step in range(sql.shards):
        left = order.without(taken)
        if left is None:
            break
        taken += yield from take(sql, left, shard=(turn + step) % sql.shards)
    return taken if sql.shards == 1 else _in_order(order, taken)


def take(sql: Sql, order: TakeOrder, *, shard: int = 0) -> Operation[list[Job]]:
    """Lease due jobs of one shard, in the order in which they are to run."""
    if sql.takes_by_priority:
        rows = yield from _take_by_priority(sql, order, shard)
    else:
        statement = sql(
            "take_jobs",
            ("queues", "limits"),
            list(order.queues.items()),
            shard=shard,
            limit=order.limit,
            worker=order.worker,
            lease=order.lease,
        )
        # Of several takes, the first must not be kept where the last one fails.
        rows = yield statement.but(alone=sql.shards == 1, waits=False)
    return _in_order(order, map(Job.from_row, rows))


def _in_order(order: TakeOrder, jobs: Iterable[Job]) -> list[Job]:
    places = {queue: place for place, queue in enumerate(order.queues)}
    return sorted(
        jobs, key=lambda job: (places[job.queue], job.priority, job.run_at_micros, job.id)
    )


def _take_by_priority(sql: Sql, order: TakeOrder, shard: int) -> Operation[Rows]:
    taken: list[Row] = []
    for queue, most in order.queues.items():
        left = min(most, order.limit - len(taken))
        priorities = (yield sql("ready_priorities", shard=shard, queue=queue)) if left else ()
        for (priority,) in priorities:
            rows = yield sql(
                "take_jobs",
                shard=shard,
                queue=queue,
                priority=priority,
                limit=left,
                worker=order.worker,
                lease=order.lease,
            )
            taken.extend(rows)
            left -= len(rows)
            if not left:
                break
    return taken


class Finish(msgspec.Struct, frozen=True, gc=False):
    """A delivery that succeeded, with what it gave (as JSON text)."""

    delivery: Delivery
    result: str | None = None


def finish(
    sql: Sql, finishes: Sequence[Finish], *, skip_locked: bool = False
) -> Operation[list[Ended]]:
    """Complete deliveries.

    With `skip_locked`, a row that another transaction has locked is answered as lost, for the
    caller to ask again and wait: one open transaction must not stall a batch.
    """
    ended: dict[Delivery, Ended] = {}
    name = "finish_unlocked_jobs" if skip_locked and sql.skips_locked else "finish_jobs"
    for shard, group in by_shard(sql, finishes, lambda finish: finish.delivery.id):
        rows = yield sql(
            name,
            ("shard", "id", "fence", "result"),
            [(shard, f.delivery.id, f.delivery.fence, f.result) for f in group],
            keep=KEEP[State.COMPLETED],
        )
        for job_id, fence, *_ in rows:
            ended[Delivery(job_id, fence)] = Ended(job_id, fence, "accepted", "completed")
        yield from _after_finish(sql, shard, rows)
    deliveries = [f.delivery for f in finishes]
    already = dict.fromkeys(deliveries, ENDS[Event.FINISH])
    return (yield from judge(sql, deliveries, ended, already))


def _after_finish(sql: Sql, shard: int, rows: Rows) -> Operation[None]:
    waiting = [row for row in rows if row[2] is not None]
    if waiting:
        yield from insert_successors(sql, [row[2] for row in waiting])
        yield sql("clear_successors", ("shard", "id"), [(shard, row[0]) for row in waiting])
    if over := [row[0] for row in rows if row[3]]:
        yield from discard(sql, shard, over)


def heartbeat(sql: Sql, deliveries: Sequence[Delivery], *, lease: int) -> Operation[list[Beat]]:
    """Extend the leases of deliveries that still have their fence."""
    leases: dict[Delivery, datetime] = {}
    for shard, group in by_shard(sql, deliveries, lambda delivery: delivery.id):
        rows = yield sql(
            "heartbeat_jobs",
            ("shard", "id", "fence"),
            [(shard, d.id, d.fence) for d in group],
            lease=lease,
        )
        for job_id, fence, until in rows:
            leases[Delivery(job_id, fence)] = from_micros(until)
    return [Beat(d.id, d.fence, leases.get(d)) for d in deliveries]
