"""The lookout: which queues may have something to take, without asking for it in vain.

A bell that names a queue is believed at once. Where it names none, or nobody rang for a while, one
question to the database tells of all queues: what is due, what is paused or limited, and when the
next job will be due.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from onefold.errors import DatabaseError
from onefold.model.delivery import TakeOrder
from onefold.model.moment import span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onefold.calls.engine import Engine
    from onefold.databases import Bell
    from onefold.model.job import Job
    from onefold.model.queue import Outlook
    from onefold.operations.queues import TakenUnderControl
    from onefold.worker.settings import WorkerSettings

SOON: Final = 0.02
LATE: Final = 5.0
UNHEARD: Final = 1.0
"""Seconds between looks where no bell can be heard."""
BLOCKED: Final = 0.5
"""Seconds until a queue at its limit is asked again: what frees it may be on another machine."""

log: logging.Logger = logging.getLogger("onefold.worker")


class Lookout:
    """What may be had, as far as this worker knows."""

    def __init__(
        self, engine: Engine, settings: WorkerSettings, bell: Bell, wake: Callable[[], None]
    ) -> None:
        """`wake` is called when there may be something to take."""
        self._engine = engine
        self._settings = settings
        self._bell = bell
        self._wake = wake
        self._lease = span(settings.lease, "lease")
        self._plain: set[str] = set(settings.queues)
        """Queues that may have jobs without limits or groups."""
        self._controlled: set[str] = set()
        """Queues that may have others."""
        self._known_controlled: set[str] = set()
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._next_look: float | None = None
        self._in_vain = 0

    def ring(self, queue: str | None) -> None:
        """Somebody has stored jobs, or done something."""
        if queue is None:
            self._look_in(0.0)
        elif queue in self._settings.queues:
            if queue in self._known_controlled:
                self._controlled.add(queue)
            self._plain.add(queue)
            self._in_vain = 0
            self._wake()

    def anything(self) -> None:
        """There may be anything anywhere."""
        self._plain.update(self._settings.queues)
        self._look_in(0.0)

    def order(
        self, room: int, limits: Mapping[str, int], unknown: tuple[str, ...]
    ) -> TakeOrder | None:
        """What to take; None where there seems to be nothing."""
        queues = {queue: most for queue, most in limits.items() if queue in self._plain}
        if not queues:
            return None
        return TakeOrder(queues, room, self._settings.name, self._lease, unknown)

    def taken(self, order: TakeOrder, taken: Sequence[Job]) -> None:
        """A queue that gave less than it was asked for has no more for now."""
        if len(taken) >= order.limit:
            self._in_vain = 0
            return
        self._in_vain = 0 if taken else self._in_vain + 1
        for queue, most in order.queues.items():
            if sum(job.queue == queue for job in taken) < most:
                self._plain.discard(queue)
        # What comes next, and when? Where a look promised more than there was, later and later.
        self._look_in(min(SOON * 2**self._in_vain, LATE))

    def controlled(self) -> list[str]:
        """Queues to be asked by themselves, each once."""
        asked, self._controlled = list(self._controlled), set()
        return asked

    def taken_controlled(self, queue: str, asked: int, taken: TakenUnderControl) -> None:
        """A queue at its limit is asked again later; one that gave all may have more."""
        if len(taken.jobs) >= asked:
            self._controlled.add(queue)
            self._wake()
            return
        wait = BLOCKED if taken.wait is None else min(taken.wait / 1_000_000, BLOCKED)
        self._look_in(max(wait, SOON) * (0.75 + random.random() / 2))

    def freed(self, queue: str) -> None:
        """A job of this queue has ended here: its limit may allow another."""
        if queue in self._known_controlled:
            self._controlled.add(queue)

    async def run(self) -> None:
        """Look when told to, and when nobody has for a while. Until cancelled."""
        while True:
            await self._pause()
            self._wanted.clear()
            self._next_look = None
            if self._plain:
                continue  # a take is about to tell more
            try:
                outlooks = await self._engine.alook(list(self._settings.queues))
            except DatabaseError as error:
                log.warning("Could not look for jobs: %s", error)
                self._look_in(UNHEARD)
            else:
                for outlook in outlooks:
                    self._consider(outlook)
                if self._plain or self._controlled:
                    self._wake()

    def _consider(self, outlook: Outlook) -> None:
        queue = outlook.queue
        by_itself = not outlook.paused and (outlook.controlled or outlook.due_grouped)
        (self._known_controlled.add if by_itself else self._known_controlled.discard)(queue)
        if outlook.paused:
            return
        if outlook.due_grouped or (outlook.due and outlook.controlled):
            self._controlled.add(queue)
        if outlook.due and not outlook.controlled:
            self._plain.add(queue)
        if outlook.next_at is not None:
            self._look_in(max(0.0, (outlook.next_at - outlook.now) / 1_000_000))

    def _look_in(self, seconds: float) -> None:
        """Look after so long, unless a look comes sooner."""
        at = asyncio.get_running_loop().time() + seconds
        if self._next_look is None or at < self._next_look:
            self._next_look = at
            self._wanted.set()

    async def _pause(self) -> None:
        """Until a look is due. Jittered: idle workers must not look in step."""
        loop = asyncio.get_running_loop()
        poll = self._settings.poll.total_seconds() if self._bell.is_heard else UNHEARD
        latest = loop.time() + poll * (0.75 + random.random() / 2)
        while True:
            self._wanted.clear()
            due = latest if self._next_look is None else min(latest, self._next_look)
            left = due - loop.time()
            if left <= 0:
                return
            # Not wait_for: in Python 3.11 it may swallow a cancellation.
            try:
                async with asyncio.timeout(left):
                    await self._wanted.wait()
            except TimeoutError:
                return
