"""`StatisticsCalls`: what has happened in the last minutes, or in the last day."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from onefold.model import checks
from onefold.model.checks import qualified
from onefold.model.statistics import Statistics, buckets
from onefold.operations import statistics

if TYPE_CHECKING:
    from onefold.app.context import Context
    from onefold.runtime import Procedure

LAST: Final = timedelta(minutes=15)
WIDTH: Final = timedelta(minutes=1)


class StatisticsCalls:
    """The statistics of all queues, or of those of one tenant."""

    def __init__(self, context: Context) -> None:
        """Without a tenant, those of all tenants."""
        self._context = context

    def read(
        self, *, last: timedelta = LAST, width: timedelta = WIDTH, queue: str | None = None
    ) -> Statistics:
        """Completed, failed and suppressed work, times and backlog, in buckets of `width`.

        `last` is at most a day, and a multiple of `width`, which is whole minutes. Processes count
        in memory and write every 10 seconds; a process that is killed loses what it has not
        written. Statistics, not a promise.
        """
        self._context.duplicate_log.flush()
        return self._context.runtime.run(self._read(last, width, queue))

    async def aread(
        self, *, last: timedelta = LAST, width: timedelta = WIDTH, queue: str | None = None
    ) -> Statistics:
        """`read`, awaited."""
        await self._context.duplicate_log.aflush()
        return await self._context.runtime.arun(self._read(last, width, queue))

    def _read(self, last: timedelta, width: timedelta, queue: str | None) -> Procedure[Statistics]:
        context = self._context
        tenant = context.tenant
        wanted = buckets(last, width)
        if queue is not None:
            queue = qualified(tenant, queue) if tenant else checks.queue(queue, "queue")
        yield from context.counts.write()
        reading = partial(statistics.read, wanted=wanted, queue=queue, tenant=tenant)
        return (yield from context.shards.read("statistics", reading))
