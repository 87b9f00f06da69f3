"""Chores: rescue, prune, sweep, fold. Any worker may do them, and one at a time does.

A claim for the length of the interval says who: an efficiency, not a promise. Two at once would do
no harm, but nobody at all would: a claim whose worker died does not outlast the interval either.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from onefold.errors import OnefoldError
from onefold.model.event import LeasesExpired
from onefold.model.timestamps import span
from onefold.operations import maintenance

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from onefold.calls.engine import Engine
    from onefold.calls.hooks import Hooks
    from onefold.calls.procedure import Conductor
    from onefold.operations.endings import RescuedJob
    from onefold.worker.settings import WorkerSettings

log: logging.Logger = logging.getLogger("onefold.worker")

TICK: Final = 15.0
"""Seconds after which schedules that somebody made meanwhile are seen."""
JITTER: Final = 0.2
SHARE: Final = 0.9
"""Of its interval, for which a chore belongs to whoever has begun it."""


class Chore(NamedTuple):
    """Something that is done every so often, by somebody."""

    name: str
    every: timedelta
    do: Callable[[], Awaitable[object]]


class Chores:
    """The round of one worker."""

    def __init__(self, conductor: Conductor, engine: Engine, settings: WorkerSettings) -> None:
        """Nothing is due yet."""
        self._conductor = conductor
        self._engine = engine
        self._hooks: Hooks = conductor.hooks
        self._stopped = asyncio.Event()
        self.buried: Callable[[RescuedJob], None] = lambda _: None
        """Told of each job that a rescue has buried."""
        rescue_every = min(settings.lease / 4, timedelta(seconds=15))
        self.chores: list[Chore] = [
            Chore("rescue", rescue_every, self.rescue),
            Chore("fold", timedelta(seconds=60), engine.afold),
            Chore("prune", timedelta(seconds=60), engine.aprune),
            Chore("sweep", timedelta(seconds=60), engine.asweep),
        ]

    async def run(self) -> None:
        """Until stopped."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick())
            for chore in self.chores:
                group.create_task(self._repeat(chore))

    async def _tick(self) -> None:
        """Every worker looks when a tick is due, and the tick's claim says whose job it is."""
        while not self._stopped.is_set():
            try:
                ticked = await self._engine.atick()
            except OnefoldError as error:
                log.warning("Schedules could not be looked at: %s", error)
                pause = TICK
            else:
                pause = TICK if ticked.wait is None else min(TICK, ticked.wait.total_seconds())
            await self._rest(max(pause, 0.0) + random.random() * JITTER)

    async def _repeat(self, chore: Chore) -> None:
        # Jittered, the first time too: workers that start together must not chore together.
        while not await self._rest(chore.every.total_seconds() * (0.5 + random.random())):
            try:
                await self.once(chore)
            except OnefoldError as error:
                log.warning("The chore %r was not done: %s", chore.name, error)

    async def _rest(self, seconds: float) -> bool:
        """Until so many seconds have passed, or there is an end of it: True then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        return self._stopped.is_set()

    def stop(self) -> None:
        """Begin no more: a chore that is cut short would cost a connection, and keep its claim."""
        self._stopped.set()

    async def once(self, chore: Chore) -> bool:
        """Do it, unless somebody has done it within its interval; True where it was done."""
        every = span(chore.every * SHARE, "every")
        ours: bool = await self._conductor.database.atransact(
            lambda sql: maintenance.begin_chore(sql, chore.name, every=every)
        )
        if ours:
            await chore.do()
        return ours

    async def rescue(self) -> None:
        """See to all deliveries whose time is over."""
        rescued = await self._engine.arescue()
        if not rescued.total:
            return
        silent = rescued.unacknowledged
        if silent.total:
            log.warning(
                "No ack came in time for jobs that were pushed: %d to run again, %d buried.",
                silent.requeued, silent.buried,
            )  # fmt: skip
        if rescued.total > silent.total:
            self._tell(
                rescued.requeued - silent.requeued, rescued.buried - silent.buried, rescued.expired
            )
        for job in rescued.jobs:
            if job.buried:
                self.buried(job)

    def _tell(self, requeued: int, buried: int, expired: int) -> None:
        log.warning(
            "Rescued jobs of workers that vanished: %d to run again, %d buried; %d had expired.",
            requeued, buried, expired,
        )  # fmt: skip
        if self._hooks.wanted:
            self._hooks.tell(LeasesExpired(requeued + buried, buried))
