"""When an endpoint is left alone, and when it is trusted again.

What is known of an endpoint is in the database, beside its queue: whichever process finds out, all
of them hold still, and one job goes first when the time is over. Here is only when to say so, and
to say nothing where all is well: a push that ends well must not cost a write.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from onefold.errors import OnefoldError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from onefold.app.queues import Queues
    from onefold.model.job import Job
    from onefold.model.queue import HeldWhy, Mode, ServedQueue

FAILURES: Final = 5
"""In a row, after which an endpoint is taken to be down."""
FIRST: Final = timedelta(seconds=1)
LONGEST: Final = timedelta(seconds=60)
DOUBLINGS: Final = 6
"""From the first to the longest."""

log: logging.Logger = logging.getLogger("onefold.push")


def hold_after(failures: int) -> timedelta:
    """How long an endpoint is left alone after so many failures; none at all after a few."""
    beyond = failures - FAILURES
    if beyond < 0:
        return timedelta(0)
    return min(FIRST * (1 << min(beyond, DOUBLINGS)), LONGEST)


class Breaker:
    """What the pushes of this process say of their endpoints."""

    def __init__(self, queues: Queues, now: Callable[[], datetime]) -> None:
        """Nothing is known yet."""
        self._queues = queues
        self._now = now
        self._suspects: set[str] = set()
        """Queues that are held, or have failures, as far as we know."""
        self._held: dict[str, datetime] = {}
        """Until when."""
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Failures of one endpoint are told one after the other."""

    def learn(self, queues: Sequence[ServedQueue]) -> None:
        """What others have said meanwhile."""
        held = {queue.queue: queue.held_until for queue in queues}
        self._held = {queue: until for queue, until in held.items() if until is not None}
        self._suspects = {queue.queue for queue in queues if queue.failures} | self._held.keys()
        for queue in [queue for queue, turn in self._turns.items() if not turn.locked()]:
            del self._turns[queue]

    async def well(self, job: Job, mode: Mode) -> None:
        """The endpoint has answered for itself, whatever it said.

        In ack mode an answer only proves that the endpoint is up. A hold that the receiver asked
        for ends with an ack.
        """
        queue, until = job.queue, self._held.get(job.queue)
        was_before = until is not None and job.taken_at is not None and job.taken_at < until
        if queue in self._suspects and not was_before:
            self._suspects.discard(queue)
            only: HeldWhy | None = "circuit" if mode == "ack" else None
            await _said(queue, self._queues.aopen(queue, by=job, only=only))

    async def down(self, queue: str) -> None:
        """It has not answered, or only to say that it cannot."""
        self._suspects.add(queue)
        await _said(queue, self._count(queue))

    async def pressed(self, queue: str, after: timedelta) -> None:
        """It wants to be left alone for so long."""
        self._suspects.add(queue)
        await _said(queue, self._queues.ahold(queue, after=after, why="backpressure"))

    async def _count(self, queue: str) -> None:
        """What was under way when the queue was held fails of the same, and counts no more."""
        async with self._turns[queue]:
            until = self._held.get(queue)
            if until is not None and until > self._now():
                return
            failures = await self._queues.acount_failure(queue)
            if hold := hold_after(failures):
                log.warning(
                    "The endpoint of the queue %r has failed %d times in a row: it is left alone"
                    " for %g s, and one job goes first then.",
                    queue, failures, hold.total_seconds(),
                )  # fmt: skip
                self._held[queue] = await self._queues.ahold(queue, after=hold, why="circuit")


async def _said(queue: str, word: Awaitable[object]) -> None:
    """What becomes of the job does not depend on this, and must not be lost with it."""
    try:
        await word
    except OnefoldError as error:
        log.warning("How the endpoint of the queue %r is could not be stored: %s", queue, error)
