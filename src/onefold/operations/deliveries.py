"""Deliveries that succeed: take, heartbeat, finish; whether a delivery is current.

Every report names the fence of its delivery. Only the fence decides: a finish after the lease has
ended is accepted as long as no other worker has taken the job.
"""

from __future__ import annotations

from itertools import starmap
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import LeaseLost
from onefold.model.delivery import Delivery, Ended, Heartbeat, TakeOrder
from onefold.model.ids import shard_of
from onefold.model.job import JobRow
from onefold.model.lifecycle import KEEP, Event, State
from onefold.model.timestamps import from_micros
from onefold.operations.endings import ENDS, Ending, Locked, discard, end, judge
from onefold.operations.statement import by_shard, in_all_shards
from onefold.operations.unique_keys import insert_successors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from onefold.operations.statement import Operation, Rows, Sql, Statement

ID_OF: Final[Callable[[Any], str]] = attrgetter("delivery.id")
"""The id of the job of a finish: its place in the order of locks."""
NOTHING: Final = TakeOrder({}, 0, "", 0)


def finish_and_take(
    sql: Sql, finishes: Sequence[Finish], order: TakeOrder, *, turn: int
) -> Operation[tuple[list[Ended], list[JobRow]]]:
    """Complete the last deliveries and lease the next jobs, in one statement if possible."""
    if sql.takes_by_priority or not sql.visits_one:
        ended = yield from finish(sql, finishes, skip_locked=True)
        return ended, (yield from take_in_turn(sql, order, turn=turn))
    (shard,) = sql.visited
    rows = yield exchange_statement(sql, shard, sorted(finishes, key=ID_OF), order)
    done, taken = exchanged(finishes, order, rows)
    if done is None:
        return _accepted(finishes), taken
    if (yield from _after_finish(sql, shard, done)) and (rest := order.without(taken)):
        taken += yield from take(sql, rest, shard=shard)  # A successor may be due now.
    return (yield from _judged(sql, finishes, _deliveries(done))), taken


def exchange_statement(
    sql: Sql, shard: int, finishes: Sequence[Finish], order: TakeOrder | None
) -> Statement:
    """Complete deliveries, which are sorted by id, and lease jobs. Only for PostgreSQL."""
    plain = all(map(attrgetter("plain"), finishes))
    # Of the statements for several shards, the first must not be committed if the last one fails.
    alone = plain and sql.visits_one
    order = order or NOTHING
    return sql(
        "exchange_jobs",
        ("id", "fence", "result"),
        [(f.delivery.id, f.delivery.fence, f.result) for f in finishes],
        alone=alone,
        waits=not alone,
        shard=shard,
        plain=plain,
        keep=KEEP[State.COMPLETED],
        queues=list(order.queues),
        limits=list(order.queues.values()),
        limit=order.limit,
        worker=order.worker,
        take_id=order.take_id,
        lease=order.lease,
        unknown=list(order.unknown),
        **order.places.spans([shard], order.queues),
    )


def exchanged(
    finishes: Sequence[Finish], order: TakeOrder | None, rows: Rows
) -> tuple[Rows | None, list[JobRow]]:
    """What an exchange has completed (None: all, and nothing is left to do), and the taken jobs.

    A completed delivery is its id, its fence, the successor of the job, and whether the retention
    of the job is over.
    """
    done: Rows | None = None
    if finishes and rows and rows[-1][0] is None:
        done = msgspec.json.decode(rows[-1][COMPLETED] or "[]")
        rows = rows[:-1]
    return done, [] if order is None else in_order(order, order.taken(rows))


COMPLETED: Final = JobRow.__struct_fields__.index("payload_json")
"""The column of an exchange that has the completed deliveries, in a row without an id."""


def take_in_turn(sql: Sql, order: TakeOrder, *, turn: int) -> Operation[list[JobRow]]:
    """Lease due jobs: from the shard whose turn it is, then from the next ones if it has few.

    The order is strict within a shard. Jobs are returned in the order in which they should run.
    """
    taken: list[JobRow] = []
    for step in range(len(sql.visited)):
        left = order.without(taken) if taken else order
        if left is None:
            break
        taken += yield from take(sql, left, shard=sql.visited[(turn + step) % len(sql.visited)])
    return taken if sql.visits_one else in_order(order, taken)


def take(sql: Sql, order: TakeOrder, *, shard: int = 0) -> Operation[list[JobRow]]:
    """Lease due jobs of one shard, in the order in which they should run."""
    if sql.takes_by_priority:
        return in_order(order, (yield from _take_by_priority(sql, order, shard)))
    rows = yield exchange_statement(sql, shard, (), order)
    return exchanged((), order, rows)[1]


def in_order(order: TakeOrder, jobs: list[JobRow]) -> list[JobRow]:
    """Jobs of several shards, in the order in which they should run."""
    if len(jobs) <= 1:
        return jobs
    places = {queue: place for place, queue in enumerate(order.queues)}
    return sorted(jobs, key=lambda job: (places[job.queue], job.priority, job.run_at, job.id))


def _take_by_priority(sql: Sql, order: TakeOrder, shard: int) -> Operation[list[JobRow]]:
    taken: list[JobRow] = []
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
                take_id=order.take_id,
                lease=order.lease,
                unknown=list(order.unknown),
            )
            taken += order.taken(rows)
            left -= len(rows)
            if not left:
                break
    return taken


def return_taken(sql: Sql, takes: Sequence[str]) -> Operation[int]:
    """Hand back the jobs of these takes; returns how many.

    For takes whose response was lost: no worker knows of the jobs. No attempt is charged.
    """
    taken = yield from in_all_shards(sql, "find_taken", takes=list(takes))
    if taken:
        deliveries = starmap(Delivery, taken)
        yield from end(sql, [Ending(delivery, Event.HAND_BACK) for delivery in deliveries])
    return len(taken)


class Finish(msgspec.Struct, frozen=True, gc=False):
    """A delivery that succeeded, with its result (JSON text)."""

    delivery: Delivery
    result: str | None = None
    plain: bool = False
    """True: the job has no retention of its own."""


def finish(
    sql: Sql, finishes: Sequence[Finish], *, skip_locked: bool = False
) -> Operation[list[Ended]]:
    """Complete deliveries.

    With `skip_locked`, a row that another transaction has locked is reported as lost, and the
    caller tries again and waits: one open transaction must not stall a batch. The same holds for a
    row with a successor if all are `plain`: their statement does nothing else.
    """
    completed: list[Delivery] = []
    for shard, group in by_shard(sql, finishes, ID_OF):
        done: Rows | None
        if skip_locked and sql.skips_locked:
            rows = yield exchange_statement(sql, shard, group, None)
            done, _ = exchanged(group, None, rows)
        else:
            done = yield sql(
                "finish_jobs",
                ("shard", "id", "fence", "result"),
                [(shard, f.delivery.id, f.delivery.fence, f.result) for f in group],
                keep=KEEP[State.COMPLETED],
            )
        if done is None:
            completed += [f.delivery for f in group]
        else:
            yield from _after_finish(sql, shard, done)
            completed += _deliveries(done)
    return (yield from _judged(sql, finishes, completed))


def _accepted(finishes: Sequence[Finish]) -> list[Ended]:
    named = [finish.delivery for finish in finishes]
    return [Ended(one.id, one.fence, "accepted", "completed") for one in named]


def _deliveries(done: Rows) -> list[Delivery]:
    return [Delivery(row[0], row[1]) for row in done]


def _judged(
    sql: Sql, finishes: Sequence[Finish], completed: Sequence[Delivery]
) -> Operation[list[Ended]]:
    """The answers to all finishes, also to those that were not accepted."""
    if len(completed) == len(finishes):
        return _accepted(finishes)
    ended = {one: Ended(one.id, one.fence, "accepted", "completed") for one in completed}
    deliveries = [f.delivery for f in finishes]
    already = dict.fromkeys(deliveries, ENDS[Event.FINISH])
    return (yield from judge(sql, deliveries, ended, already))


def _after_finish(sql: Sql, shard: int, done: Rows) -> Operation[bool]:
    """Insert successors, and remove what is not kept; returns whether there were successors."""
    waiting = [row for row in done if row[2] is not None]
    if waiting:
        yield from insert_successors(sql, [row[2] for row in waiting])
        yield sql("clear_successors", ("shard", "id"), [(shard, row[0]) for row in waiting])
    if over := [row[0] for row in done if row[3]]:
        yield from discard(sql, shard, over)
    return bool(waiting)


def heartbeat(
    sql: Sql, deliveries: Sequence[Delivery], *, lease: int
) -> Operation[list[Heartbeat]]:
    """Extend the leases of deliveries whose fence is current.

    A job that another transaction has locked keeps its lease: it cannot be rescued either, and the
    next heartbeat extends it.
    """
    leases: dict[Delivery, datetime] = {}
    for shard, group in by_shard(sql, deliveries, lambda delivery: delivery.id):
        rows = yield sql(
            "heartbeat_jobs",
            ("shard", "id", "fence"),
            [(shard, d.id, d.fence) for d in group],
            # Committed by itself: a process that is stopped between a heartbeat and its commit
            # would keep the rows locked, so that they cannot be rescued.
            alone=True,
            lease=lease,
        )
        for job_id, fence, until in rows:
            leases[Delivery(job_id, fence)] = from_micros(until)
        if sql.skips_locked and (silent := [(shard, d.id) for d in group if d not in leases]):
            rows = yield sql("delivery_states", ("shard", "id"), silent)
            for job_id, state, fence, until, *_ in rows:
                if state == State.RUNNING:
                    leases[Delivery(job_id, fence)] = from_micros(until)
    return [Heartbeat(d.id, d.fence, leases.get(d)) for d in deliveries]


def hold(sql: Sql, delivery: Delivery) -> Operation[None]:
    """Lock a job until the commit; `LeaseLost` if the delivery does not run it."""
    place = (shard_of(delivery.id, sql.shards), delivery.id)
    rows = yield sql("lock_deliveries", ("shard", "id"), [place], tenant=None)
    found = [(job.state, job.fence) for job in starmap(Locked, rows)]
    if found != [(State.RUNNING, delivery.fence)]:
        raise LeaseLost(f"job {delivery.id}", fence=delivery.fence)


def is_completed(sql: Sql, delivery: Delivery) -> Operation[bool]:
    """Whether this delivery has completed its job."""
    place = (shard_of(delivery.id, sql.shards), delivery.id)
    rows = yield sql("delivery_states", ("shard", "id"), [place])
    return [(state, fence) for _, state, fence, *_ in rows] == [(State.COMPLETED, delivery.fence)]
