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
    from collections.abc import Callable, Collection, Mapping, Sequence

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
BUSY: Final = 0.25
"""Seconds between looks while there is enough to take: other queues may have something, too."""
DOUBLINGS: Final = 8
"""How often a pause is doubled where a look promised more than there was."""

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
        self._controlled: dict[str, None] = {}
        """Queues that may have others, in the order in which they are asked."""
        self._known_controlled: set[str] = set()
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._next_look: float | None = None
        self._last_look = -BUSY
        self._in_vain = 0
        self._stopped = False

    def ring(self, queue: str | None) -> None:
        """Somebody has stored jobs, or done something."""
        if queue is None:
            self._look_in(0.0)
        elif queue in self._settings.queues:
            if queue in self._known_controlled:
                self._controlled[queue] = None
            self._plain.add(queue)
            self._in_vain = 0
            self._wake()

    def anything(self) -> None:
        """There may be anything anywhere; queues may have come or gone."""
        self._plain = set(self._settings.queues)
        known = (*self._controlled, *self._known_controlled)
        self._controlled = {queue: None for queue in known if queue in self._plain}
        self._in_vain = 0
        self._look_in(0.0)
        self._wake()

    @property
    def plain(self) -> Collection[str]:
        """Queues that may have jobs without limits or groups, as far as is known."""
        return self._plain

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
            self._look_in(BUSY)
            return
        self._in_vain = 0 if taken else self._in_vain + 1
        for queue, most in order.queues.items():
            if sum(job.queue == queue for job in taken) < most:
                self._plain.discard(queue)
        # What comes next, and when? Where a look promised more than there was, later and later.
        self._look_in(min(SOON * 2 ** min(self._in_vain, DOUBLINGS), LATE))

    def came_back(self) -> None:
        """Jobs of ours are queued again, some for a time that only a look can tell."""
        self._look_in(SOON)

    def controlled(self) -> list[str]:
        """Queues to be asked by themselves; those that waited longest come first."""
        return list(self._controlled)

    def asked_controlled(self, queue: str) -> None:
        """It is being asked; what it gives tells whether to ask again."""
        self._controlled.pop(queue, None)

    def taken_controlled(self, queue: str, asked: int, taken: TakenUnderControl) -> None:
        """A queue at its limit is asked again later; one that gave all may have more."""
        if len(taken.jobs) >= asked:
            self._controlled[queue] = None
            self._wake()
            return
        wait = BLOCKED if taken.wait is None else min(taken.wait / 1_000_000, BLOCKED)
        self._look_in(max(wait, SOON) * (0.75 + random.random() / 2))

    def freed(self, queue: str) -> None:
        """A job of this queue has ended here: its limit may allow another."""
        if queue in self._known_controlled:
            self._controlled[queue] = None

    async def run(self) -> None:
        """Look when told to, and when nobody has for a while. Until stopped."""
        while True:
            await self._pause()
            self._wanted.clear()
            self._next_look = None
            if self._stopped:
                return
            if self._plain and (left := self._last_look + BUSY - _now()) > 0:
                # A take is about to tell more; not of all queues, though, nor if there is no room.
                self._look_in(left)
                continue
            self._last_look = _now()
            queues = list(self._settings.queues)
            try:
                outlooks = await self._engine.alook(queues) if queues else []
            except DatabaseError as error:
                log.warning("Could not look for jobs: %s", error)
                self._look_in(UNHEARD)
            else:
                for outlook in outlooks:
                    self._consider(outlook)
                if self._plain or self._controlled:
                    self._wake()

    def stop(self) -> None:
        """Look no more: a look that is cut short would cost a connection."""
        self._stopped = True
        self._look_in(0.0)

    def _consider(self, outlook: Outlook) -> None:
        queue = outlook.queue
        by_itself = not outlook.paused and (outlook.controlled or outlook.due_grouped)
        (self._known_controlled.add if by_itself else self._known_controlled.discard)(queue)
        if outlook.paused:
            return
        if outlook.due_grouped or (outlook.due and outlook.controlled):
            self._controlled[queue] = None
        if outlook.due and not outlook.controlled:
            self._plain.add(queue)
        if outlook.next_at is not None:
            self._look_in(max(0.0, (outlook.next_at - outlook.now) / 1_000_000))

    def _look_in(self, seconds: float) -> None:
        """Look after so long, unless a look comes sooner."""
        at = _now() + seconds
        if self._next_look is None or at < self._next_look:
            self._next_look = at
            self._wanted.set()

    async def _pause(self) -> None:
        """Until a look is due. Jittered: idle workers must not look in step."""
        poll = self._settings.poll.total_seconds() if self._bell.is_heard else UNHEARD
        latest = _now() + poll * (0.75 + random.random() / 2)
        while True:
            self._wanted.clear()
            due = latest if self._next_look is None else min(latest, self._next_look)
            left = due - _now()
            if left <= 0:
                return
            # Not wait_for: in Python 3.11 it may swallow a cancellation.
            try:
                async with asyncio.timeout(left):
                    await self._wanted.wait()
            except TimeoutError:
                return


def _now() -> float:
    return asyncio.get_running_loop().time()
