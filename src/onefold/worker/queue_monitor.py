"""Which queues may have jobs to take, and how many jobs each may give.

A notification names a queue. Without one, the monitor looks now and then: one statement returns for
all queues what is due, what is paused or limited, and when the next job will be due.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from onefold.errors import DatabaseError
from onefold.model.delivery import TakeOrder
from onefold.model.places import Places
from onefold.model.timestamps import span
from onefold.operations import queues

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from onefold.app.context import Context
    from onefold.databases import Exchanges, Notifier
    from onefold.model.job import JobRow
    from onefold.model.queue import Outlook
    from onefold.operations.queues import TakenUnderControl
    from onefold.worker.settings import WorkerSettings


T = TypeVar("T")

SOON: Final = 0.02
LATE: Final = 5.0
POLL: Final = 1.0
"""Seconds between looks without notifications, at most. From `SOON` after a take of jobs."""
BLOCKED: Final = 0.5
"""Seconds until a queue at its limit is tried again: a job that ends elsewhere may free it."""
BUSY: Final = 0.25
"""Seconds between looks while there are jobs to take: other queues may have some, too."""
WHOLE: Final = 1.0
"""Seconds between takes from the beginning, at most."""
SHARE: Final = 0.05
"""Of the time, what takes from the beginning may need, if others find nothing."""
DOUBLINGS: Final = 8
"""How often a pause doubles, of those that begin with `SOON`."""

log: logging.Logger = logging.getLogger("onefold.worker")


class QueueMonitor:
    """What this worker knows about its queues."""

    def __init__(
        self,
        context: Context,
        settings: WorkerSettings,
        notifier: Notifier,
        wake: asyncio.Event,
        exchanges: Exchanges | None = None,
    ) -> None:
        """`wake` is set when there may be something to take."""
        self.plain: set[str] = set(settings.queues)
        """Queues that may have jobs without limits or groups."""
        self.limited: dict[str, None] = {}
        """Queues that may have jobs with limits, groups or an order, in the order of their takes.
        One that is being taken from is not in it."""
        self.unknown_kinds: set[str] = set()
        """Kinds without a handler in this worker: it does not take them."""
        self.limited_first: bool = False
        """Limited queues go first after a take from plain ones."""
        self.answered: asyncio.Event = asyncio.Event()
        """Set when the database has answered a look or an exchange."""
        self._runtime = context.runtime
        self._shards = context.shards
        self._settings = settings
        self._notifier = notifier
        self._wake = wake
        self._exchanges = exchanges
        self._lease = span(settings.lease, "lease")
        self._known_limited: set[str] = set()
        self._rotation = list(settings.queues)
        """For queues that are served in turn: those that gave jobs last are at the end."""
        self._look_wanted = asyncio.Event()
        self._look_wanted.set()
        self._next_look: float | None = None
        self._last_look = -BUSY
        self._places = Places()
        self._whole: TakeOrder | None = None
        """The last take from the beginning."""
        self._whole_wanted = False
        """True if it has found jobs, or others have followed: earlier jobs may have come."""
        self._begun = 0.0
        """When it was made."""
        self._begins = 0.0
        """Seconds from then until the next one."""
        self._took = 0.0
        """How long it took."""
        self._empty_takes = 0
        self._looks = 0
        """Since a take brought jobs."""
        self._stopped = False

    def notified(self, queue: str | None) -> None:
        """Jobs were stored in a queue; None if the queue is not known."""
        if queue is None:
            self._look_in(0.0)
        elif queue in self._settings.queues:
            if queue in self._known_limited:
                self.limited[queue] = None
            self.plain.add(queue)
            self._empty_takes = 0
            self._wake.set()

    def look_everywhere(self) -> None:
        """Any queue may have jobs, and queues may have been added or removed."""
        self.plain = set(self._settings.queues)
        known = (*self.limited, *self._known_limited)
        self.limited = {queue: None for queue in known if queue in self.plain}
        self._empty_takes = 0
        self._begins = 0.0
        self._look_in(0.0)
        self._wake.set()

    # --- takes ----------------------------------------------------------------------------------

    def next_take(self, room: int, used: Mapping[str, int]) -> TakeOrder | None:
        """What to take from plain queues, at most `room` jobs; None if nothing is expected."""
        begins = self._until_begin <= 0
        if begins:
            self.plain.update(self._settings.queues)
        limits = self._allot(self.plain, room, used)
        if not limits:
            return None
        self.limited_first = True
        if not begins:
            return self._order(limits, room)
        # A new object: takes that were sent before move on in the old one.
        self._places = Places(self._places)
        self._begun, self._begins = time.monotonic(), WHOLE
        self._whole = self._order(limits, room)
        return self._whole

    def next_limited_takes(self, room: int, used: Mapping[str, int]) -> list[TakeOrder]:
        """What to take from limited queues: one take for each queue, as far as there is room."""
        limits = self._allot(self.limited, room, used)
        orders: list[TakeOrder] = []
        for queue in list(self.limited):
            number = min(room, limits.get(queue, 0))
            if number > 0:
                room -= number
                del self.limited[queue]
                orders.append(self._order({queue: number}, number))
        if orders:
            self.limited_first = False
        return orders

    def _order(self, limits: dict[str, int], room: int) -> TakeOrder:
        unknown = tuple(self.unknown_kinds)
        places = self._places
        return TakeOrder(limits, room, self._settings.name, self._lease, unknown, places=places)

    @property
    def _until_begin(self) -> float:
        """Seconds until a take begins at the beginning: some jobs come late.

        Their transaction took long, or they were handed back.
        """
        return self._begun + self._begins - time.monotonic()

    def _allot(self, wanted: Collection[str], room: int, used: Mapping[str, int]) -> dict[str, int]:
        """How many jobs each of the queues may give, in the order in which they are served."""
        settings = self._settings
        in_order = self._rotation if settings.rotates else settings.queues
        names = [queue for queue in in_order if queue in wanted]
        if settings.spread is not None:
            demands = [
                QueueDemand(name, settings.queues[name], used.get(name, 0)) for name in names
            ]
            return allot(demands, room, places=settings.concurrency, spread=settings.spread)
        limits: dict[str, int] = {}
        for name in names:
            most = settings.queues[name]
            limit = room if most is None else min(room, most - used.get(name, 0))
            if limit > 0:
                limits[name] = limit
        return limits

    def taken(self, order: TakeOrder, taken: Sequence[JobRow]) -> None:
        """A queue that gave fewer jobs than it could has no more for now."""
        if taken:
            self._looks = 0
        missing = dict(order.queues)
        for job in taken:
            missing[job.queue] -= 1
        is_full = len(taken) >= order.limit
        drained = [] if is_full else [queue for queue, number in missing.items() if number > 0]
        self._pass_by(order, taken, drained)
        if self._settings.rotates and taken:
            self._rotation.sort(key={job.queue for job in taken}.__contains__)
        if is_full:
            self._empty_takes = 0
            self._look_in(BUSY)
            return
        self._empty_takes = 0 if taken else self._empty_takes + 1
        self.plain.difference_update(drained)
        # Look for the next job. If takes find nothing although looks do, wait longer and longer.
        self._look_in(min(SOON * 2 ** min(self._empty_takes, DOUBLINGS), LATE))

    def _pass_by(self, order: TakeOrder, taken: Sequence[JobRow], drained: Sequence[str]) -> None:
        """The next take begins behind these jobs."""
        sql = self._runtime.store.database.sql
        if sql.takes_by_priority:  # SQLite has no entries of taken jobs
            return
        order.places.pass_by(taken, drained, sql.shards)
        if order is self._whole:
            self._took = time.monotonic() - self._begun
            self._whole_wanted = bool(taken)
        else:
            self._whole_wanted = True
            if not taken:
                self._begins = min(self._took / SHARE, WHOLE)

    def taken_limited(self, queue: str, limit: int, taken: TakenUnderControl) -> None:
        """A queue at its limit is tried again later; one that gave all may have more."""
        if taken.rows:
            self._looks = 0
        if len(taken.rows) >= limit:
            self.limited[queue] = None
            return
        wait = BLOCKED if taken.wait is None else min(taken.wait / 1_000_000, BLOCKED)
        self._look_in(max(wait, SOON) * (0.75 + random.random() / 2))

    def jobs_returned(self) -> None:
        """Jobs of this worker are queued again, some for a later time."""
        self._look_in(SOON)

    def job_ended(self, queue: str) -> None:
        """A job of this queue has ended here: its limit may allow another one."""
        if queue in self._known_limited:
            self.limited[queue] = None

    # --- looks ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look when a look is wanted, and now and then. Until stopped."""
        while True:
            await self._pause()
            self._look_wanted.clear()
            self._next_look = None
            if self._stopped:
                return
            if self.plain and (left := self._last_look + BUSY - time.monotonic()) > 0:
                # A take may come first and know more. But it may not cover all queues.
                self._look_in(left)
                continue
            self._last_look = time.monotonic()
            self._looks += 1
            names = list(self._settings.queues)
            try:
                outlooks = await self._look(names) if names else []
            except DatabaseError as error:
                log.warning("Could not look for jobs: %s", error)
                self._look_in(POLL)
            else:
                self.answered.set()
                for outlook in outlooks:
                    self._update(outlook)
                self._begin_again()
                if self.plain or self.limited:
                    self._wake.set()

    def _begin_again(self) -> None:
        """There may be jobs before the places: take from the beginning when it is time."""
        if not self._whole_wanted:
            return
        if (left := self._until_begin) > 0:
            self._look_in(left)
        else:
            self.plain.update(self._settings.queues)

    async def _look(self, names: list[str]) -> list[Outlook]:
        """What is due in these queues: by the worker's own connection if possible."""
        places = self._places if self._whole_wanted else None
        look = partial(queues.look, queues=names, places=places)
        if self._exchanges is not None and self._shards.number == 1:
            answered: asyncio.Future[list[Outlook] | None] = asyncio.Future()
            if self._exchanges.send(look, partial(_set_result, answered)):
                outlooks = await answered
                if outlooks is not None:
                    return outlooks
        return await self._runtime.arun(self._shards.read("look", look))

    def stop(self) -> None:
        """Start no more looks. A cancelled one would cost a connection."""
        self._stopped = True
        self._look_in(0.0)

    def _update(self, outlook: Outlook) -> None:
        queue = outlook.queue
        limited = not outlook.paused and (outlook.controlled or outlook.due_grouped)
        (self._known_limited.add if limited else self._known_limited.discard)(queue)
        if outlook.paused:
            return
        if outlook.due_grouped or (outlook.due and outlook.controlled):
            self.limited[queue] = None
        if outlook.due and not outlook.controlled:
            self.plain.add(queue)
        if outlook.next_at is not None:
            self._look_in(max(0.0, (outlook.next_at - outlook.now) / 1_000_000))

    def _look_in(self, seconds: float) -> None:
        """Look after so many seconds, unless a look comes earlier."""
        at = time.monotonic() + seconds
        if self._next_look is None or at < self._next_look:
            self._next_look = at
            self._look_wanted.set()

    async def _pause(self) -> None:
        """Wait until a look is due. Jittered: idle workers must not look at the same time."""
        poll = self._settings.poll.total_seconds()
        if not self._notifier.is_listening:
            poll = min(SOON * 2 ** min(self._looks, DOUBLINGS), POLL)
        latest = time.monotonic() + poll * (1 + random.random() / 4)
        while True:
            self._look_wanted.clear()
            due = latest if self._next_look is None else min(latest, self._next_look)
            left = due - time.monotonic()
            if left <= 0:
                return
            # Not wait_for: in Python 3.11 it may swallow a cancellation.
            try:
                async with asyncio.timeout(left):
                    await self._look_wanted.wait()
            except TimeoutError:
                return


def _set_result(future: asyncio.Future[T], result: T) -> None:
    if not future.cancelled():
        future.set_result(result)


HALF: Final = 0.5
"""The weight of the newest exchange."""
INSTANT: Final = 1e-6
"""The shortest time between two exchanges: a clock may stand still."""
AMPLE: Final = 2.0
"""Twice the expected number: an exchange may take longer than the last one."""


HELD: Final = 0.5
"""Seconds between two checks of the jobs that wait for a place."""


class Prefetch:
    """How many jobs to hold beside those that run: as many as end during one exchange.

    More would be wrong: a job that waits here could run in another worker. For jobs that take
    seconds the number is 0.
    """

    def __init__(self, prefetch: int | None, most: int) -> None:
        """`prefetch` is a fixed number; None for a measured one, up to `most`."""
        self._fixed = prefetch
        self._most = most
        self._rate = 0.0
        """Jobs that end per second."""
        self._seconds = 0.0
        """Duration of an exchange."""
        self.ended: int = 0
        """Jobs that have ended; the producer counts them."""
        self._ended_before = 0
        """Until the last exchange."""
        self._exchanged_at: float | None = None
        self._ended_checked = 0
        """Until the last check."""

    @property
    def size(self) -> int:
        """The number of jobs."""
        if self._fixed is not None:
            return self._fixed
        return min(self._most, math.ceil(self._rate * self._seconds * AMPLE - HALF))

    def exchanged(self, took: float, now: float) -> None:
        """Measure an exchange that took so many seconds."""
        since = None if self._exchanged_at is None else now - self._exchanged_at
        if since is not None and since > 0:
            ended = self.ended - self._ended_before
            self._rate += (ended / max(since, INSTANT) - self._rate) * HALF
        self._seconds += (took - self._seconds) * HALF
        self._ended_before, self._exchanged_at = self.ended, now

    def begin_check(self) -> None:
        """Jobs wait for a place: `surplus` follows after `HELD` seconds."""
        self._ended_checked = self.ended

    def surplus(self, waiting: int) -> int:
        """How many of the waiting jobs would wait longer than until the next check.

        Jobs take longer than those from which the number was learned: learn it anew.
        """
        ended = self.ended - self._ended_checked
        if self._fixed is not None or ended >= waiting:
            return 0
        self._rate = min(self._rate, ended / HELD)
        return waiting - max(ended, self.size)


KEPT_FREE: Final = 8
"""A queue that is alone leaves this fraction of all places free for others: an eighth."""


class QueueDemand(NamedTuple):
    """A queue that may have jobs."""

    queue: str
    most: int | None
    """Its maximum in this worker; None for no maximum."""
    used: int
    """Its jobs in this worker now."""

    def within(self, part: int) -> int:
        """`part`, reduced to the maximum of the queue."""
        return part if self.most is None else min(part, self.most - self.used)


def allot(demands: list[QueueDemand], room: int, *, places: int, spread: int) -> dict[str, int]:
    """How many jobs each queue may give, of `room` free places. Pure.

    A queue gets a part of what stays free: a queue whose jobs hang leaves places for others, and
    the next one that hangs does so, too.
    """
    if len(demands) == 1 and demands[0].used + room >= places:
        (alone,) = demands
        number = alone.within(_at_least_one(alone, room, room - places // KEPT_FREE))
        return {alone.queue: number} if number > 0 else {}
    return _fairly(demands, room, spread)


def _fairly(demands: list[QueueDemand], room: int, spread: int) -> dict[str, int]:
    """The same number for all, and each gets its part of what stays free."""
    hungry = [each for each in demands if each.within(_part_of(each, room, 1, spread)) > 0]
    given: dict[str, int] = {}
    for ahead, demand in enumerate(hungry):
        number = demand.within(_part_of(demand, room, len(hungry) - ahead, spread))
        if number > 0:
            given[demand.queue] = number
            room -= number
    return given


def _part_of(demand: QueueDemand, room: int, queues: int, spread: int) -> int:
    return _at_least_one(demand, room, (room - spread * demand.used) // (spread + queues))


def _at_least_one(demand: QueueDemand, room: int, part: int) -> int:
    """A queue without jobs may have one, even on the last place."""
    return max(part, 1 if room > 0 and not demand.used else 0)
