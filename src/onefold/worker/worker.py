"""The worker: creates its parts, logs the start report, and stops them within the grace.

`async with onefold.worker(queues=["email"])` runs it in an application,
`onefold.run_worker(queues=["email"])` by itself until a signal.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import UsageError
from onefold.model.job import DEFAULT_QUEUE
from onefold.operations import jobs
from onefold.worker.after_commit import AfterCommit
from onefold.worker.chores import Chores
from onefold.worker.executor import Executor
from onefold.worker.heartbeats import Heartbeats
from onefold.worker.processes import Processes
from onefold.worker.producer import Producer
from onefold.worker.queue_monitor import QueueMonitor
from onefold.worker.statistics import SelfReport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from onefold.app.context import Context
    from onefold.databases import Notifier, Notify
    from onefold.model.job import Job
    from onefold.worker.executor import Handlers
    from onefold.worker.settings import WorkerSettings


SHOWN: Final = 20
"""Queues that the report names: a push worker may have thousands."""


def report(context: Context, registry: Handlers, settings: WorkerSettings) -> list[str]:
    """The lines of the start report."""
    database = context.database
    sql = database.sql
    where = f"schema {sql.schema}, " if sql.dialect == "postgres" else ""
    shards = f"{sql.shards} shard{'s' if sql.shards > 1 else ''}"
    queues = _named(
        queue if most is None else f"{queue} (at most {most})"
        for queue, most in settings.queues.items()
    )
    kinds = "any"
    if registry.kinds is not None:
        kinds = ", ".join(sorted(registry.kinds)) or "none: it only does chores"
    lease, grace = settings.lease.total_seconds(), settings.grace.total_seconds()
    return [
        f"Worker {settings.name} on {database.label} ({where}{shards}).",
        f"Queues: {queues or 'none yet'}. Kinds: {kinds}.",
        f"{settings.concurrency} handlers at once, up to {settings.most_prefetched} jobs ahead.",
        f"A lease lasts {lease:g} s, a stop takes {grace:g} s at most.",
        "Every job is run at least once.",
        "What a handler does in run.transaction(), and each result of run.step(), lands once.",
    ]


def unserved(settings: WorkerSettings, declared: Mapping[str, bool]) -> list[str]:
    """A warning about declared queues that this worker does not serve."""
    names = _named(queue for queue in declared if queue not in settings.queues)
    warning = (
        f"This worker does not serve these declared queues: {names}. Their jobs wait for another"
        " worker. To serve them here, add them to its queues."
    )
    return [warning] if names else []


def unused(settings: WorkerSettings, declared: Mapping[str, bool]) -> list[str]:
    """A warning about queues of this worker without a declared job."""
    names = _named(queue for queue in settings.queues if not declared.get(queue))
    warning = (
        f"No job is declared for these queues of this worker: {names}. Check their spelling, or"
        " ignore this where jobs are enqueued there by name."
    )
    return [warning] if names else []


def _named(queues: Iterable[str]) -> str:
    names = list(queues)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


MARGIN: Final = 0.2
"""The part of the grace that is reserved for handing back jobs that did not end."""
LONGEST_MARGIN: Final = 5.0
RESTART: Final = 1.0

log: logging.Logger = logging.getLogger("onefold.worker")


class Worker:
    """Runs jobs until it is stopped. For one run, in one event loop."""

    def __init__(
        self,
        context: Context,
        registry: Handlers,
        settings: WorkerSettings,
        declare: Callable[[], Awaitable[None]] | None = None,
        declared: Callable[[], Mapping[str, bool]] | None = None,
        *,
        notified: Notify | None = None,
    ) -> None:
        """Made by `Onefold.worker`; `declare` stores the declared settings of queues.

        `declared` returns the declared queues, and whether they have declared jobs. The queues in
        `settings.queues` may change while it runs: then call `look`. `notified` receives the same
        notifications as the worker.
        """
        self.settings: WorkerSettings = settings
        self._context = context
        self._registry = registry
        self._declare = declare
        self._declared = declared
        self._notified = notified
        self._notifier: Notifier | None = None
        self._stop = asyncio.Event()
        self._started = False
        self._begun = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._monitor: QueueMonitor | None = None
        self._chores: Chores | None = None
        self._ends_at = 0.0
        """When the grace is over, by the clock of the event loop."""

    async def run(self) -> None:
        """Run until `stop`. Then handlers may end within the grace; other jobs are handed back."""
        if self._started:
            raise UsageError("This worker has run already. Create a new one for another run.")
        self._started = True
        context, registry = self._context, self._registry
        after_commit = AfterCommit(context.hooks, self._read)
        self._notifier = notifier = await context.database.anotifier()
        if self._declare is not None:
            await self._declare()
        warnings = self._serve_declared()
        loop, wake = asyncio.get_running_loop(), asyncio.Event()
        executor = Executor(context, self.settings, Processes(loop, context.hooks), wake)
        exchanges = context.database.exchanges()
        self._monitor = monitor = QueueMonitor(context, self.settings, notifier, wake, exchanges)
        producer = Producer(
            context,
            registry,
            self.settings,
            monitor=monitor,
            executor=executor,
            after_commit=after_commit,
            wake=wake,
            exchanges=exchanges,
        )
        heartbeats = Heartbeats(context, self.settings, producer.held, producer.lose)
        self._chores = chores = Chores(
            context,
            self.settings,
            lambda job: after_commit.dead(job.tenant, job.id, registry.get(job.kind)),
        )
        listening = asyncio.create_task(
            _restarted("the listener", lambda: notifier.listen(self._notify, monitor.answered))
        )
        self_report = SelfReport(context, registry, self.settings, after_commit.take_tallies)
        background = [
            asyncio.create_task(_restarted("the queue monitor", monitor.run)),
            asyncio.create_task(_restarted("the report of this worker", self_report.run)),
        ]
        if self.settings.chores:
            background.append(asyncio.create_task(_restarted("the chores", chores.run)))
        for line in report(context, registry, self.settings):
            log.info(line)
        for line in warnings:
            log.warning(line)
        heartbeats.start(loop)
        self._begun.set()
        try:
            await self._work(producer)
            await after_commit.close(self._ends_at - loop.time())
        finally:
            _stop(heartbeats, monitor, chores, self_report)
            executor.close()
            await asyncio.wait(background, timeout=RESTART)
            for task in (listening, *background):
                task.cancel()
            await asyncio.gather(listening, *background, return_exceptions=True)
            if exchanges is not None:
                await exchanges.close()
            log.info("The worker %s has stopped.", self.settings.name)

    async def _work(self, producer: Producer) -> None:
        """Run the producer, and end within the grace after `stop`."""
        work = asyncio.create_task(producer.run())
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                # It has failed. An application may await the worker much later, so log it now.
                log.critical("The worker has failed and has ended.", exc_info=work.exception())
                return await work
            log.info("Stopping: %d jobs are not finished.", len(producer.held))
            producer.stop()
            grace = self.settings.grace.total_seconds()
            self._ends_at = asyncio.get_running_loop().time() + grace
            margin = min(grace * MARGIN, LONGEST_MARGIN)
            if await _ended(work, grace - margin):
                return await work
            log.warning("The grace is nearly over: interrupting %d jobs.", len(producer.held))
            producer.interrupt()
            if not await _ended(work, margin):
                log.error(
                    "%d jobs could not be handed back; they run again when their leases end.",
                    len(producer.held),
                )
        except asyncio.CancelledError:
            # Without the worker the leases end: handlers must stop, and jobs should go back now.
            producer.stop()
            producer.interrupt()
            await _ended(work, min(self.settings.grace.total_seconds(), LONGEST_MARGIN))
            raise
        finally:
            for task in (work, stop):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await stop
        return None

    def _serve_declared(self) -> list[str]:
        """Serve the declared queues if none are given; returns warnings about differences."""
        if self._declared is None:
            return []
        declared = self._declared()
        if not self.settings.queues:
            # A copy: queues that are declared later are not served.
            served = [queue for queue, has_jobs in declared.items() if has_jobs]
            queues = dict.fromkeys((*served, DEFAULT_QUEUE))
            self.settings = msgspec.structs.replace(self.settings, queues=queues, rotates=True)
            return unserved(self.settings, declared)
        return unserved(self.settings, declared) + unused(self.settings, declared)

    def stop(self) -> None:
        """Take no more jobs, and end. Call it in the worker's event loop; twice is safe."""
        self._stop.set()

    def look(self) -> None:
        """Look for jobs in all queues, also new ones. Call it in the worker's event loop."""
        if self._monitor is not None:
            self._monitor.look_everywhere()

    def _notify(self, queue: str | None) -> None:
        if self._monitor is not None:
            self._monitor.notified(queue)
        if self._notified is not None:
            self._notified(queue)

    @property
    def is_notified(self) -> bool:
        """False while notifications may be missed."""
        return self._notifier is not None and self._notifier.is_listening

    async def rescue(self) -> None:
        """Rescue expired deliveries now instead of at the next interval."""
        if self._chores is not None:
            await self._chores.rescue()

    async def _read(self, tenant: str, job_id: str) -> Job | None:
        found: dict[str, Job] = await self._context.store.atransact(
            lambda sql: jobs.get(sql, tenant, [job_id]), write=False
        )
        return found.get(job_id)

    async def __aenter__(self) -> Self:
        """Run in the background. An error at the start is raised here."""
        self._task = asyncio.create_task(self.run())
        begun = asyncio.create_task(self._begun.wait())
        await asyncio.wait({self._task, begun}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if self._task.done():
            await self._task
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, and wait for the end."""
        self.stop()
        if self._task is not None:
            await self._task


def _stop(*parts: Heartbeats | QueueMonitor | Chores | SelfReport) -> None:
    for part in parts:
        part.stop()


async def _restarted(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run a background task, and restart it after an error: the worker depends on it."""
    while True:
        try:
            return await work()
        except Exception:
            log.exception("Restarting %s after an error.", name)
        await asyncio.sleep(RESTART)


async def _ended(task: asyncio.Task[None], seconds: float) -> bool:
    done, _ = await asyncio.wait({task}, timeout=seconds)
    return bool(done)
