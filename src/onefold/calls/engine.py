"""The engine's delivery calls, plural and fenced: what a worker is made of."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from onefold.calls.controlled import ControlledCalls
from onefold.calls.endings import end_alike, end_mixed
from onefold.calls.flights import finish_then_take
from onefold.calls.gates import GateCalls
from onefold.calls.procedure import Conductor, Pause, Procedure, Transaction
from onefold.calls.schedules import Ticker
from onefold.calls.turns import Turns
from onefold.errors import InvalidInput
from onefold.model.delivery import (
    Delivery,
    Ended,
    Heartbeat,
    TakeOrder,
    deliveries,
    results_by_id,
    take_order,
)
from onefold.model.lifecycle import Event
from onefold.model.timestamps import span
from onefold.operations import deliveries as leases
from onefold.operations import endings, maintenance, queues

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from onefold.databases import Build
    from onefold.model.job import Job, Json
    from onefold.model.schedule import Ticked
    from onefold.operations.deliveries import Finish
    from onefold.operations.endings import Ending, Rescued
    from onefold.operations.maintenance import Pruned
    from onefold.operations.statement import Operation, Sql

T = TypeVar("T")

BATCH: Final = 1_000
"""Jobs that a rescue moves in one transaction."""
SMALL_BATCH: Final = 500
"""Rows that a prune, a fold or a sweep touches in one transaction: others wait for it, on SQLite
all that write."""
LONGEST_PAUSE: Final = 0.05
"""Seconds between two of these batches: a busy database must not keep a prune from its work."""


class Engine(ControlledCalls, GateCalls):
    """Take jobs and say how their deliveries ended. Tenants share it: a job says whose it is."""

    def __init__(self, conductor: Conductor) -> None:
        """On the database of `conductor`."""
        super().__init__(conductor)
        self._turns = Turns()
        self._ticker = Ticker(conductor)

    def take(
        self,
        queues: Sequence[str] | Mapping[str, int] = ("default",),
        *,
        limit: int = 1,
        worker: str,
        lease: timedelta,
    ) -> list[Job]:
        """Lease due jobs: the queues in order, each by priority, run_at and id.

        The order is strict within a shard; which shard gives first goes round from take to take.
        """
        order = take_order(queues, limit=limit, worker=worker, lease=lease)
        return self._conductor.run(self._finish_and_take([], order))[1]

    async def atake(
        self,
        queues: Sequence[str] | Mapping[str, int] = ("default",),
        *,
        limit: int = 1,
        worker: str,
        lease: timedelta,
    ) -> list[Job]:
        """`take`, awaited."""
        order = take_order(queues, limit=limit, worker=worker, lease=lease)
        return (await self._conductor.arun(self._finish_and_take([], order)))[1]

    def finish(
        self, jobs: Sequence[Job | Delivery], *, results: Mapping[str, Json] | None = None
    ) -> list[Ended]:
        """Complete deliveries, with their results by job id."""
        return self._conductor.run(self._finish_and_take(_finishes(jobs, results)))[0]

    async def afinish(
        self, jobs: Sequence[Job | Delivery], *, results: Mapping[str, Json] | None = None
    ) -> list[Ended]:
        """`finish`, awaited."""
        return (await self._conductor.arun(self._finish_and_take(_finishes(jobs, results))))[0]

    def finish_and_take(
        self,
        jobs: Sequence[Job | Delivery],
        queues: Sequence[str] | Mapping[str, int] = ("default",),
        *,
        limit: int = 1,
        worker: str,
        lease: timedelta,
        results: Mapping[str, Json] | None = None,
    ) -> tuple[list[Ended], list[Job]]:
        """Complete the last deliveries and take the next jobs, in one transaction."""
        order = take_order(queues, limit=limit, worker=worker, lease=lease)
        return self._conductor.run(self._finish_and_take(_finishes(jobs, results), order))

    async def afinish_and_take(
        self,
        jobs: Sequence[Job | Delivery],
        queues: Sequence[str] | Mapping[str, int] = ("default",),
        *,
        limit: int = 1,
        worker: str,
        lease: timedelta,
        results: Mapping[str, Json] | None = None,
    ) -> tuple[list[Ended], list[Job]]:
        """`finish_and_take`, awaited."""
        order = take_order(queues, limit=limit, worker=worker, lease=lease)
        return await self._conductor.arun(self._finish_and_take(_finishes(jobs, results), order))

    def _finish_and_take(
        self, finishes: Sequence[Finish], order: TakeOrder | None = None
    ) -> Procedure[tuple[list[Ended], list[Job]]]:
        """Rows that somebody has locked are passed over at first, and waited for at the end."""
        ended: list[Ended]
        taken: list[Job]
        # Only a take has a turn: with one for the finish too, every other shard would be passed by.
        turn = 0 if order is None else self._turns.next(order.queues)
        ended, taken = yield Transaction(finish_then_take(finishes, order, turn))
        alive = {"running", "queued"}
        lost = {item.id for item in ended if item.status == "lost" and item.state in alive}
        if lost:
            rest = [finish for finish in finishes if finish.delivery.id in lost]
            waited: list[Ended] = yield Transaction(lambda sql: leases.finish(sql, rest))
            verdicts = {(item.id, item.fence): item for item in waited}
            ended = [verdicts.get((item.id, item.fence), item) for item in ended]
        return ended, taken

    def retry(
        self,
        jobs: Sequence[Job | Delivery],
        *,
        after: timedelta | None = None,
        error: object = None,
    ) -> list[Ended]:
        """The deliveries failed: queue them again by their backoff (or `after`), or bury them."""
        return self._conductor.run(end_alike(Event.FAIL, jobs, after=after, error=error))

    async def aretry(
        self,
        jobs: Sequence[Job | Delivery],
        *,
        after: timedelta | None = None,
        error: object = None,
    ) -> list[Ended]:
        """`retry`, awaited."""
        return await self._conductor.arun(end_alike(Event.FAIL, jobs, after=after, error=error))

    def defer(self, jobs: Sequence[Job | Delivery], *, after: timedelta) -> list[Ended]:
        """Not now: queue them again after `after`; no attempt is burned."""
        return self._conductor.run(end_alike(Event.DEFER, jobs, after=after))

    async def adefer(self, jobs: Sequence[Job | Delivery], *, after: timedelta) -> list[Ended]:
        """`defer`, awaited."""
        return await self._conductor.arun(end_alike(Event.DEFER, jobs, after=after))

    def bury(
        self, jobs: Sequence[Job | Delivery], *, reason: str, error: object = None
    ) -> list[Ended]:
        """To the dead letters, whatever attempts remain."""
        return self._conductor.run(end_alike(Event.BURY, jobs, reason=reason, error=error))

    async def abury(
        self, jobs: Sequence[Job | Delivery], *, reason: str, error: object = None
    ) -> list[Ended]:
        """`bury`, awaited."""
        return await self._conductor.arun(end_alike(Event.BURY, jobs, reason=reason, error=error))

    def hand_back(self, jobs: Sequence[Job | Delivery]) -> list[Ended]:
        """Give unstarted deliveries back at once; no attempt is burned."""
        return self._conductor.run(end_alike(Event.HAND_BACK, jobs))

    async def ahand_back(self, jobs: Sequence[Job | Delivery]) -> list[Ended]:
        """`hand_back`, awaited."""
        return await self._conductor.arun(end_alike(Event.HAND_BACK, jobs))

    def end(self, endings: Sequence[Ending]) -> list[Ended]:
        """Say a word about each delivery, whichever it is, in one transaction."""
        return self._conductor.run(end_mixed(endings))

    async def aend(self, endings: Sequence[Ending]) -> list[Ended]:
        """`end`, awaited."""
        return await self._conductor.arun(end_mixed(endings))

    def heartbeat(self, jobs: Sequence[Job | Delivery], *, lease: timedelta) -> list[Heartbeat]:
        """Extend leases; a lost one says so."""
        return self._conductor.run(_heartbeat(jobs, lease))

    async def aheartbeat(
        self, jobs: Sequence[Job | Delivery], *, lease: timedelta
    ) -> list[Heartbeat]:
        """`heartbeat`, awaited."""
        return await self._conductor.arun(_heartbeat(jobs, lease))

    def rescue(self, *, limit: int | None = None) -> Rescued:
        """Requeue or bury jobs whose lease is over; bury those that have expired.

        All of them, or about `limit`: whoever does something about each is then told of few.
        """
        return self._conductor.run(_rescue(limit))

    async def arescue(self, *, limit: int | None = None) -> Rescued:
        """`rescue`, awaited."""
        return await self._conductor.arun(_rescue(limit))

    def prune(self) -> Pruned:
        """Remove finished jobs that have been kept long enough."""
        return self._conductor.run(_prune())

    async def aprune(self) -> Pruned:
        """`prune`, awaited."""
        return await self._conductor.arun(_prune())

    def sweep(self) -> int:
        """Forget claims whose time is over; answers how many."""
        return self._conductor.run(_sweep())

    async def asweep(self) -> int:
        """`sweep`, awaited."""
        return await self._conductor.arun(_sweep())

    def tick(self) -> Ticked:
        """Give each tick of a schedule that is due its job; says when to come again."""
        return self._conductor.run(self._ticker.tick())

    async def atick(self) -> Ticked:
        """`tick`, awaited."""
        return await self._conductor.arun(self._ticker.tick())

    def fold(self) -> int:
        """Fold the notes of suppressed duplicates; answers how many."""
        return self._conductor.run(_fold())

    async def afold(self) -> int:
        """`fold`, awaited."""
        return await self._conductor.arun(_fold())


def _finishes(
    jobs: Sequence[Job | Delivery], results: Mapping[str, Json] | None
) -> list[leases.Finish]:
    named = deliveries(jobs)
    stored = results_by_id(results, named)
    return [leases.Finish(delivery, stored.get(delivery.id)) for delivery in named]


def _heartbeat(jobs: Sequence[Job | Delivery], lease: timedelta) -> Procedure[list[Heartbeat]]:
    named, micros = deliveries(jobs), span(lease, "lease")
    if not named:
        return []
    beats: list[Heartbeat] = yield Transaction(
        lambda sql: leases.heartbeat(sql, named, lease=micros)
    )
    return beats


def _shards() -> Procedure[range]:
    """How many shards there are is known once the database has been asked for anything."""

    def build(sql: Sql) -> Operation[range]:
        yield from ()
        return range(sql.shards)

    shards: range = yield Transaction(build, write=False)
    return shards


Batch: TypeAlias = "Callable[[Sql, int], Operation[T]]"
"""One batch of a chore, on one shard."""


def _batches(batch: Batch[T], moved: Callable[[T], int]) -> Procedure[list[T]]:
    """A chore on every shard, a batch a transaction, until a batch is not full."""
    results: list[T] = []
    for shard in (yield from _shards()):
        while True:
            result, pause = yield from _one_batch(partial(_on_shard, batch, shard))
            results.append(result)
            if moved(result) < SMALL_BATCH:
                break
            yield pause
    return results


def _one_batch(build: Build[T]) -> Procedure[tuple[T, Pause]]:
    """The result, and the pause before the next: as long as this one took is for others' work."""
    started = time.monotonic()
    result: T = yield Transaction(build)
    return result, Pause(min(time.monotonic() - started, LONGEST_PAUSE))


def _on_shard(batch: Batch[T], shard: int, sql: Sql) -> Operation[T]:
    return batch(sql, shard)


def _rescue(limit: int | None) -> Procedure[Rescued]:
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidInput("limit", f"must be a whole number from 1, got {limit!r}")
    size = BATCH if limit is None else min(limit, BATCH)
    done: list[Rescued] = []
    for shard in (yield from _shards()):
        while limit is None or sum(rescued.total for rescued in done) < limit:
            build = partial(endings.rescue, shard=shard, limit=size)
            rescued: Rescued = yield Transaction(build)
            done.append(rescued)
            if rescued.total < size:
                break
    return endings.Rescued(
        sum(r.requeued for r in done),
        sum(r.buried for r in done),
        sum(r.expired for r in done),
        tuple(job for rescued in done for job in rescued.jobs),
    )


def _prune() -> Procedure[Pruned]:
    def batch(sql: Sql, shard: int) -> Operation[Pruned]:
        return maintenance.prune(sql, shard=shard, limit=SMALL_BATCH)

    done = yield from _batches(batch, lambda pruned: pruned.total)
    return maintenance.Pruned(sum(p.deleted for p in done), sum(p.stripped for p in done))


def _fold() -> Procedure[int]:
    def batch(sql: Sql, shard: int) -> Operation[int]:
        return maintenance.fold_duplicates(sql, shard=shard, limit=SMALL_BATCH)

    return sum((yield from _batches(batch, lambda folded: folded)))


def _sweep() -> Procedure[int]:
    deleted = 0
    for shard in (yield from _shards()):
        start: int | None = 0
        while start is not None:
            swept, pause = yield from _one_batch(_sweep_batch(shard, start))
            deleted += swept.deleted
            start = swept.next
            if start is not None:
                yield pause
    yield from _batches(_forget_rates, lambda forgotten: forgotten)
    return deleted


def _forget_rates(sql: Sql, shard: int) -> Operation[int]:
    return queues.forget_rates(sql, shard=shard, limit=SMALL_BATCH)


def _sweep_batch(shard: int, start: int) -> Build[maintenance.Swept]:
    return lambda sql: maintenance.sweep(sql, shard=shard, limit=SMALL_BATCH, start=start)
