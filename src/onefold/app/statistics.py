"""`StatisticsCalls`: what has happened in the last minutes, or in the last day."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Final

from onefold.app.context import Noun
from onefold.model import checks
from onefold.model.checks import qualified
from onefold.model.statistics import Statistics, buckets
from onefold.operations import statistics
from onefold.runtime import Call, Procedure, awaited, call

LAST: Final = timedelta(minutes=15)
WIDTH: Final = timedelta(minutes=1)


class StatisticsCalls(Noun):
    """The statistics of all queues, or of those of one tenant."""

    @call
    def read(
        self, *, last: timedelta = LAST, width: timedelta = WIDTH, queue: str | None = None
    ) -> Procedure[Statistics]:
        """Completed, failed and suppressed work, times and backlog, in buckets of `width`.

        `last` is at most a day, and a multiple of `width`, which is whole minutes. Processes count
        in memory and write every 10 seconds; a process that is killed loses what it has not
        written. Statistics, not a promise.
        """
        context = self._context
        yield Call(context.duplicate_log.flush)
        tenant = context.tenant
        wanted = buckets(last, width)
        if queue is not None:
            queue = qualified(tenant, queue) if tenant else checks.queue(queue, "queue")
        yield from context.counts.write()
        reading = partial(statistics.read, wanted=wanted, queue=queue, tenant=tenant)
        return (yield from context.shards.read("statistics", reading))

    aread: Final = awaited(read)
