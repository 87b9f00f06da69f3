"""`/metrics` for Prometheus. Each process of `onefold serve` returns the numbers of all of them.

The processes count in shared files, by means of prometheus_client, so the counts of a dead process
remain. The gauges of queues are read from the database.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onefold.errors import Needs, OnefoldError, UsageError
from onefold.server.auth import refuse_tenants
from onefold.server.request_context import Reply

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from prometheus_client import CollectorRegistry, Metric

    from onefold.app.onefold import Onefold
    from onefold.model.queue import Queue
    from onefold.server.request_context import RequestContext

FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""If it is set, prometheus_client counts in files of this folder."""
PATIENCE: Final = 5.0
"""Seconds that the query of the gauges may take."""
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)

log: logging.Logger = logging.getLogger("onefold.server")


@contextmanager
def counted_together(processes: int) -> Generator[None]:
    """Let several processes count in one temporary folder."""
    if processes == 1:
        yield
        return
    try:
        folder = tempfile.mkdtemp(prefix="onefold-metrics-")
    except OSError as error:
        raise UsageError(
            f"Several processes need a temporary folder for their counters: {error}."
            " Set TMPDIR to a folder that can be written, or serve with one process."
        ) from error
    os.environ[FOLDER] = folder
    try:
        yield
    finally:
        del os.environ[FOLDER]
        shutil.rmtree(folder, ignore_errors=True)


class HttpMetrics:
    """The metrics of a server: requests, and the job metrics of the telemetry."""

    def __init__(self, onefold: Onefold) -> None:
        """Use an own registry: the surrounding application may have others."""
        with Needs("onefold[server]"):
            from prometheus_client import CollectorRegistry, Histogram

        from onefold.telemetry.prometheus import instrument

        self._registry: CollectorRegistry = CollectorRegistry()
        self.seconds: Histogram = Histogram(
            "onefold_http_request_seconds",
            "HTTP requests, by method, route and status.",
            ("method", "route", "status"),
            buckets=SECONDS,
            registry=self._registry,
        )
        instrument(onefold, self._registry)

    async def metrics(self, request: RequestContext) -> Reply:
        """Metrics for Prometheus.

        They cover all tenants, so callers with a tenant are rejected.
        """
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        refuse_tenants(request.tenant)
        scrape = _Scrape(self._registry, await _queues(request))
        # Thousands of series take a tenth of a second or more: other requests must not wait.
        body = await asyncio.to_thread(generate_latest, scrape)
        return Reply(200, body, (("content-type", CONTENT_TYPE_LATEST),))


async def _queues(request: RequestContext) -> Sequence[Queue]:
    """The queues with their counts; empty if the database is not available."""
    try:
        async with asyncio.timeout(PATIENCE):
            return (await request.onefold.queues.afind()).queues
    except (OnefoldError, TimeoutError) as error:
        log.warning("The gauges of queues are left out of a scrape: %r", error)
        return []


class _Scrape:
    """The metrics of a registry or of all processes, and the gauges of queues."""

    def __init__(self, registry: CollectorRegistry, queues: Sequence[Queue]) -> None:
        self._registry = registry
        self._queues = queues

    def collect(self) -> Iterable[Metric]:
        folder = os.environ.get(FOLDER)
        yield from self._registry.collect() if folder is None else _all_processes(Path(folder))
        yield from queue_gauges(self._queues)


def queue_gauges(queues: Sequence[Queue]) -> Iterable[Metric]:
    """Depth, age and running jobs by queue; queues of the same name are summed over tenants."""
    from prometheus_client.core import GaugeMetricFamily

    depth = GaugeMetricFamily(
        "onefold_queue_depth", "Jobs that wait, by whether they are due.", labels=("queue", "state")
    )
    oldest = GaugeMetricFamily(
        "onefold_queue_oldest_ready_seconds",
        "For how long the oldest job that is due has been due.",
        labels=("queue",),
    )
    running = GaugeMetricFamily("onefold_queue_running", "Jobs that run.", labels=("queue",))
    for name, found in _by_label(queues).items():
        counts = [queue.counts for queue in found if queue.counts is not None]
        depth.add_metric((name, "ready"), sum(each.ready for each in counts))
        depth.add_metric((name, "scheduled"), sum(each.scheduled for each in counts))
        ages = [queue.oldest.total_seconds() for queue in found if queue.oldest is not None]
        oldest.add_metric((name,), max(ages, default=0))
        running.add_metric((name,), sum(each.running for each in counts))
    return (depth, oldest, running)


def _by_label(queues: Sequence[Queue]) -> Mapping[str, Sequence[Queue]]:
    """Tenants are not labels, and the number of names is limited."""
    from onefold.telemetry.prometheus import MOST_LABELS, OTHER

    labels: dict[str, list[Queue]] = {}
    for queue in queues:
        name = queue.name
        if name not in labels and len(labels) >= MOST_LABELS:
            name = OTHER
        labels.setdefault(name, []).append(queue)
    return labels


def _all_processes(folder: Path) -> Iterable[Metric]:
    """Only our own metrics: the surrounding application may count there, too."""
    from prometheus_client.multiprocess import MultiProcessCollector

    # A file that another process is creating is empty, and cannot be read.
    files = [str(file) for file in folder.glob("*.db") if file.stat().st_size]
    untyped: Any = MultiProcessCollector
    found: Iterable[Metric] = untyped.merge(files)
    return [metric for metric in found if metric.name.startswith("onefold_")]
