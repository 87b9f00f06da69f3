"""A circuit breaker per endpoint: holds a queue whose endpoint is down or overloaded.

The hold is stored with the queue, so all processes respect it; when it is over, one job is sent
first as a probe. A successful push to a healthy endpoint does not cost a write.
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
    from onefold.model.job import JobRow
    from onefold.model.queue import HoldReason, Mode, Queue

FAILURES: Final = 5
"""Failures in a row after which a queue is held."""
FIRST: Final = timedelta(seconds=1)
LONGEST: Final = timedelta(seconds=60)
DOUBLINGS: Final = 6
"""How often the hold doubles."""
GONE: Final = "its endpoint answered 410 Gone"

log: logging.Logger = logging.getLogger("onefold.push")


def hold_after(failures: int) -> timedelta:
    """How long a queue is held after so many failures in a row; zero after a few."""
    beyond = failures - FAILURES
    if beyond < 0:
        return timedelta(0)
    return min(FIRST * (1 << min(beyond, DOUBLINGS)), LONGEST)


class CircuitBreaker:
    """Stores what the pushes of this process learn about their endpoints."""

    def __init__(self, queues: Queues, now: Callable[[], datetime]) -> None:
        """Assumes that all endpoints are healthy."""
        self._queues = queues
        self._now = now
        self._suspects: set[str] = set()
        """Queues that are held or have failures, as far as is known."""
        self._held: dict[str, datetime] = {}
        """By queue: until when it is held."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By queue: failures of one endpoint are stored one after the other."""

    def update(self, queues: Sequence[Queue]) -> None:
        """Read what other processes have stored."""
        held = {queue.full_name: queue.held_until for queue in queues}
        self._held = {queue: until for queue, until in held.items() if until is not None}
        self._suspects = {queue.full_name for queue in queues if queue.failures} | self._held.keys()
        for queue in [queue for queue, lock in self._locks.items() if not lock.locked()]:
            del self._locks[queue]

    async def answered(self, row: JobRow, mode: Mode) -> None:
        """The endpoint has responded: end the hold.

        In ack mode a response only proves that the endpoint is up. A hold that the receiver
        requested ends with an ack.
        """
        queue = row.queue
        if queue not in self._suspects:
            return
        job, until = row.job(), self._held.get(queue)
        if until is None or job.taken_at is None or job.taken_at >= until:
            self._suspects.discard(queue)
            only: HoldReason | None = "circuit" if mode == "ack" else None
            await _stored(queue, self._queues.aend_hold(queue, by=job, only=only))

    async def failed(self, queue: str) -> None:
        """The endpoint did not respond, or with a server error."""
        self._suspects.add(queue)
        await _stored(queue, self._count(queue))

    async def overloaded(self, queue: str, after: timedelta) -> None:
        """The endpoint asks for a pause."""
        self._suspects.add(queue)
        await _stored(queue, self._queues.ahold(queue, after=after, why="backpressure"))

    async def gone(self, queue: str, endpoint: str) -> None:
        """The endpoint does not exist any more: pause its queue, unless it has a new one."""
        await _stored(queue, self._pause(queue, endpoint))

    async def _pause(self, queue: str, endpoint: str) -> None:
        if await self._queues.apause_endpoint(queue, endpoint=endpoint, why=GONE):
            log.warning(
                "The endpoint of the queue %r answered 410 Gone: the queue is paused.", queue
            )

    async def _count(self, queue: str) -> None:
        """Pushes that were running when the queue was held are not counted."""
        async with self._locks[queue]:
            until = self._held.get(queue)
            if until is not None and until > self._now():
                return
            failures = await self._queues.acount_failure(queue)
            if hold := hold_after(failures):
                log.warning(
                    "The endpoint of the queue %r has failed %d times in a row. The queue is held"
                    " for %g s; then one job is sent first.",
                    queue, failures, hold.total_seconds(),
                )  # fmt: skip
                self._held[queue] = await self._queues.ahold(queue, after=hold, why="circuit")


async def _stored(queue: str, write: Awaitable[object]) -> None:
    """Only log an error: the outcome of the job must not be lost with it."""
    try:
        await write
    except OnefoldError as error:
        log.warning("The health of the endpoint of queue %r was not stored: %s", queue, error)
