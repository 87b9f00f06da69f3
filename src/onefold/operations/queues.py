"""Queues: pause and resume them, say what limits they have, look at what waits in them.

A queue that somebody has said something about has a row on every shard, so that a take asks its own
shard alone. The rows are written in the order of the shards; the one on the shard of the queue's
name is also the lock under which its limits are counted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import InvalidInput
from onefold.model.identity import hash12
from onefold.model.job import DEFAULT_QUEUE, Job
from onefold.model.moment import from_micros
from onefold.model.queue import Outlook, QueueLimits, QueueSettings, stored_limit
from onefold.operations.bell import ring

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from onefold.operations.statement import Operation, Row, Sql

NO_LIMITS: Final = QueueLimits()
SHOWN: Final = 10
"""Queues that an error names."""


class TakenUnderControl(msgspec.Struct, frozen=True):
    """What a queue gave under its limits."""

    jobs: list[Job]
    wait: int | None = None
    """Microseconds until a rate allows more; None where nothing but other jobs is in the way."""
    after: str = ""
    """The group after which the next take begins to look."""
    proves: bool = False
    """True where the queue's hold is over, and a job that goes well is to open it."""


def home_of(sql: Sql, queue: str) -> int:
    """The shard that has a queue's lock and its rates."""
    return hash12("queue", queue) % sql.shards


def pause(sql: Sql, queue: str) -> Operation[None]:
    """Give nothing more from a queue; what is running goes on."""
    for shard in range(sql.shards):
        yield sql("pause_queue", shard=shard, queue=queue, paused=True)


def resume(sql: Sql, queue: str) -> Operation[None]:
    """Let a paused queue go on."""
    for shard in range(sql.shards):
        yield sql("pause_queue", shard=shard, queue=queue, paused=False)
    yield from ring(sql, [queue])


def check_known(sql: Sql, queue: str, declared: Collection[str]) -> Operation[None]:
    """Refuse a queue that is not declared and of which nothing is stored.

    A misspelled name must not look as if a queue had been paused.
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
    """An operator's word: it replaces what the code has declared, and stays."""
    yield from _save(sql, {queue: limits}, declared=False, force=True)
    yield from ring(sql, [queue])


def clear_limits(sql: Sql, queue: str) -> Operation[None]:
    """Forget an operator's word: the code's counts again, once a worker has declared it."""
    yield from _save(sql, {queue: NO_LIMITS}, declared=True, force=True)
    yield from ring(sql, [queue])


def declare(sql: Sql, queues: Mapping[str, QueueLimits]) -> Operation[None]:
    """The code's word: it replaces what the code has said before, and never an operator's."""
    yield from _save(sql, queues, declared=True, force=False)
    yield from ring(sql, queues)


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
    """What there is to do in some queues, and when there will be more."""
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
    """The queues that have settings or jobs to do, by name."""
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
    """What waits and runs in a queue."""

    ready: int = 0
    scheduled: int = 0
    running: int = 0
    oldest: int | None = None
    """Microseconds for which the oldest has been due; below zero where none is."""

    def joined(self, other: _Counts) -> _Counts:
        """Together with those of another shard."""
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
    """Remove one batch of rates that nobody has used up; answers how many."""
    rows = yield sql("delete_rates", shard=shard, limit=limit)
    return len(rows)
