"""What `onefold status` and `onefold top` show: queues, workers, failures and duplicates."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from onefold import Job, QueueCounts
from onefold.cli.render import SHORT, counted, problem
from onefold.model.queue import FailingCounts
from onefold.model.statistics import StatisticsTotal, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onefold import Onefold, Queue, Tenant

DAY: Final = timedelta(hours=24)
MINUTES: Final = timedelta(minutes=15)
ERRORS: Final = 5

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
    errors: tuple[Job, ...]
    """The newest jobs that are retrying or dead."""
    last_minutes: StatisticsTotal
    last_day: StatisticsTotal

    @property
    def headline(self) -> str:
        """One line about everything."""
        alive = sum(worker.alive for worker in self.workers)
        minutes, day = self.last_minutes, self.last_day
        return (
            f"{counted(sum(one.depth for one in self.queues), 'job')} due,"
            f" {sum(one.running for one in self.queues)} running, {counted(alive, 'worker')};"
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
    def error_rows(self) -> list[tuple[object, ...]]:
        """For a table."""
        return [
            (job.id, job.kind, job.state, problem(job.error, length=SHORT)) for job in self.errors
        ]


def look(onefold: Onefold, calls: Tenant) -> Overview:
    """Read everything; workers are of all tenants."""
    failing = calls.queues.count_failing()
    found = {queue.full_name: queue for queue in calls.queues.find()}
    names = sorted({*found, *failing})
    return Overview(
        tuple(
            _queue_status(name, found.get(name), failing.get(name, FailingCounts()))
            for name in names
        ),
        onefold.workers.find(),
        _failed(calls, failing.values()),
        calls.statistics.read(last=MINUTES, width=MINUTES).total,
        calls.statistics.read(last=DAY, width=DAY).total,
    )


def _queue_status(name: str, queue: Queue | None, failing: FailingCounts) -> QueueStatus:
    counts = (queue and queue.counts) or QueueCounts()
    return QueueStatus(
        name,
        counts.ready,
        None if queue is None else queue.oldest,
        counts.running,
        failing.retrying,
        counts.scheduled,
        failing.dead,
        queue is not None and queue.paused,
    )


def _failed(calls: Tenant, failing: Iterable[FailingCounts]) -> tuple[Job, ...]:
    numbers = tuple(failing)
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
