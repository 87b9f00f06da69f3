"""What `onefold status` and `onefold top` show: queues, workers, failures and duplicates."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from onefold import Job, Queue, QueueCounts
from onefold.cli.render import SHORT, problem
from onefold.model.checks import parted
from onefold.model.queue import FailingCounts
from onefold.model.statistics import StatisticsTotal, WorkerStatus, alive_workers, counted, unserved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold import Onefold, Tenant

DAY: Final = timedelta(hours=24)
MINUTES: Final = timedelta(minutes=15)
ERRORS: Final = 5
START: Final = "Start one: onefold worker MODULE:APP"
NO_QUEUE: Final = "No queue has settings, or unfinished or dead jobs."

QUEUE_COLUMNS: Final = (
    "queue", "depth", "oldest", "running", "retrying", "scheduled", "dead", "state",
)  # fmt: skip
WORKER_COLUMNS: Final = ("worker", "host", "pid", "running", "queues", "state")
ERROR_COLUMNS: Final = ("job", "kind", "state", "error")


class QueueStatus(msgspec.Struct, frozen=True):
    """One queue."""

    queue: str
    depth: int
    """Jobs that are due."""
    oldest: timedelta | None
    """How long the oldest of them has been due."""
    running: int
    retrying: int
    """Jobs that have failed and wait for another attempt, due or not."""
    scheduled: int
    """Jobs for later, those that wait for another attempt included."""
    dead: int
    paused: bool

    @property
    def cells(self) -> tuple[object, ...]:
        """For a table."""
        state = "paused" if self.paused else "open"
        return (
            self.queue, self.depth, short_time(self.oldest), self.running, self.retrying,
            self.scheduled, self.dead, state,
        )  # fmt: skip


class Overview(msgspec.Struct, frozen=True):
    """One look at an installation, or at one tenant of it."""

    queues: tuple[QueueStatus, ...]
    workers: tuple[WorkerStatus, ...]
    unserved: tuple[str, ...]
    """Queues whose due jobs no living worker takes."""
    errors: tuple[Job, ...]
    """The newest jobs that are retrying or dead."""
    last_minutes: StatisticsTotal
    last_day: StatisticsTotal

    @property
    def headline(self) -> str:
        """One line about everything."""
        minutes, day = self.last_minutes, self.last_day
        return (
            f"{counted(sum(one.depth for one in self.queues), 'job')} due,"
            f" {sum(one.running for one in self.queues)} running, {alive_workers(self.workers)};"
            f" 15 min: {minutes.completed} done; 24 h: {day.completed} done,"
            f" {counted(day.duplicates, 'duplicate')} suppressed"
        )

    @property
    def worker_rows(self) -> list[tuple[object, ...]]:
        """For a table."""
        return [
            (
                worker.name,
                worker.host,
                worker.pid,
                f"{worker.running}/{worker.concurrency}",
                ", ".join(worker.queues),
                "alive" if worker.alive else "gone",
            )
            for worker in self.workers
        ]

    @property
    def worker_note(self) -> str | None:
        """What is missing among the workers."""
        if not any(worker.alive and worker.kinds is not None for worker in self.workers):
            pushing = any(worker.alive for worker in self.workers)
            where = " for queues without an endpoint" if pushing else ""
            return f"No worker runs{where}. {START}"
        if self.unserved:
            return f"No worker takes the due jobs of {', '.join(self.unserved)}. {START}"
        return None

    @property
    def error_rows(self) -> list[tuple[object, ...]]:
        """For a table."""
        return [
            (job.id, job.kind, job.state, problem(job.error, length=SHORT)) for job in self.errors
        ]


def look(onefold: Onefold, calls: Tenant) -> Overview:
    """Read everything; workers are of all tenants."""
    queues = find_queues(calls)
    workers = onefold.workers.find()
    return Overview(
        tuple(_queue_status(queue, failing) for queue, failing in queues),
        workers,
        tuple(unserved((queue for queue, _ in queues), workers)),
        _failed(calls, [failing for _, failing in queues]),
        calls.statistics.read(last=MINUTES, width=MINUTES).total,
        calls.statistics.read(last=DAY, width=DAY).total,
    )


def find_queues(calls: Onefold | Tenant) -> list[tuple[Queue, FailingCounts]]:
    """All queues by name, those included that have dead jobs only."""
    failing = calls.queues.count_failing()
    found = {name: Queue(tenant=parted(name)[0], name=parted(name)[1]) for name in failing}
    found |= {queue.full_name: queue for queue in calls.queues.find()}
    return [(queue, failing.get(name, FailingCounts())) for name, queue in sorted(found.items())]


def _queue_status(queue: Queue, failing: FailingCounts) -> QueueStatus:
    counts = queue.counts or QueueCounts()
    return QueueStatus(
        queue.full_name,
        counts.ready,
        queue.oldest,
        counts.running,
        failing.retrying,
        counts.scheduled,
        failing.dead,
        queue.paused,
    )


def _failed(calls: Tenant, numbers: Sequence[FailingCounts]) -> tuple[Job, ...]:
    found: list[Job] = []
    if any(one.dead for one in numbers):
        found += calls.find(state="dead", limit=ERRORS, newest_first=True)
    if any(one.retrying for one in numbers):
        found += calls.find(state="retrying", limit=ERRORS, newest_first=True)
    return tuple(sorted(found, key=lambda job: job.id, reverse=True)[:ERRORS])


def short_time(span: timedelta | None) -> str:
    """A duration in its two largest units: 3h 5m."""
    if span is None:
        return ""
    seconds = int(span.total_seconds())
    parts = (("d", seconds // 86400), ("h", seconds // 3600 % 24), ("m", seconds // 60 % 60))
    shown = [f"{number}{unit}" for unit, number in parts if number]
    return " ".join([*shown, f"{seconds % 60}s"][:2])
