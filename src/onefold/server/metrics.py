"""`/metrics`: what Prometheus reads. Each process answers for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.server.asking import Said
from onefold.server.auth import refuse_tenants

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from onefold.app import Onefold
    from onefold.server.asking import Asking

METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
"""Any word may stand in the place of a method: others are counted as one."""
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)


class HttpMetrics:
    """The series of one process: requests, and what telemetry counts of jobs."""

    def __init__(self, onefold: Onefold) -> None:
        """In a registry of its own: the application around us may have others."""
        from prometheus_client import CollectorRegistry, Histogram

        from onefold.telemetry.prometheus import instrument

        self._registry: CollectorRegistry = CollectorRegistry()
        self._seconds = Histogram(
            "onefold_http_request_seconds",
            "Requests, by what was asked for and how it was answered.",
            ("method", "route", "status"),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._known: dict[tuple[str, str, int], Histogram] = {}
        self.stop: Callable[[], None] = instrument(onefold, self._registry)

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request has been answered."""
        method = method if method in METHODS else "other"
        series = self._known.get((method, route, status))
        if series is None:
            series = self._seconds.labels(method, route, str(status))
            self._known[method, route, status] = series
        series.observe(seconds)

    async def endpoint(self, asking: Asking) -> Said:
        """The text that Prometheus reads: it tells of everybody's queues, so no tenant may."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        refuse_tenants(asking.tenant)
        body = generate_latest(self._registry)
        return Said(200, body, (("content-type", CONTENT_TYPE_LATEST),))
