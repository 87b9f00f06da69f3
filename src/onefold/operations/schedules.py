"""Schedules: save, find, pause, delete; one job per tick.

There is one job per tick, however many processes look: the tick's claim, its job and the
schedule's next tick are one transaction, and the unique constraint of claims decides. The lock on
the schedules only saves others the same work.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import ScheduleNotFound
from onefold.model import checks
from onefold.model.claim import Holding
from onefold.model.new_job import Prepared
from onefold.model.schedule import (
    RETENTION,
    Broken,
    Plan,
    Schedule,
    SchedulePage,
    Tick,
    first_tick,
    job_of,
    plan,
    shard_of_schedule,
    tick_key,
)
from onefold.model.timestamps import from_micros
from onefold.operations.enqueue import enqueue, policy
from onefold.operations.jobs import READ_AT_ONCE, fitting
from onefold.operations.publish_keys import INSERT_CLAIM_COLUMNS
from onefold.operations.statement import in_all_shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.operations.statement import Operation, Sql

LIMIT: Final = 100
"""Schedules per transaction."""

_KEEP: Final = policy()


class Looked(msgspec.Struct, frozen=True):
    """What one transaction did for the schedules of a shard."""

    ticks: tuple[Tick, ...] = ()
    broken: tuple[Broken, ...] = ()
    cursor: tuple[str, str] | None = None
    """Where the next one starts; None if this was the last."""


def tick(sql: Sql, shard: int, cursor: tuple[str, str]) -> Operation[Looked]:
    """Insert the jobs of the due ticks, schedule by schedule, after the cursor."""
    tenant, name = cursor
    rows = yield sql(
        "lock_due_schedules", shard=shard, after_tenant=tenant, after_name=name, limit=LIMIT
    )
    found = [plan(Schedule.from_row(row), row[-1]) for row in rows]
    plans = [each for each in found if isinstance(each, Plan)]
    ticks = yield from _enqueue(sql, plans, now=rows[-1][-1] if rows else 0)
    moved = [_moved(shard, each) for each in plans]
    if moved:
        columns = ("shard", "tenant", "name", "next_tick", "last_tick")
        yield sql("move_schedules", columns, moved)
    return Looked(
        ticks,
        tuple(each for each in found if isinstance(each, Broken)),
        (rows[-1][0], rows[-1][1]) if len(rows) == LIMIT else None,
    )


def _moved(shard: int, each: Plan) -> tuple[Any, ...]:
    last = each.ticks[-1] if each.ticks else None
    return (shard, each.schedule.tenant, each.schedule.name, each.next_tick, last)


class _Due(msgspec.Struct, frozen=True):
    schedule: Schedule
    tick: int
    item: Prepared


def _enqueue(sql: Sql, plans: Sequence[Plan], *, now: int) -> Operation[tuple[Tick, ...]]:
    due = [
        _Due(each.schedule, moment, job_of(each.schedule, moment, now=now))
        for each in plans
        for moment in each.ticks
    ]
    won = yield from _claim(sql, due)
    mine = [each for each in due if each.item.request.id in won]
    if not mine:
        return ()
    answers = yield from enqueue(sql, [each.item for each in mine], _KEEP)
    return tuple(
        Tick(
            each.schedule.tenant,
            each.schedule.name,
            from_micros(each.tick),
            each.schedule.kind,
            each.schedule.queue,
            answer,
        )
        for each, answer in zip(mine, answers, strict=True)
    )


def _claim(sql: Sql, due: Sequence[_Due]) -> Operation[set[str]]:
    """Claim ticks; returns the ids of the jobs for ticks that were not claimed before.

    A claim is never taken over, even after it expires: its tick has had its job.
    """
    won: set[str] = set()
    rows = sorted(_claim_row(sql, each) for each in due)
    for _, group in groupby(rows, key=lambda row: row[0]):
        inserted = yield sql("insert_claims", INSERT_CLAIM_COLUMNS, list(group), shared=True)
        won.update(owner for owner, _, _ in inserted)
    return won


def _claim_row(sql: Sql, due: _Due) -> tuple[Any, ...]:
    job_id = due.item.request.id
    result = msgspec.json.encode(job_id).decode()
    settled = (int(Holding.SETTLED), 0, None, RETENTION, None, result)
    return (*tick_key(due.schedule, due.tick).place(sql.shards), job_id, *settled, None)


def save(sql: Sql, wanted: Sequence[Schedule]) -> Operation[list[Schedule]]:
    """Save schedules; returns them as stored, in order."""
    saved: list[Schedule] = []
    for schedule in wanted:
        shard = shard_of_schedule(schedule.tenant, schedule.name, sql.shards)
        (row,) = yield sql(
            "find_schedule", shard=shard, tenant=schedule.tenant, schedule=schedule.name
        )
        next_tick = first_tick(schedule.cron, schedule.tz, row[-1])
        yield sql("save_schedule", shard=shard, next_tick=next_tick, **schedule.row)
        stored, _ = yield from get(sql, schedule.tenant, schedule.name)
        saved.append(stored)
    return saved


def find(sql: Sql, tenant: str, *, after: str | None = None) -> Operation[SchedulePage]:
    """A page of the schedules of a tenant by name, after a name."""
    limit = READ_AT_ONCE
    cursor = "" if after is None else checks.text(after, "after")
    rows = yield from in_all_shards(
        sql, "find_schedules", tenant=tenant, after=cursor, limit=limit + 1
    )
    found = sorted(map(Schedule.from_row, rows), key=lambda schedule: schedule.name)
    fits = fitting(found, limit)
    return SchedulePage(tuple(found[:fits]), found[fits - 1].name if fits < len(found) else None)


def get(sql: Sql, tenant: str, name: str) -> Operation[tuple[Schedule, int]]:
    """A schedule that must exist, and the time."""
    shard = shard_of_schedule(tenant, name, sql.shards)
    (row,) = yield sql("find_schedule", shard=shard, tenant=tenant, schedule=name)
    if row[0] is None:
        raise ScheduleNotFound(name)
    return Schedule.from_row(row), row[-1]


def remove(sql: Sql, tenant: str, name: str) -> Operation[bool]:
    """Delete a schedule; False if there was none."""
    shard = shard_of_schedule(tenant, name, sql.shards)
    rows = yield sql("delete_schedule", shard=shard, tenant=tenant, schedule=name)
    return bool(rows)


def pause(sql: Sql, tenant: str, name: str) -> Operation[bool]:
    """Pause a schedule; False if it was paused already."""
    yield from get(sql, tenant, name)
    return (yield from _set_paused(sql, tenant, name, paused=True, next_tick=None))


def resume(sql: Sql, tenant: str, name: str) -> Operation[bool]:
    """Resume a schedule from now: ticks during the pause are not missed ticks."""
    schedule, now = yield from get(sql, tenant, name)
    next_tick = first_tick(schedule.cron, schedule.tz, now)
    return (yield from _set_paused(sql, tenant, name, paused=False, next_tick=next_tick))


def _set_paused(
    sql: Sql, tenant: str, name: str, *, paused: bool, next_tick: int | None
) -> Operation[bool]:
    shard = shard_of_schedule(tenant, name, sql.shards)
    rows = yield sql(
        "pause_schedule",
        shard=shard,
        tenant=tenant,
        schedule=name,
        paused=paused,
        next_tick=next_tick,
    )
    return bool(rows)
