"""The lookout: which queues may have something to take, without asking for it in vain.

A bell that names a queue is believed at once. Where it names none, or nobody rang for a while, one
question to the database tells of all queues: what is due, what is paused or limited, and when the
next job will be due.

The pace of a worker: how many jobs it holds beside those that run.

As many as end while a flight is under way, so that nobody waits for the database, and no more: a
job that waits here for its turn could run elsewhere. Where jobs take seconds, that is none.

How many more jobs each queue may give, where none may have all places. Pure.

What a queue has here is a part of what stays free beside it. Nobody takes away what a queue has, so
one that hangs must leave something, and the next one that hangs must leave something of that.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from typing import TYPE_CHECKING, Final, NamedTuple

from onefold.errors import DatabaseError
from onefold.model.delivery import TakeOrder
from onefold.model.timestamps import span

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from onefold.databases import Bell
    from onefold.model.job import Job
    from onefold.model.queue import Outlook
    from onefold.operations.queues import TakenUnderControl
    from onefold.worker.deliveries import DeliveryCalls
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


class QueueMonitor:
    """What may be had, as far as this worker knows."""

    def __init__(
        self,
        deliveries: DeliveryCalls,
        settings: WorkerSettings,
        bell: Bell,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called when there may be something to take."""
        self._deliveries = deliveries
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
                outlooks = await self._deliveries.alook(queues) if queues else []
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


HALF: Final = 0.5
"""The weight of the newest flight."""
INSTANT: Final = 1e-6
"""No flight follows another in less than a microsecond, whatever the clock says."""
AMPLE: Final = 2.0
"""Twice what is expected: a flight may take longer than the last one."""


class Pace:
    """Learns from flight to flight."""

    def __init__(self, prefetch: int | None, most: int) -> None:
        """`prefetch` is a number that somebody has fixed; else it grows up to `most`."""
        self._fixed = prefetch
        self._most = most
        self._rate = 0.0
        """Jobs that end in a second."""
        self._flight = 0.0
        """Seconds that a flight takes."""
        self._ended = 0
        self._landed_at: float | None = None

    @property
    def prefetch(self) -> int:
        """Jobs to hold beside those that run."""
        if self._fixed is not None:
            return self._fixed
        return min(self._most, math.ceil(self._rate * self._flight * AMPLE - HALF))

    def ended(self) -> None:
        """A job has ended."""
        self._ended += 1

    def landed(self, took: float, now: float) -> None:
        """A flight has landed after so many seconds."""
        since = None if self._landed_at is None else now - self._landed_at
        if since is not None and since > 0:
            self._rate += (self._ended / max(since, INSTANT) - self._rate) * HALF
        self._flight += (took - self._flight) * HALF
        self._ended, self._landed_at = 0, now


KEPT_FREE: Final = 8
"""A queue that is alone leaves this part of all places to others that may come: an eighth."""


class QueueDemand(NamedTuple):
    """A queue that may have something to give."""

    queue: str
    most: int | None
    """That it may have here at once; None for any number."""
    used: int
    """That it has now."""

    def within(self, part: int) -> int:
        """So many, or as many as it may have beside those that it has."""
        return part if self.most is None else min(part, self.most - self.used)


def allot(
    wishes: list[QueueDemand], room: int, *, places: int, spread: int | None
) -> dict[str, int]:
    """How many each may give, of `room` that is free of all places. Without a spread, all of it."""
    if spread is None:
        given = [(wish, wish.within(room)) for wish in wishes]
    elif len(wishes) == 1 and wishes[0].used + room >= places:
        (alone,) = wishes
        given = [(alone, alone.within(_at_least_one(alone, room, room - places // KEPT_FREE)))]
    else:
        given = _fairly(wishes, room, spread)
    return {wish.queue: number for wish, number in given if number > 0}


def _fairly(wishes: list[QueueDemand], room: int, spread: int) -> list[tuple[QueueDemand, int]]:
    """So many that all of them can have as much, and each has its part of what stays free then."""
    hungry = [wish for wish in wishes if wish.within(_part_of(wish, room, 1, spread)) > 0]
    given: list[tuple[QueueDemand, int]] = []
    for ahead, wish in enumerate(hungry):
        number = wish.within(_part_of(wish, room, len(hungry) - ahead, spread))
        given.append((wish, number))
        room -= max(number, 0)
    return given


def _part_of(wish: QueueDemand, room: int, queues: int, spread: int) -> int:
    return _at_least_one(wish, room, (room - spread * wish.used) // (spread + queues))


def _at_least_one(wish: QueueDemand, room: int, part: int) -> int:
    """Who has none may have one in any case, and be it the last place."""
    return max(part, 1 if room > 0 and not wish.used else 0)
