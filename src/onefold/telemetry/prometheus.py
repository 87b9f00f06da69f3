"""Prometheus: `instrument(onefold)` counts jobs, duplicates, webhooks and durations.

The labels are kinds, queues and outcomes, never tenants, keys or ids. The number of kinds and
queues is limited: a service may take them from its callers, and each pair costs memory.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from onefold.errors import Needs

with Needs("onefold[prometheus]"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram


from onefold.model.checks import without_tenant
from onefold.model.event import (
    DuplicatesSuppressed,
    Event,
    JobEnded,
    JobsEnqueued,
    JobStarted,
    LeasesExpired,
    Redelivered,
    WebhookAlarm,
    WebhookDuplicate,
    WebhookEvent,
    WebhookReceived,
    WebhookRejected,
    WriteFenced,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.app.onefold import Onefold

MOST_LABELS: Final = 200
"""Pairs of kind and queue with their own series. All others share one."""
OTHER: Final = "other"

# From a no-op to an hour: durations and waiting times of jobs have that range.
SECONDS: Final = (
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
)  # fmt: skip
LABELS: Final = ("kind", "queue")


def instrument(onefold: Onefold, registry: CollectorRegistry | None = None) -> Callable[[], None]:
    """Count events in `registry` or the default one; returns a function that ends this.

    Several Onefold objects may use one registry: they are counted together.
    """
    chosen = REGISTRY if registry is None else registry
    metrics = _known.get(chosen)
    if metrics is None:
        metrics = _known[chosen] = Metrics(chosen)
    return onefold.subscribe(metrics.count)


class Metrics:
    """The series of one registry, and the listener that updates them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the series."""
        self._pairs: set[tuple[str, str]] = set()
        self._enqueued_of: dict[tuple[str, str], Counter] = {}
        """Series by kind and queue: each enqueue counts."""
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=SECONDS)
        self._enqueued = counter("onefold_jobs_enqueued", "Jobs stored.", LABELS)
        self._duplicates = counter(
            "onefold_duplicates_suppressed",
            "Enqueues that were duplicates of a stored job.",
            LABELS,
        )
        self._redeliveries = counter("onefold_redeliveries", "Jobs that were taken again.", LABELS)
        self._fenced = counter(
            "onefold_fenced_writes",
            "Writes of deliveries that were rejected because the lease was lost.",
        )
        self._expiries = counter("onefold_lease_expiries", "Deliveries whose lease expired.")
        self._webhooks = counter(
            "onefold_webhooks",
            "Received webhooks by outcome.",
            ("provider", "endpoint", "outcome"),
        )
        self._jobs = counter("onefold_jobs", "Deliveries that ended.", (*LABELS, "outcome"))
        self._duration = histogram("onefold_job_duration_seconds", "Duration of handlers.", LABELS)
        self._wait = histogram(
            "onefold_job_wait_seconds",
            "Time between the due time of a job and the start of its handler.",
            LABELS,
        )

    def count(self, event: Event) -> None:  # noqa: C901 - a case per event
        """Count one event."""
        match event:
            case JobsEnqueued(kind, queue, count):
                series = self._enqueued_of.get((kind, queue))
                if series is None:
                    series = self._enqueued.labels(*self._pair(kind, queue))
                    if len(self._enqueued_of) < MOST_LABELS:
                        self._enqueued_of[kind, queue] = series
                series.inc(count)
            case DuplicatesSuppressed(kind, queue, count):
                self._duplicates.labels(*self._pair(kind, queue)).inc(count)
            case JobStarted(job, _, waited):
                self._wait.labels(*self._pair(job.kind, job.queue)).observe(waited.total_seconds())
            case JobEnded():
                self._ended(event)
            case Redelivered(job):
                self._redeliveries.labels(*self._pair(job.kind, job.queue)).inc()
            case WriteFenced():
                self._fenced.inc()
            case LeasesExpired(count):
                self._expiries.inc(count)
            case _ if isinstance(event, WebhookEvent):
                self._webhooks.labels(event.provider, event.endpoint, _outcome(event)).inc()
            case _:
                pass

    def _ended(self, event: JobEnded) -> None:
        pair = self._pair(event.job.kind, event.job.queue)
        self._jobs.labels(*pair, event.outcome).inc()
        if event.outcome != "handed back":  # its handler did not run
            self._duration.labels(*pair).observe(event.duration.total_seconds())

    def _pair(self, kind: str, queue: str) -> tuple[str, str]:
        pair = (kind, without_tenant(queue))
        if pair not in self._pairs:
            if len(self._pairs) >= MOST_LABELS:
                return (OTHER, OTHER)
            self._pairs.add(pair)
        return pair


def _outcome(event: WebhookEvent) -> str:
    """One of a few values: each is a label."""
    match event:
        case WebhookReceived():
            return event.outcome
        case WebhookDuplicate():
            return "duplicate"
        case WebhookRejected():
            return f"rejected: {event.code}"
        case WebhookAlarm():
            return f"alarm: {event.reason}"


_known: WeakKeyDictionary[CollectorRegistry, Metrics] = WeakKeyDictionary()
