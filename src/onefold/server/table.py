"""Every route of the server, the busiest first: routing tries them in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.server.api import (
    batch,
    callbacks,
    claims,
    dead,
    events,
    jobs,
    keys,
    locks,
    publish,
    queues,
    schedules,
    steps,
)

if TYPE_CHECKING:
    from onefold.server.route import Route

ROUTES: Final[tuple[Route, ...]] = (
    *publish.ROUTES,
    *callbacks.ROUTES,
    *jobs.ROUTES,
    *batch.ROUTES,
    *claims.ROUTES,
    *locks.ROUTES,
    *steps.ROUTES,
    *queues.ROUTES,
    *dead.ROUTES,
    *schedules.ROUTES,
    *events.ROUTES,
    *keys.ROUTES,
)
