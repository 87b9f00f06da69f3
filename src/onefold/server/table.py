"""Every route of the server, the busiest first: routing tries them in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.server.api import (
    batch,
    callbacks,
    dead,
    events,
    jobs,
    publish,
    queues,
    schedules,
)

if TYPE_CHECKING:
    from onefold.server.route import Route

ROUTES: Final[tuple[Route, ...]] = (
    *publish.ROUTES,
    *callbacks.ROUTES,
    *jobs.ROUTES,
    *batch.ROUTES,
    *queues.ROUTES,
    *dead.ROUTES,
    *schedules.ROUTES,
    *events.ROUTES,
)
