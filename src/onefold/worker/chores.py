"""Maintenance: rescue, prune, sweep, fold, sample and tick, and the timers by which workers do it.

Each chore has an interval. The first worker that claims the interval does the chore; the claim ends
with the interval, so a worker that dies does not block it. Two at once would do no harm.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from onefold.errors import InvalidInput, OnefoldError
from onefold.model.event import DuplicatesSuppressed, JobsEnqueued, LeasesExpired
from onefold.model.ids import hash12
from onefold.model.schedule import Ticked
from onefold.model.statistics import Tally
from onefold.model.timestamps import MICROSECOND, from_micros, span
from onefold.operations import endings, maintenance, queues, schedules, statistics, workers
from onefold.runtime import Pause, Procedure, transact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onefold.app.context import Context
    from onefold.databases import Build
    from onefold.hooks import Hooks
    from onefold.model.schedule import Broken, Tick
    from onefold.operations.endings import Rescued, RescuedJob
    from onefold.operations.maintenance import Look, Pruned
    from onefold.operations.statement import Operation
    from onefold.worker.settings import WorkerSettings
    from onefold.worker.shards import Shards

T = TypeVar("T")

log: logging.Logger = logging.getLogger("onefold.worker")

BATCH: Final = 1_000
"""Jobs that a rescue moves in one transaction."""
SMALL_BATCH: Final = 500
"""Rows that a prune, fold or sweep changes in one transaction. Others wait for it, on SQLite all
writers."""
LONGEST_PAUSE: Final = 0.05
"""Seconds between two of these batches, at most: a prune must also finish on a busy database."""
LOOK: Final = timedelta(seconds=20)
"""Between two looks, at most: so late a new schedule of another process is noticed."""
MINUTE: Final = timedelta(minutes=1)
SAMPLE: Final = timedelta(seconds=30)
"""Often enough for one sample of the backlog in every minute."""
JITTER: Final = 0.2
"""Seconds after a tick; and the part by which the time between two looks varies."""
CLAIMED: Final = 0.9
"""The part of its interval for which a chore is claimed."""


class Chore(NamedTuple):
    """Maintenance that one worker does per interval."""

    name: str
    every: timedelta
    do: Callable[[], Procedure[object]]

    @property
    def claimed(self) -> timedelta:
        """How long a claim of it lasts: less than the interval, so that the next try succeeds."""
        return self.every * CLAIMED


class Chores:
    """The timers of one worker."""

    def __init__(
        self,
        context: Context,
        settings: WorkerSettings,
        on_buried: Callable[[RescuedJob], None],
    ) -> None:
        """`on_buried` is called with each job that a rescue has buried."""
        self._runtime = context.runtime
        self._shards = context.shards
        self._hooks: Hooks = context.hooks
        self._counts = context.counts
        self._ticker = Ticker(context.shards, context.hooks)
        self._stopped = asyncio.Event()
        self._on_buried = on_buried
        often = min(settings.lease * 2 / 3, LOOK)
        self._longest = often.total_seconds()
        self._not_before: dict[str, float] = {}
        """By chore: when to try it next."""
        self.chores: list[Chore] = [
            Chore("rescue", often, self._rescue),
            Chore("fold", MINUTE, partial(fold, context.shards)),
            Chore("prune", MINUTE, partial(prune, context.shards)),
            Chore("sweep", MINUTE, partial(sweep, context.shards)),
            Chore("sample", SAMPLE, partial(sample, context.shards)),
        ]

    async def run(self) -> None:
        """Look what is due, and do it, until stopped. A long chore does not delay others."""
        started = time.monotonic()
        for chore in self.chores:
            # Jittered: workers that start together must not do it together.
            wait = chore.claimed.total_seconds() * random.random()
            self._not_before[chore.name] = started + wait
        async with asyncio.TaskGroup() as group:
            while not self._stopped.is_set():
                wait = math.inf
                try:
                    look = await self._runtime.arun(self._shards.read("tick", maintenance.look))
                    for chore in self._due(look):
                        group.create_task(self._try(chore))
                    wait = await self._tick(look)
                except OnefoldError as error:
                    log.warning("Schedules and chores could not be read: %s", error)
                longest = self._longest * (1 + JITTER * random.random())
                await self._rest(min(longest, max(wait, 0.0) + JITTER * random.random()))

    async def _tick(self, look: Look) -> float:
        """Process due schedules; returns the seconds until the next one is due.

        Every worker does it: the claim of a tick prevents a second job.
        """
        if not look.ticks:
            return math.inf if look.next_at is None else (look.next_at - look.now) / 1_000_000
        ticked = await self._runtime.arun(self._ticker.tick())
        return math.inf if ticked.wait is None else ticked.wait.total_seconds()

    def _due(self, look: Look) -> list[Chore]:
        """The chores to try: not those that run, or were tried a short time ago."""
        now = time.monotonic()
        return [
            chore
            for chore in self.chores
            if chore.name in look.chores and self._not_before[chore.name] <= now
        ]

    async def _try(self, chore: Chore) -> None:
        self._not_before[chore.name] = math.inf
        try:
            await self.once(chore)
        except OnefoldError as error:
            log.warning("The chore %r was not done: %s", chore.name, error)
        self._not_before[chore.name] = time.monotonic() + chore.claimed.total_seconds()

    async def _rest(self, seconds: float) -> bool:
        """Wait for so many seconds; True if the worker stops meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        return self._stopped.is_set()

    def stop(self) -> None:
        """Start no more. A cancelled chore would cost a connection, and keep its claim."""
        self._stopped.set()

    async def once(self, chore: Chore) -> bool:
        """Do a chore unless its interval is claimed; True if it was done."""
        every = span(chore.claimed, "every")
        claimed = await self._runtime.arun(_claim(self._shards, chore.name, every))
        if claimed:
            await self._runtime.arun(chore.do())
        return claimed

    async def rescue(self) -> None:
        """Rescue all deliveries whose lease or ack timeout is over."""
        await self._runtime.arun(self._rescue())

    def _rescue(self) -> Procedure[None]:
        rescued = yield from rescue(self._shards)
        if not rescued.total:
            return
        late = rescued.unacknowledged
        if late.total:
            log.warning(
                "Pushed jobs were not acknowledged in time: %d are retried, %d buried.",
                late.requeued, late.buried,
            )  # fmt: skip
        if rescued.total > late.total:
            requeued, buried = rescued.requeued - late.requeued, rescued.buried - late.buried
            log.warning(
                "Rescued jobs whose lease expired: %d are retried, %d buried; %d jobs had expired.",
                requeued, buried, rescued.expired,
            )  # fmt: skip
            if self._hooks.listeners:
                self._hooks.tell(LeasesExpired(requeued + buried, buried))
        for job in rescued.jobs:
            self._counts.count(job.queue, "dead" if job.buried else "retried")
            if job.buried:
                self._on_buried(job)


def _claim(shards: Shards, chore: str, every: int) -> Procedure[bool]:
    """Claim a chore: on its shard, or on the next one that works."""
    home, number = hash12("chore", chore), shards.number
    failure: Exception | None = None
    for shard in shards.usable("chores", [(home + step) % number for step in range(number)]):
        build = partial(maintenance.begin_chore, name=chore, every=every)
        claimed, failure = yield from shards.visit(shard, "chores", build)
        if claimed is not None:
            return claimed
    if failure is not None:
        raise failure
    return False


def _batches(
    shards: Shards, operation: Callable[..., Operation[T]], moved: Callable[[T], int]
) -> Procedure[list[T]]:
    """Repeat an operation on every shard until a batch is not full, each in its own transaction."""

    def on_shard(shard: int) -> Procedure[list[T]]:
        results: list[T] = []
        while True:
            build = partial(operation, shard=shard, limit=SMALL_BATCH)
            result, pause = yield from _one_batch(build)
            results.append(result)
            if moved(result) < SMALL_BATCH:
                return results
            yield pause

    done = yield from shards.each("chores", on_shard)
    return [result for results in done for result in results]


def _one_batch(build: Build[T]) -> Procedure[tuple[T, Pause]]:
    """The result, and a pause as long as the batch took, so that others can write."""
    started = time.monotonic()
    result = yield from transact(build)
    return result, Pause(min(time.monotonic() - started, LONGEST_PAUSE))


def rescue(shards: Shards, limit: int | None = None) -> Procedure[Rescued]:
    """Requeue or bury jobs whose lease is over; bury those that have expired."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidInput("limit", f"must be a whole number from 1, got {limit!r}")
    size = BATCH if limit is None else min(limit, BATCH)
    done: list[Rescued] = []

    def on_shard(shard: int) -> Procedure[None]:
        while limit is None or sum(rescued.total for rescued in done) < limit:
            build = partial(endings.rescue, shard=shard, limit=size)
            rescued = yield from transact(build)
            done.append(rescued)
            if rescued.total < size:
                break

    yield from shards.each("rescue", on_shard)
    return endings.Rescued(
        sum(r.requeued for r in done),
        sum(r.buried for r in done),
        sum(r.expired for r in done),
        tuple(job for rescued in done for job in rescued.jobs),
    )


def prune(shards: Shards) -> Procedure[Pruned]:
    """Remove ended jobs whose retention is over, old statistics, and workers that were killed."""

    def on_shard(shard: int) -> Procedure[None]:
        yield from transact(partial(workers.prune, shard=shard))

    done = yield from _batches(shards, maintenance.prune, lambda pruned: pruned.total)
    yield from _batches(shards, statistics.prune, lambda deleted: deleted)
    yield from shards.each("chores", on_shard)
    return maintenance.Pruned(sum(p.deleted for p in done), sum(p.stripped for p in done))


def fold(shards: Shards) -> Procedure[int]:
    """Add up the notes of suppressed duplicates."""
    return sum((yield from _batches(shards, maintenance.fold_duplicates, lambda folded: folded)))


def sample(shards: Shards) -> Procedure[None]:
    """Add the number of due jobs of each queue to the statistics of this minute."""
    waiting: dict[str, int] = yield from shards.read("chores", queues.waiting)
    tallies: dict[tuple[int | None, str], Tally] = {
        (None, queue): Tally(backlog=number) for queue, number in waiting.items()
    }
    shard = random.randrange(shards.number)
    yield from transact(lambda sql: statistics.add(sql.only([shard]), tallies))


def sweep(shards: Shards) -> Procedure[int]:
    """Remove claims whose retention is over, and unused rates."""

    def on_shard(shard: int) -> Procedure[int]:
        deleted = 0
        start: int | None = 0
        while start is not None:
            build = partial(maintenance.sweep, shard=shard, limit=SMALL_BATCH, start=start)
            swept, pause = yield from _one_batch(build)
            deleted += swept.deleted
            start = swept.next
            if start is not None:
                yield pause
        return deleted

    deleted = sum((yield from shards.each("chores", on_shard)))
    yield from _batches(shards, queues.forget_rates, lambda deleted: deleted)
    return deleted


class Ticker:
    """Enqueues the jobs of due ticks. Several processes may do it at once: a tick gets one job."""

    def __init__(self, shards: Shards, hooks: Hooks) -> None:
        """`hooks` receives events for the jobs."""
        self._shards = shards
        self._hooks = hooks
        self._warned: set[Broken] = set()

    def tick(self) -> Procedure[Ticked]:
        """Process all due schedules."""
        look: Look = yield from self._shards.read("tick", maintenance.look)
        ticks: list[Tick] = []
        broken: list[Broken] = []

        def on_shard(shard: int) -> Procedure[None]:
            cursor: tuple[str, str] | None = ("", "") if shard in look.ticks else None
            while cursor is not None:
                build = partial(schedules.tick, shard=shard, cursor=cursor)
                looked = yield from transact(build)
                ticks.extend(looked.ticks)
                broken.extend(looked.broken)
                cursor = looked.cursor

        if look.ticks:
            yield from self._shards.each("tick", on_shard)
            look = yield from self._shards.read("tick", maintenance.look)
        self._warn(broken)
        self._tell(ticks)
        if look.next_at is None:
            return Ticked(tuple(ticks), broken=tuple(broken))
        wait = (look.next_at - look.now) * MICROSECOND
        return Ticked(tuple(ticks), from_micros(look.next_at), wait, tuple(broken))

    def _warn(self, broken: Sequence[Broken]) -> None:
        """Warn once per schedule. A newer process may be able to read it."""
        for each in broken:
            if each not in self._warned:
                self._warned.add(each)
                log.warning(
                    "The schedule %r cannot be read by this version and is skipped: %s",
                    each.schedule,
                    each.reason,
                )

    def _tell(self, ticks: Sequence[Tick]) -> None:
        hooks = self._hooks
        if not hooks.listeners:
            return
        counts = Counter(
            (
                DuplicatesSuppressed if tick.enqueued.duplicate else JobsEnqueued,
                tick.kind,
                tick.queue,
                tick.tenant,
            )
            for tick in ticks
        )
        for (event, kind, queue, tenant), count in counts.items():
            hooks.tell(event(kind, queue, count, tenant))
