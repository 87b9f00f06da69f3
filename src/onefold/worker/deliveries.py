"""Take jobs and end their deliveries: many per call, each with its fence."""

from __future__ import annotations

import os
from functools import partial
from itertools import count
from operator import attrgetter
from random import randrange
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from msgspec.structs import replace

from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.model.checks import REASON_BYTES, text
from onefold.model.delivery import (
    Delivery,
    Ended,
    Heartbeat,
    TakeOrder,
    deliveries,
    encode_error,
    results_by_id,
    take_order,
)
from onefold.model.failure import printable
from onefold.model.ids import HASHES
from onefold.model.job import Job
from onefold.model.lifecycle import Event
from onefold.model.queue import Outlook, queue_names
from onefold.model.timestamps import span
from onefold.operations import deliveries as leases
from onefold.operations import endings
from onefold.operations.endings import Ending
from onefold.operations.limited_take import take_controlled
from onefold.operations.queues import look as outlooks
from onefold.runtime import Calls, Procedure, awaited, call, transact
from onefold.worker import chores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from onefold.app.context import Context
    from onefold.model.job import JobRow, Json
    from onefold.model.schedule import Ticked
    from onefold.operations.deliveries import Finish
    from onefold.operations.endings import Rescued
    from onefold.operations.maintenance import Pruned
    from onefold.operations.queues import TakenUnderControl
    from onefold.operations.statement import Operation, Sql
    from onefold.runtime import Runtime
    from onefold.worker.shards import Shards

REMEMBERED: Final = 1_000
"""Sets of queues, and queues with groups, whose turns are remembered."""
_finished_id = attrgetter("delivery.id")
ReportT = TypeVar("ReportT", "Finish", Ending)
ENDS: Final = frozenset({Event.FAIL, Event.DEFER, Event.BURY, Event.CANCEL, Event.HAND_BACK})


class ShardRotation:
    """The shard from which a take starts: in turn, for each set of queues separately.

    With one turn for all, takes of other queues in between could skip the same shards again and
    again. The first shard is random, also in a forked child, so that processes that start together
    use different shards.
    """

    def __init__(self) -> None:
        """Starts with a random shard."""
        self._process = os.getpid()
        self._turns: dict[tuple[str, ...], Iterator[int]] = {}

    def next(self, queues: Iterable[str]) -> int:
        """The next turn of these queues; the shard is its remainder."""
        names = tuple(queues)
        forked = self._process != os.getpid()
        if forked or (names not in self._turns and len(self._turns) >= REMEMBERED):
            self._process, self._turns = os.getpid(), {}
        turn = self._turns.get(names)
        if turn is None:
            turn = self._turns.setdefault(names, count(randrange(HASHES)))
        return next(turn)


class DeliveryCalls(Calls):
    """Take jobs and end deliveries, of all tenants."""

    def __init__(self, context: Context) -> None:
        """On the store of `context`."""
        self._context = context
        self._runtime = context.runtime
        self._rotation = ShardRotation()
        self._ticker = chores.Ticker(context.shards, context.hooks)
        self._groups: dict[str, str] = {}
        """By queue: the group with which its last limited take has ended."""

    @call
    def take(
        self,
        queues: Sequence[str] | Mapping[str, int] = ("default",),
        *,
        limit: int = 1,
        worker: str,
        lease: timedelta,
    ) -> Procedure[list[Job]]:
        """Lease due jobs: the queues in order, each by priority, run_at and id.

        The order is strict within a shard. The first shard changes from take to take.
        """
        order = take_order(queues, limit=limit, worker=worker, lease=lease)
        return (yield from self._finish_and_take([], order))[1]

    atake: Final = awaited(take)

    @call
    def finish(
        self, jobs: Sequence[Job | Delivery], *, results: Mapping[str, Json] | None = None
    ) -> Procedure[list[Ended]]:
        """Complete deliveries, with their results by job id."""
        return (yield from self._finish_and_take(_finishes(jobs, results)))[0]

    afinish: Final = awaited(finish)

    @call
    def finish_and_take(
        self,
        jobs: Sequence[Job | Delivery],
        queues: Sequence[str] | Mapping[str, int] = ("default",),
        *,
        limit: int = 1,
        worker: str,
        lease: timedelta,
        results: Mapping[str, Json] | None = None,
    ) -> Procedure[tuple[list[Ended], list[Job]]]:
        """Complete the last deliveries and take the next jobs, in one transaction."""
        order = take_order(queues, limit=limit, worker=worker, lease=lease)
        return self._finish_and_take(_finishes(jobs, results), order)

    afinish_and_take: Final = awaited(finish_and_take)

    def _finish_and_take(
        self, finishes: Sequence[Finish], order: TakeOrder | None = None
    ) -> Procedure[tuple[list[Ended], list[Job]]]:
        """Rows that are locked, or have successors, are skipped; a second transaction waits."""
        ended: list[Ended]
        taken: list[JobRow]
        # Only a take has a turn: with one for the finish, too, takes would skip every other shard.
        turn = 0 if order is None else self._rotation.next(order.queues)
        shards = self._context.shards
        if shards.number > 1:
            finish = partial(leases.finish, skip_locked=True)
            ended = yield from shards.report_all("finish", finishes, _finished_id, finish)
            taken = [] if order is None else (yield from self._take(order, turn))
        else:
            ended, taken = yield from transact(
                partial(finish_then_take, finishes=finishes, order=order, turn=turn)
            )
        lost = {item.id for item in ended if item.status == "lost" and not item.has_ended}
        if lost:
            rest = [finish for finish in finishes if finish.delivery.id in lost]
            waited = yield from shards.report_all("finish", rest, _finished_id, leases.finish)
            answers = {(item.id, item.fence): item for item in waited}
            ended = [answers.get((item.id, item.fence), item) for item in ended]
            if order is not None and (left := order.without(taken)) is not None:
                taken += yield from self._take(left, turn)  # a successor may be due now
        return ended, [row.job() for row in taken]

    def _take(self, order: TakeOrder, turn: int) -> Procedure[list[JobRow]]:
        if self._context.shards.number > 1:
            return (yield from take_by_shard(self._context.shards, order, turn=turn))
        return (yield from transact(partial(leases.take, order=order)))

    @call
    def look(self, queues: Sequence[str] = ("default",)) -> Procedure[list[Outlook]]:
        """What is due in some queues, and when the next job will be: one statement."""
        wanted = queue_names(queues)
        return self._context.shards.read("look", lambda sql: outlooks(sql, wanted))

    alook: Final = awaited(look)

    @call
    def take_limited(
        self,
        queue: str = "default",
        *,
        limit: int = 1,
        worker: str,
        lease: timedelta,
        unknown: Sequence[str] = (),
    ) -> Procedure[TakenUnderControl]:
        """Lease due jobs of a queue as its limits and its order allow, groups in turn.

        By priority, run_at and id, over all shards. Kinds in `unknown` are not taken.
        """
        order = take_order([queue], limit=limit, worker=worker, lease=lease, unknown=unknown)
        return transact(partial(limited_take, queue=queue, order=order, groups=self._groups))

    atake_limited: Final = awaited(take_limited)

    @call
    def retry(
        self,
        jobs: Sequence[Job | Delivery],
        *,
        after: timedelta | None = None,
        error: object = None,
    ) -> Procedure[list[Ended]]:
        """The deliveries failed: retry after the backoff (or `after`), or bury them."""
        return _end_alike(self._context.shards, Event.FAIL, jobs, after=after, error=error)

    aretry: Final = awaited(retry)

    @call
    def defer(self, jobs: Sequence[Job | Delivery], *, after: timedelta) -> Procedure[list[Ended]]:
        """Queue the jobs again after `after`, without charging an attempt."""
        return _end_alike(self._context.shards, Event.DEFER, jobs, after=after)

    adefer: Final = awaited(defer)

    @call
    def bury(
        self, jobs: Sequence[Job | Delivery], *, reason: str, error: object = None
    ) -> Procedure[list[Ended]]:
        """Move the jobs to the dead letters, even if attempts remain."""
        return _end_alike(self._context.shards, Event.BURY, jobs, reason=reason, error=error)

    abury: Final = awaited(bury)

    @call
    def hand_back(self, jobs: Sequence[Job | Delivery]) -> Procedure[list[Ended]]:
        """Return deliveries that have not started, without charging an attempt."""
        return _end_alike(self._context.shards, Event.HAND_BACK, jobs)

    ahand_back: Final = awaited(hand_back)

    @call
    def end(self, endings: Sequence[Ending]) -> Procedure[list[Ended]]:
        """End each delivery in its own way, in one transaction."""
        return _end_mixed(self._context.shards, endings)

    aend: Final = awaited(end)

    @call
    def heartbeat(
        self, jobs: Sequence[Job | Delivery], *, lease: timedelta
    ) -> Procedure[list[Heartbeat]]:
        """Extend leases; `Heartbeat.lost` is True for a lost one."""
        return _heartbeat(self._context.shards, jobs, lease)

    aheartbeat: Final = awaited(heartbeat)

    @call
    def rescue(self, *, limit: int | None = None) -> Procedure[Rescued]:
        """Retry or bury jobs whose lease is over; bury those that have expired.

        All of them, or about `limit`, for a caller that processes each of them.
        """
        return chores.rescue(self._context.shards, limit)

    arescue: Final = awaited(rescue)

    @call
    def prune(self) -> Procedure[Pruned]:
        """Remove ended jobs whose retention is over."""
        return chores.prune(self._context.shards)

    aprune: Final = awaited(prune)

    @call
    def sweep(self) -> Procedure[int]:
        """Remove claims whose retention is over; returns how many."""
        return chores.sweep(self._context.shards)

    asweep: Final = awaited(sweep)

    @call
    def tick(self) -> Procedure[Ticked]:
        """Enqueue the jobs of due ticks; returns when the next tick is due."""
        return self._ticker.tick()

    atick: Final = awaited(tick)

    @call
    def fold(self) -> Procedure[int]:
        """Add up the records of suppressed duplicates; returns how many."""
        return chores.fold(self._context.shards)

    afold: Final = awaited(fold)


def _finishes(
    jobs: Sequence[Job | Delivery], results: Mapping[str, Json] | None
) -> list[leases.Finish]:
    named = deliveries(jobs)
    stored = results_by_id(results, named)
    return [
        leases.Finish(
            delivery, stored.get(delivery.id), isinstance(job, Job) and job.retention is None
        )
        for job, delivery in zip(jobs, named, strict=True)
    ]


def _heartbeat(
    shards: Shards, jobs: Sequence[Job | Delivery], lease: timedelta
) -> Procedure[list[Heartbeat]]:
    named, micros = deliveries(jobs), span(lease, "lease")
    if not named:
        return []
    renew = partial(leases.heartbeat, lease=micros)
    return (yield from shards.report_all("heartbeat", named, attrgetter("id"), renew))


def _end_alike(
    shards: Shards,
    event: Event,
    jobs: Sequence[Job | Delivery],
    *,
    after: timedelta | None = None,
    reason: str | None = None,
    error: object = None,
) -> Procedure[list[Ended]]:
    """End all of them in the same way."""
    # Only a retry has a backoff to fall back on.
    delay = None if after is None and event is not Event.DEFER else span(after, "after")
    why = None if reason is None else text(reason, "reason", longest=REASON_BYTES)
    failure = encode_error(error)
    return _end(
        shards, [Ending(delivery, event, delay, why, failure) for delivery in deliveries(jobs)]
    )


def _end_mixed(shards: Shards, given: Sequence[Ending]) -> Procedure[list[Ended]]:
    """End each of them in its own way."""
    listed = checks.listed(given, "endings", "endings")
    known: dict[Delivery, Ending] = {}
    for item, ending in enumerate(listed):
        if not isinstance(ending, Ending):
            raise InvalidInput("endings", f"must hold endings, got {ending!r}", item=item)
        if ending.event not in ENDS:
            reason = f"cannot end a delivery by {ending.event!r}: a finish is a call of its own"
            raise InvalidInput("endings", reason, item=item)
        if ending.event is Event.DEFER and ending.after is None:
            raise InvalidInput("after", "must say when a deferred job comes back", item=item)
        if known.setdefault(ending.delivery, ending) != ending:
            raise InvalidInput("endings", "must end a delivery in one way", item=item)
    named = deliveries([ending.delivery for ending in listed])
    return _end(
        shards,
        [
            Ending(delivery, ending.event, ending.after, _reason(ending.reason), ending.error)
            for delivery, ending in zip(named, listed, strict=True)
        ],
    )


def _reason(reason: str | None) -> str | None:
    """A reason of a handler, made storable: it must not prevent the end of its delivery."""
    return None if reason is None else printable(reason, REASON_BYTES)


def _end(shards: Shards, given: Sequence[Ending]) -> Procedure[list[Ended]]:
    if not given:
        return []
    return (yield from shards.report_all("end", given, attrgetter("delivery.id"), endings.end))


async def finish_and_take(
    runtime: Runtime,
    shards: Shards,
    finishes: Sequence[Finish],
    order: TakeOrder | None,
    *,
    turn: int,
) -> tuple[Sequence[Ended | None], list[JobRow]]:
    """Complete deliveries and take jobs, each shard in its own transaction.

    None is for deliveries on a shard that fails: report them again later.
    """
    if shards.number == 1:
        return await runtime.store.atransact(
            partial(finish_then_take, finishes=finishes, order=order, turn=turn)
        )
    finish = partial(leases.finish, skip_locked=True)
    ended, _ = await runtime.arun(shards.report("finish", finishes, _finished_id, finish))
    if order is None:
        return ended, []
    return ended, await runtime.arun(take_by_shard(shards, order, turn=turn))


async def report(
    runtime: Runtime,
    shards: Shards,
    operation: Callable[[Sql, list[ReportT]], Operation[list[Ended]]],
    items: list[ReportT],
) -> Sequence[Ended | None]:
    """End deliveries, each shard in its own transaction; None as in `finish_and_take`."""
    if shards.number == 1:
        return await runtime.store.atransact(lambda sql: operation(sql, items))
    ended, _ = await runtime.arun(shards.report(operation.__name__, items, _finished_id, operation))
    return ended


def take_by_shard(shards: Shards, order: TakeOrder, *, turn: int) -> Procedure[list[JobRow]]:
    """Take from the shard whose turn it is, then from the next ones, each in a transaction.

    Afterwards the last of `order.tries` has a response, if any shard has answered.
    """
    taken: list[JobRow] = []
    lost: list[str] = []
    answered: list[str] = []
    failure: Exception | None = None
    number = shards.number
    for shard in shards.usable("take", [(turn + step) % number for step in range(number)]):
        left = order.without(taken)
        if left is None:
            break
        # Its own tries: those on another shard have had their response.
        visit = replace(left, tries=[])
        rows, error = yield from shards.visit(shard, "take", partial(_take_here, order=visit))
        if rows is None:
            failure = error
            lost += visit.tries
        else:
            taken += rows
            lost += visit.tries[:-1]
            answered = visit.tries[-1:]
    order.tries[:] = [*lost, *answered]
    if failure is not None and not answered:
        raise failure
    return leases.in_order(order, taken)


def _take_here(sql: Sql, *, order: TakeOrder) -> Operation[list[JobRow]]:
    yield from begin_take(sql, order)
    return (yield from leases.take(sql, order, shard=sql.visited[0]))


def finish_then_take(
    sql: Sql, *, finishes: Sequence[Finish], order: TakeOrder | None, turn: int
) -> Operation[tuple[list[Ended], list[JobRow]]]:
    """Both in one transaction; locked rows are skipped."""
    if order is None:
        return (yield from leases.finish(sql, finishes, skip_locked=True)), []
    yield from begin_take(sql, order)
    if not finishes:
        return [], (yield from leases.take_in_turn(sql, order, turn=turn))
    return (yield from leases.finish_and_take(sql, finishes, order, turn=turn))


def limited_take(
    sql: Sql, *, queue: str, order: TakeOrder, groups: dict[str, str]
) -> Operation[TakenUnderControl]:
    """A take from one queue with limits; groups in turn.

    `groups` has, by queue, the group with which the last take has ended.
    """
    yield from begin_take(sql, order)
    taken = yield from take_controlled(sql, order, queue, after=groups.get(queue, ""))
    if len(groups) >= REMEMBERED and queue not in groups:
        groups.clear()
    groups[queue] = taken.after
    return taken


def begin_take(sql: Sql, order: TakeOrder) -> Operation[None]:
    """Give a try of a take its id.

    Jobs of an earlier try, whose response was lost, are handed back before more are taken. That try
    may also be committed later: the worker searches again.
    """
    lost = list(order.tries)
    order.tries.append(str(uuid4()))
    if lost and sql.resends:
        yield from leases.return_taken(sql, lost)
