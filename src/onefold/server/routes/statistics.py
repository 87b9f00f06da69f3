"""Statistics and workers over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from msgspec import Meta

from onefold.model import checks
from onefold.model.statistics import Statistics, WorkerList
from onefold.model.wire import Query
from onefold.server.auth import refuse_tenants
from onefold.server.request_context import RequestContext
from onefold.server.routing import Calls, RouteTable

ROUTES: Final = RouteTable("workers")


class StatisticsQuery(Query):
    """Which statistics to read."""

    last: Annotated[int, Meta(ge=60, le=86_400)] = 900
    """Seconds; a multiple of `width`."""
    width: Annotated[int, Meta(ge=60, le=86_400)] = 60
    """The length of a bucket in seconds; whole minutes."""
    queue: str | None = None
    """Of this queue only; by default of all queues."""


@ROUTES.add("GET", "/v1/statistics", scope="work")
async def read_statistics(calls: Calls, query: StatisticsQuery) -> Statistics:
    """Read what has happened lately.

    Completed, failed and suppressed work, times and backlog, in buckets of time. They are written
    behind, and a process that is killed loses its last seconds.
    """
    queue = None if query.queue is None else checks.name(query.queue, "queue")
    last, width = timedelta(seconds=query.last), timedelta(seconds=query.width)
    return await calls.statistics.aread(last=last, width=width, queue=queue)


@ROUTES.add("GET", "/v1/workers", scope="admin")
async def list_workers(request: RequestContext) -> WorkerList:
    """List the workers that run.

    By name, with their queues and the number of their jobs. They cover all tenants, so callers with
    a tenant are rejected.
    """
    refuse_tenants(request.tenant)
    return WorkerList(await request.onefold.workers.afind())
