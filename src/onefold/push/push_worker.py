"""The push worker: a worker whose handler sends jobs over HTTP, for all queues with an endpoint.

`async with PushWorker(onefold, PushSettings(allow=("10.0.0.0/8",)))` runs it. This module reads the
queues, limits the pushes of each queue so that a slow endpoint cannot use all places, and notices
late acks. Everything else is done by the worker.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import InvalidInput, OnefoldError
from onefold.model.timestamps import from_micros, span
from onefold.operations.queues import CHANGED
from onefold.push.address import AddressPolicy
from onefold.push.deliver import PushHandler, PushTarget, target_of
from onefold.push.endpoint_health import CircuitBreaker
from onefold.push.sender import PushSender
from onefold.worker.settings import GRACE, LEASE, WorkerSettings, worker_name
from onefold.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from onefold.app.onefold import Onefold
    from onefold.model.queue import Queue
    from onefold.push.sender import Lookup


log: logging.Logger = logging.getLogger("onefold.push")


class AckTimeouts:
    """Rescues jobs soon after their ack is late, with few queries.

    No ack can be late before the first deadline that the last query has found, or before the
    shortest ack timeout of all queues has passed since then.
    """

    def __init__(
        self,
        next_timeout: Callable[[], Awaitable[timedelta | None]],
        rescue: Callable[[], Awaitable[object]],
        *,
        shortest: Callable[[], timedelta | None],
        now: Callable[[], datetime],
    ) -> None:
        """`next_timeout` reads when the next ack is late; `shortest` is the shortest timeout."""
        self._next_timeout = next_timeout
        self._rescue = rescue
        self._shortest = shortest
        self._now = now
        self._checked_at: datetime | None = None
        self._late_at: datetime | None = None
        """The earliest time at which an ack can be late."""

    async def run(self, every: timedelta) -> None:
        """Check at each interval, without end."""
        while True:
            await asyncio.sleep(every.total_seconds())
            try:
                await self.check()
            except OnefoldError as error:
                log.warning("Late acks could not be checked: %s", error)
            except Exception:
                log.exception("Late acks could not be checked; trying again later.")

    async def check(self) -> None:
        """Rescue jobs if an ack is late. Without a query if none can be."""
        if not self._is_time():
            return
        wait = await self._read()
        if wait is not None and wait <= timedelta(0):
            await self._rescue()
            await self._read()

    async def _read(self) -> timedelta | None:
        began = self._now()
        wait = await self._next_timeout()
        self._checked_at = began
        self._late_at = None if wait is None else began + wait
        self._limit(began)
        return wait

    def _is_time(self) -> bool:
        if self._checked_at is None:
            return True  # a process that has ended may have left some
        self._limit(self._checked_at)
        return self._late_at is not None and self._late_at <= self._now()

    def _limit(self, checked_at: datetime) -> None:
        """Include jobs that were pushed since then. Settings may change before their timeout."""
        shortest = self._shortest()
        if shortest is not None:
            late_at = checked_at + shortest
            self._late_at = late_at if self._late_at is None else min(self._late_at, late_at)


SPREAD: Final = 2
"""A queue has at most half of the free places: if several endpoints hang one after the other, each
gets fewer, and other queues still find a place."""
UNPROVEN_LIMIT: Final = 4
"""Pushes at once for a queue whose endpoint is new or did not answer the last push."""
POLL: Final = timedelta(seconds=5)
AGAIN: Final = 0.1
"""Seconds until a task that has not ended is cancelled again."""
REREAD: Final = 120.0
"""Seconds until the queues are read without a notification, for changes by hand."""


class PushSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a push worker."""

    concurrency: int = 200
    """Pushes at once in this process."""
    per_queue: int = 64
    """The maximum for one queue; fewer while other queues are busy."""
    connections: int = 64
    """Connections to one endpoint in this process."""
    allow: tuple[str, ...] = ()
    """Networks and hosts that are allowed although they are not public."""
    refresh: timedelta = timedelta(seconds=1)
    """After which time changes of queues by other processes are read."""
    lease: timedelta = LEASE
    grace: timedelta = GRACE
    """How long stopping may take."""
    chores: bool = True
    """Whether it also does maintenance: rescue, prune, sweep, and ticks of schedules."""
    name: str | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        for field in ("concurrency", "per_queue", "connections"):
            if getattr(self, field) < 1:
                raise InvalidInput(field, f"must be at least 1, got {getattr(self, field)!r}")
        for field in ("refresh", "lease", "grace"):
            span(getattr(self, field), field, least=timedelta(milliseconds=1))


class PushWorker:
    """Pushes jobs until it is stopped. For one run, in one event loop."""

    def __init__(
        self,
        onefold: Onefold,
        settings: PushSettings | None = None,
        *,
        lookup: Lookup | None = None,
    ) -> None:
        """Starts nothing. `lookup` replaces the resolver of the machine."""
        self._onefold = onefold
        self._context = onefold.context
        self._settings = PushSettings() if settings is None else settings
        self._policy = AddressPolicy(self._settings.allow)
        self._lookup = lookup
        self._queues: dict[str, int | None] = {}
        self._known: dict[str, Queue] = {}
        self._answering: set[str] = set()
        """Queues whose endpoint answered the last push."""
        self._breaker = CircuitBreaker(onefold.queues, self._now)
        self._changed = asyncio.Event()
        self._is_stale = True
        """Another process may have changed queues since they were read."""
        self._read_at = 0.0
        self._handler: PushHandler
        self._worker: Worker
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()

    def _now(self) -> datetime:
        return from_micros(self._context.now())

    def changed(self) -> None:
        """Read the queues now: they have changed. Call it in the worker's event loop."""
        self._changed.set()

    async def __aenter__(self) -> Self:
        """Run in the background. An error at the start is raised here."""
        async with self._stack:
            sender = PushSender(
                self._policy, connections=self._settings.connections, lookup=self._lookup
            )
            self._stack.push_async_callback(sender.close)
            self._handler = PushHandler(
                self._onefold.deliveries,
                sender,
                self._breaker,
                now=self._now,
                answered=self._endpoint_answered,
            )
            await self._refresh()
            self._worker = Worker(
                self._context, self._handler, self._worker_settings(), notified=self._notified
            )
            await self._stack.enter_async_context(self._worker)
            self._stack.push_async_callback(self._cancel_tasks)
            self._tasks.append(asyncio.create_task(self._refresh_queues()))
            if self._settings.chores:
                self._tasks.append(asyncio.create_task(self._check_acks()))
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop: running pushes may end within the grace; other jobs are handed back."""
        await self._stack.aclose()

    async def _cancel_tasks(self) -> None:
        # Repeatedly: before Python 3.12 `asyncio.wait_for` may swallow a cancellation, and the pool
        # of psycopg waits for a connection with it.
        waiting = set(self._tasks)
        while waiting:
            for task in waiting:
                task.cancel()
            _, waiting = await asyncio.wait(waiting, timeout=AGAIN)

    def _worker_settings(self) -> WorkerSettings:
        settings = self._settings
        return WorkerSettings(
            queues=self._queues,
            concurrency=settings.concurrency,
            prefetch=0,
            lease=settings.lease,
            heartbeat=settings.lease / 4,
            poll=POLL,
            grace=settings.grace,
            name=worker_name() if settings.name is None else settings.name,
            chores=settings.chores,
            spread=SPREAD,
        )

    async def _check_acks(self) -> None:
        """The chores rescue these jobs as well, but at long intervals."""
        timeouts = AckTimeouts(
            self._onefold.deliveries.anext_ack_timeout,
            self._worker.rescue,
            shortest=self._ack_timeout,
            now=self._now,
        )
        await timeouts.run(self._settings.refresh)

    def _ack_timeout(self) -> timedelta | None:
        """The shortest ack timeout of all queues."""
        queues = [queue for queue in self._known.values() if queue.mode == "ack"]
        return min((queue.ack_timeout for queue in queues), default=None)

    # --- queues ---------------------------------------------------------------------------------

    async def _refresh_queues(self) -> None:
        while True:
            changed = await self._pause()
            if not changed and self._is_current():
                continue
            try:
                is_new = await self._refresh()
            except OnefoldError as error:
                log.warning("The queues could not be read: %s", error)
            except Exception:
                log.exception("The push worker continues with the queues that it knows.")
            else:
                if changed or is_new:
                    self._worker.look()

    def _notified(self, queue: str | None) -> None:
        """Read the queues at the next interval; None if notifications may have been missed."""
        self._is_stale = self._is_stale or queue is None or queue == CHANGED

    def _is_current(self) -> bool:
        """Whether the queues can only have changed by hand. Otherwise read them at each interval.

        Only one database sends its notifications to all: not the nodes of Citus, and not SQLite.
        """
        is_notified = self._worker.is_notified and self._context.database.sql.reads_shards_at_once
        return is_notified and not self._is_stale and time.monotonic() - self._read_at < REREAD

    async def _pause(self) -> bool:
        """Wait until the next refresh; True if `changed` was called meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.refresh.total_seconds()):
                await self._changed.wait()
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    async def _refresh(self) -> bool:
        """Read the queues; True if there are new ones."""
        self._is_stale, self._read_at = False, time.monotonic()
        try:
            queues = await self._onefold.queues.apushed()
        except BaseException:
            self._is_stale = True
            raise
        found = {queue.full_name: queue for queue in queues}
        shards = self._context.shards
        if len(shards.usable("queues")) < shards.number:
            # The settings of some queues cannot be read now. Their jobs are also on other shards.
            found = self._known | found
            self._is_stale = True
        self._breaker.update(list(found.values()))
        self._handler.targets = self._targets(found)
        is_new = not found.keys() <= self._known.keys()
        self._known = found
        self._set_limits(found)
        return is_new

    def _targets(self, found: dict[str, Queue]) -> dict[str, PushTarget]:
        """Parse only the settings that have changed."""
        targets: dict[str, PushTarget] = {}
        for name, queue in found.items():
            target, settings = self._handler.targets.get(name), queue.settings()
            if target is None or target.settings != settings:
                target = target_of(settings)
            targets[name] = target
        return targets

    def _set_limits(self, names: Collection[str]) -> None:
        """Set the maximum of each queue.

        In random order: a worker serves queues in order, and none should always be the last.
        """
        order = random.sample(list(names), len(names))
        self._answering.intersection_update(names)
        self._queues.clear()
        self._queues.update((name, self._limit_of(name)) for name in order)

    def _limit_of(self, queue: str) -> int:
        most = self._settings.per_queue
        return most if queue in self._answering else min(most, UNPROVEN_LIMIT)

    def _endpoint_answered(self, queue: str, answers: bool) -> None:  # noqa: FBT001 - a callback
        """Give a queue more places after a response, and fewer without one."""
        if answers is (queue in self._answering) or queue not in self._queues:
            return
        (self._answering.add if answers else self._answering.discard)(queue)
        self._queues[queue] = self._limit_of(queue)
