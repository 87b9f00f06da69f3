"""Acks that do not come in time: seen soon after, by every process, and nobody asks all the time.

When one can be late is known: not before the first of those that are waited for, and of those that
will be, not before the shortest time that any queue gives, or gave since. Nobody asks before.

The courier: a worker whose handler is HTTP, for every queue that has an endpoint.

async with Courier(onefold, PushSettings(allow=("10.0.0.0/8",))) as courier:
    ...

Taking, heartbeats, limits, holds, reports and the end are the worker's. Here is which queues there
are, and how many pushes of each are under way: a slow endpoint must not have all places.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import InvalidInput, OnefoldError
from onefold.model.timestamps import from_micros, span
from onefold.push.address import AddressPolicy
from onefold.push.deliver import Pushing, PushTarget, route_of
from onefold.push.endpoint_health import Breaker
from onefold.push.sender import Sender
from onefold.worker.settings import GRACE, WorkerSettings, worker_name
from onefold.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from onefold.app.context import Context
    from onefold.app.onefold import Onefold
    from onefold.model.queue import QueueConfiguration, ServedQueue
    from onefold.push.sender import Lookup


log: logging.Logger = logging.getLogger("onefold.push")


class Overdue:
    """Knows when to look, and has done what is to be done then."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[timedelta | None]],
        rescue: Callable[[], Awaitable[object]],
        *,
        shortest: Callable[[], timedelta | None],
        now: Callable[[], datetime],
    ) -> None:
        """`ask` tells when the next ack is late; `shortest` is what a queue gives at least."""
        self._ask = ask
        self._rescue = rescue
        self._shortest = shortest
        self._now = now
        self._looked_at: datetime | None = None
        self._late_at: datetime | None = None
        """Before then none can be, of those that were waited for at the last look and since."""

    async def run(self, every: timedelta) -> None:
        """See whether it is time every so often, for ever."""
        while True:
            await asyncio.sleep(every.total_seconds())
            try:
                await self.look()
            except OnefoldError as error:
                log.warning("Whether acks are late could not be looked at: %s", error)
            except Exception:
                log.exception("Whether acks are late is looked at again later.")

    async def look(self) -> None:
        """Nothing, unless an ack may be late."""
        if not self._is_time():
            return
        wait = await self._asked()
        if wait is not None and wait <= timedelta(0):
            await self._rescue()
            await self._asked()

    async def _asked(self) -> timedelta | None:
        began = self._now()
        wait = await self._ask()
        self._looked_at = began
        self._late_at = None if wait is None else began + wait
        self._heed(began)
        return wait

    def _is_time(self) -> bool:
        if self._looked_at is None:
            return True  # somebody who is gone may have waited for some
        self._heed(self._looked_at)
        return self._late_at is not None and self._late_at <= self._now()

    def _heed(self, looked_at: datetime) -> None:
        """What a queue gives now may be another time, or none, when it is over."""
        shortest = self._shortest()
        if shortest is not None:
            late_at = looked_at + shortest
            self._late_at = late_at if self._late_at is None else min(self._late_at, late_at)


SPREAD: Final = 2
"""A queue has no more pushes at once than half of the places that are free beside it: of endpoints
that die one after the other each has fewer, and others find a place."""
LEAST_SHARE: Final = 4
"""Pushes at once that a queue may have as long as nobody knows whether its endpoint answers."""
GONE: Final = "its endpoint answered 410 Gone"
POLL: Final = timedelta(seconds=5)


class PushSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a courier is told."""

    concurrency: int = 200
    """Pushes at once, in this process."""
    per_queue: int = 64
    """Of them, for one queue at most; fewer while others are busy, too."""
    connections: int = 64
    """To one endpoint, in this process."""
    allow: tuple[str, ...] = ()
    """Networks and hosts that are pushed to though they are not public."""
    refresh: timedelta = timedelta(seconds=1)
    """How long it may take until what other processes say of queues is seen."""
    lease: timedelta = timedelta(seconds=60)
    grace: timedelta = GRACE
    """How long a stop may take."""
    chores: bool = True
    """Whether it also rescues, prunes, sweeps and ticks."""
    name: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
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
        """Nothing runs yet. `lookup` stands in for the machine's own look-up of names."""
        self._onefold = onefold
        self._settings = PushSettings() if settings is None else settings
        self._policy = AddressPolicy(self._settings.allow)
        self._lookup = lookup
        self._queues: dict[str, int | None] = {}
        self._known: dict[str, ServedQueue] = {}
        self._answering: set[str] = set()
        """Queues whose endpoints have answered the last push."""
        self._breaker = Breaker(onefold.queues, self._now)
        self._told = asyncio.Event()
        self._pushing: Pushing
        self._worker: Worker
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()

    @property
    def _context(self) -> Context:
        return self._onefold.context

    def _now(self) -> datetime:
        return from_micros(self._context.now())

    def changed(self) -> None:
        """Queues are others now: look at once. Only in the courier's event loop."""
        self._told.set()

    async def __aenter__(self) -> Self:
        """Push in the background. What keeps it from beginning is raised here."""
        async with self._stack:
            sender = Sender(
                self._policy, connections=self._settings.connections, lookup=self._lookup
            )
            self._stack.push_async_callback(sender.close)
            self._pushing = Pushing(
                self._onefold.deliveries,
                sender,
                self._breaker,
                now=self._now,
                gone=self._stop,
                judged=self._judged,
            )
            await self._refresh()
            self._worker = Worker(self._context, self._pushing, self._worker_settings(), _nothing)
            await self._stack.enter_async_context(self._worker)
            self._stack.push_async_callback(self._rest)
            self._tasks.append(asyncio.create_task(self._keep_fresh()))
            if self._settings.chores:
                self._tasks.append(asyncio.create_task(self._see_to_acks()))
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop: what is under way may end within the grace, and the rest is handed back."""
        await self._stack.aclose()

    async def _rest(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _stop(self, queue: str, configuration: QueueConfiguration) -> None:
        """Pause a queue whose endpoint is gone, unless it has another one by now."""
        endpoint = configuration.endpoint
        assert endpoint is not None
        if await self._onefold.queues.astop(queue, endpoint=endpoint, why=GONE):
            log.warning(
                "The endpoint of the queue %r answered 410 Gone: the queue is paused.", queue
            )

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

    async def _see_to_acks(self) -> None:
        """The chores do it, too, but only so often."""
        overdue = Overdue(
            self._onefold.deliveries.anext_ack_timeout,
            self._worker.rescue,
            shortest=self._ack_timeout,
            now=self._now,
        )
        await overdue.run(self._settings.refresh)

    def _ack_timeout(self) -> timedelta | None:
        """The shortest that any queue has."""
        said = [queue.configuration for queue in self._known.values()]
        seconds = [each.ack_timeout for each in said if each.mode == "ack"]
        return timedelta(seconds=min(seconds)) if seconds else None

    # --- which queues there are -----------------------------------------------------------------

    async def _keep_fresh(self) -> None:
        while True:
            told = await self._pause()
            try:
                is_new = await self._refresh()
            except OnefoldError as error:
                log.warning("The queues to push could not be looked at: %s", error)
            except Exception:
                log.exception("The courier goes on with the queues that it knows.")
            else:
                if told or is_new:
                    self._worker.look()

    async def _pause(self) -> bool:
        """Until it is time to look again, or somebody says so: True then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.refresh.total_seconds()):
                await self._told.wait()
        told = self._told.is_set()
        self._told.clear()
        return told

    async def _refresh(self) -> bool:
        """Read which queues there are; True where some were not there before."""
        queues = await self._onefold.queues.apushed()
        found = {queue.queue: queue for queue in queues}
        self._breaker.learn(queues)
        self._pushing.routes = self._routes(found)
        is_new = not found.keys() <= self._known.keys()
        self._known = found
        self._share(found)
        return is_new

    def _routes(self, found: dict[str, ServedQueue]) -> dict[str, PushTarget]:
        """Read again only what has changed."""
        routes = dict[str, PushTarget]()
        for name, queue in found.items():
            before = self._pushing.routes.get(name)
            same = before is not None and before.configuration == queue.configuration
            routes[name] = before if same and before is not None else route_of(queue.configuration)
        return routes

    def _share(self, names: Collection[str]) -> None:
        """Say how many pushes each queue may have, if there is room for so many.

        In another order each time: a worker serves queues in order, and none is to be the last.
        """
        order = random.sample(list(names), len(names))
        self._answering.intersection_update(names)
        self._queues.clear()
        self._queues.update((name, self._share_of(name)) for name in order)

    def _share_of(self, queue: str) -> int:
        most = self._settings.per_queue
        return most if queue in self._answering else min(most, LEAST_SHARE)

    def _judged(self, queue: str, answers: bool) -> None:  # noqa: FBT001 - a callback
        """An endpoint has answered, or not: it may have more places, or fewer."""
        if answers is (queue in self._answering) or queue not in self._queues:
            return
        (self._answering.add if answers else self._answering.discard)(queue)
        self._queues[queue] = self._share_of(queue)


async def _nothing() -> None:
    """What the code says of queues is for the application's own workers to store."""
