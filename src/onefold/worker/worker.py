"""What a worker says when it starts: where it works, on what, and what it promises.

The worker: everything together, from the start-up report to the last word about a job.

async with onefold.worker(queues=["email"]) as worker:      # in an application
    ...
onefold.run_worker(queues=["email"])                        # by itself, until a signal
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
from onefold.worker.after_commit import Afterwards
from onefold.worker.chores import Chores
from onefold.worker.deliveries import DeliveryCalls, UncheckedDeliveries
from onefold.worker.executor import Executor
from onefold.worker.heartbeats import Heartbeats
from onefold.worker.producer import Producer
from onefold.worker.queue_monitor import QueueMonitor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from onefold.app.context import Context
    from onefold.model.job import Job
    from onefold.worker.handlers import Handlers
    from onefold.worker.settings import WorkerSettings


SHOWN: Final = 20
"""Queues that are named: a courier may have thousands."""


def report(context: Context, registry: Handlers, settings: WorkerSettings) -> list[str]:
    """The lines of the report."""
    database = context.database
    sql = database.sql
    where = f"schema {sql.schema}, " if sql.dialect == "postgres" else ""
    shards = f"{sql.shards} shard{'s' if sql.shards > 1 else ''}"
    queues = _named(
        queue if most is None else f"{queue} (at most {most})"
        for queue, most in settings.queues.items()
    )
    kinds = ", ".join(sorted(registry.kinds)) or "none: it will only do chores"
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
    """A warning about queues that the code declares and that this worker does not serve."""
    names = _named(queue for queue in declared if queue not in settings.queues)
    warning = (
        f"This worker does not serve these declared queues: {names}. Their jobs wait for another"
        " worker. To serve them here, add them to its queues."
    )
    return [warning] if names else []


def unused(settings: WorkerSettings, declared: Mapping[str, bool]) -> list[str]:
    """A warning about queues that this worker serves and that no job is declared for."""
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
"""The part of the grace that is kept for handing back what did not end in the rest of it."""
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
        declare: Callable[[], Awaitable[None]],
        declared: Callable[[], Mapping[str, bool]] | None = None,
    ) -> None:
        """Made by `Onefold.worker`; `declare` writes down what the code says of queues.

        `declared` tells the queues that the code declares, and whether jobs are declared for them.
        Queues may come and go in `settings.queues` while it runs: `look` tells it so.
        """
        self.settings: WorkerSettings = settings
        self._context = context
        self._registry = registry
        self._declare = declare
        self._declared = declared
        self._stop = asyncio.Event()
        self._started = asyncio.Event()
        self._begun = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._lookout: QueueMonitor | None = None
        self._round: Chores | None = None
        self._ends_at = 0.0
        """When the grace is over, by the loop's clock."""

    async def run(self) -> None:
        """Until `stop`: then what runs may end within the grace, and the rest is handed back."""
        if self._started.is_set():
            raise UsageError("This worker has run already. Make a new one for another run.")
        self._started.set()
        deliveries = DeliveryCalls(self._context)
        afterwards = Afterwards(self._context.hooks, self._read)
        bell = await self._context.database.abell()
        await self._declare()
        warnings = self._serve_declared()
        producer = Producer(
            deliveries,
            UncheckedDeliveries(self._context.store),
            self._registry,
            self.settings,
            afterwards,
        )
        producer.executor = executor = Executor(self._context, self.settings, producer.over)
        producer.lookout = lookout = QueueMonitor(deliveries, self.settings, bell, producer.wake)
        self._lookout = lookout
        heart = Heartbeats(deliveries, self.settings, producer.deliveries, producer.lose)
        self._round = chores = self._chores(deliveries, afterwards)
        listening = asyncio.create_task(_keep_on("the bell", lambda: bell.listen(lookout.ring)))
        background = [asyncio.create_task(_keep_on("the lookout", lookout.run))]
        if self.settings.chores:
            background.append(asyncio.create_task(_keep_on("the chores", chores.run)))
        for line in report(self._context, self._registry, self.settings):
            log.info(line)
        for line in warnings:
            log.warning(line)
        heart.start(asyncio.get_running_loop())
        self._begun.set()
        try:
            await self._work(producer)
            await afterwards.settle(self._ends_at - asyncio.get_running_loop().time())
        finally:
            heart.stop()
            executor.close()
            lookout.stop()
            chores.stop()
            await asyncio.wait(background, timeout=RESTART)
            for task in (listening, *background):
                task.cancel()
            await asyncio.gather(listening, *background, return_exceptions=True)
            log.info("The worker %s has stopped.", self.settings.name)

    def _chores(self, deliveries: DeliveryCalls, afterwards: Afterwards) -> Chores:
        chores = Chores(self._context, deliveries, self.settings)
        chores.buried = lambda job: afterwards.dead(
            job.tenant, job.id, self._registry.get(job.kind)
        )
        return chores

    async def _work(self, producer: Producer) -> None:
        """Work, and end inside the grace once told to stop."""
        work = asyncio.create_task(producer.run())
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                # It can only have failed, and an application may not hear of it for long.
                log.critical("The worker has failed, and has ended.", exc_info=work.exception())
                return await work
            log.info("Stopping: %d jobs are held.", len(producer.held))
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
            # Handlers must not go on without a lease, and others need not wait for it to end.
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
        """Serve what is declared, where no queues are given; else say what differs from it."""
        if self._declared is None:
            return []
        declared = self._declared()
        if not self.settings.queues:
            # A dictionary of ours: what is declared later is not served.
            served = [queue for queue, has_jobs in declared.items() if has_jobs]
            queues = dict.fromkeys((*served, DEFAULT_QUEUE))
            self.settings = msgspec.structs.replace(self.settings, queues=queues, rotates=True)
            return unserved(self.settings, declared)
        return unserved(self.settings, declared) + unused(self.settings, declared)

    def stop(self) -> None:
        """Take no more jobs, and end. Safe to call twice, but only in the worker's event loop."""
        self._stop.set()

    def look(self) -> None:
        """There may be something to take, in queues that are new, too. In its event loop only."""
        if self._lookout is not None:
            self._lookout.anything()

    async def rescue(self) -> None:
        """See at once to deliveries whose time is over, rather than at the next round of chores."""
        if self._round is not None:
            await self._round.rescue()

    async def _read(self, tenant: str, job_id: str) -> Job | None:
        found: dict[str, Job] = await self._context.store.atransact(
            lambda sql: jobs.get(sql, tenant, [job_id]), write=False
        )
        return found.get(job_id)

    async def __aenter__(self) -> Self:
        """Work in the background. What keeps it from beginning is raised here."""
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
        """Stop, and wait until it has."""
        self.stop()
        if self._task is not None:
            await self._task


async def _keep_on(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Begin anew what must not fail: a long log is better than a worker that has gone deaf."""
    while True:
        try:
            return await work()
        except Exception:
            log.exception("The worker goes on after %s has failed.", name)
        await asyncio.sleep(RESTART)


async def _ended(task: asyncio.Task[None], seconds: float) -> bool:
    done, _ = await asyncio.wait({task}, timeout=seconds)
    return bool(done)
