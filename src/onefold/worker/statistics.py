"""What a process counts in memory and writes from time to time, and the row of a worker."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import threading
import time
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from onefold.errors import OnefoldError
from onefold.model.ids import new_id
from onefold.model.statistics import MINUTE, Tally
from onefold.operations import statistics, workers
from onefold.operations.workers import RENEWAL, WorkerRow
from onefold.runtime import Procedure, transact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onefold.app.context import Context
    from onefold.model.statistics import Counted
    from onefold.operations.statement import Operation, Sql
    from onefold.worker.executor import Handlers
    from onefold.worker.settings import WorkerSettings
    from onefold.worker.shards import Shards

WRITTEN: Final = 10.0
"""Seconds after which counts are written."""
NAMED: Final = 100
"""Queues in the row of a push worker, which may have thousands."""

log: logging.Logger = logging.getLogger("onefold.worker")


class Counts:
    """The counts of this process that are not written yet, by minute and queue."""

    def __init__(self, shards: Shards, now: Callable[[], int]) -> None:
        """`now` is the time in microseconds."""
        self._shards = shards
        self._now = now
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._mutex = threading.Lock()
        self._tallies: dict[tuple[int | None, str], Tally] = {}
        self._due_at = 0.0

    def count(self, queue: str, outcome: Counted, waited: int | None = None, ran: int = 0) -> None:
        """Count the end of a delivery, with its times in microseconds if it has run."""
        tally = Tally()
        tally.count(outcome)
        if waited is not None:
            tally.measure(waited, ran)
        self.add({queue: tally})

    def add(self, tallies: Mapping[str, Tally]) -> None:
        """Add the counts of some queues to those of this minute."""
        if self._process != os.getpid():
            # A forked child does not write the counts of its parent.
            self._begin()
        now = self._now()
        with self._mutex:
            if not self._tallies:
                self._due_at = time.monotonic() + WRITTEN
            for queue, tally in tallies.items():
                self._tallies.setdefault((now - now % MINUTE, queue), Tally()).add(tally)

    @property
    def are_due(self) -> bool:
        """True if counts have waited for long enough."""
        return bool(self._tallies) and time.monotonic() >= self._due_at

    def write(self) -> Procedure[None]:
        """Write all counts, in one statement. They are lost after an error, which is logged."""
        if self._process != os.getpid():
            self._begin()
        with self._mutex:
            tallies, self._tallies = self._tallies, {}
        if not tallies:
            return
        shard = random.randrange(self._shards.number)
        try:
            yield from transact(lambda sql: statistics.add(sql.only([shard]), tallies))
        except Exception as error:  # noqa: BLE001 - a close must not fail for them
            log.warning("The statistics of the last seconds are lost: %s", error)


class SelfReport:
    """Keeps the row of a worker, and writes the counts of its process."""

    def __init__(
        self,
        context: Context,
        handlers: Handlers,
        settings: WorkerSettings,
        ended: Callable[[], Mapping[str, Tally]],
    ) -> None:
        """Writes nothing yet. The queues in `settings` and the kinds of `handlers` may change.

        `ended` returns what the worker has counted since the last call, by queue.
        """
        self._ended = ended
        self._runtime = context.runtime
        self._counts = context.counts
        self._handlers = handlers
        self._settings = settings
        self._id = new_id()
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Write until it is stopped, and at the end."""
        renew_at = 0.0
        while not self._stopped.is_set():
            if time.monotonic() >= renew_at:
                renew_at = time.monotonic() + RENEWAL.total_seconds()
                await self._store(workers.save)
            await self._write()
            with suppress(TimeoutError):
                async with asyncio.timeout(WRITTEN):
                    await self._stopped.wait()
        await self._write()
        await self._store(workers.delete)

    async def _write(self) -> None:
        self._counts.add(self._ended())
        await self._runtime.arun(self._counts.write())

    async def _store(self, operation: Callable[[Sql, WorkerRow], Operation[None]]) -> None:
        settings, kinds = self._settings, self._handlers.kinds
        row = WorkerRow(
            self._id,
            settings.name,
            socket.gethostname(),
            os.getpid(),
            tuple(islice(settings.queues, NAMED if kinds is None else None)),
            kinds,
            settings.concurrency,
        )
        try:
            await self._runtime.store.atransact(lambda sql: operation(sql, row))
        except OnefoldError as error:
            log.warning("The row of this worker could not be written: %s", error)

    def stop(self) -> None:
        """Write what is left, and delete the row."""
        self._stopped.set()
