"""The access log: one line for each request, with its id, and the counters of the same."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onefold.server.incoming import Scope
    from onefold.server.metrics import HttpMetrics

access: logging.Logger = logging.getLogger("onefold.access")


class Known:
    """What is known of a request, as far as it came."""

    __slots__ = ("is_coming", "principal", "request_id")

    def __init__(self, request_id: str) -> None:
        """Nobody in particular has asked yet."""
        self.request_id: str = request_id
        self.principal: str = "-"
        self.is_coming: bool = False
        """Whether we wait for its client, who may be slow, and not for what is ours."""


class AccessLog:
    """Notes every request. Never a query, a key or a body: they may be secrets."""

    def __init__(self, metrics: HttpMetrics | None, *, wanted: bool) -> None:
        """`wanted` says whether lines are written; counters always move."""
        self._metrics = metrics
        self._wanted = wanted

    def note(
        self, scope: Scope, template: str, status: int, *, started: float, known: Known
    ) -> None:
        """A request has been answered; 499 is one whose client has gone."""
        seconds = time.perf_counter() - started
        if self._metrics is not None:
            self._metrics.note(scope["method"], template, status, seconds)
        if self._wanted and access.isEnabledFor(logging.INFO):
            client = scope.get("client")
            access.info(
                "%s %s %s %d %.1f ms %s %s",
                "-" if client is None else client[0],
                scope["method"],
                _shown(scope["path"]),
                status,
                seconds * 1000,
                known.principal,
                known.request_id,
            )


def _shown(path: str) -> str:
    """A path on one line, whatever a caller has put into it, and a server has decoded."""
    return path if path.isascii() and path.isprintable() else ascii(path)[1:-1]
