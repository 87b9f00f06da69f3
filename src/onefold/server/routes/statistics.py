"""Statistics and workers over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from onefold.model import checks
from onefold.model.statistics import Statistics, WorkerList
from onefold.model.wire import Query
from onefold.server.auth import refuse_tenants
from onefold.server.request_context import Reply, RouteTable

if TYPE_CHECKING:
    from onefold.server.request_context import RequestContext

ROUTES: Final = RouteTable("workers")


class StatisticsQuery(Query):
    """Which statistics to read."""

    last: Annotated[int, Meta(ge=60, le=86_400)] = 900
    """Seconds; a multiple of `width`."""
    width: Annotated[int, Meta(ge=60, le=86_400)] = 60
    """The length of a bucket in seconds; whole minutes."""
    queue: str | None = None
    """Of this queue only; by default of all queues."""


@ROUTES.add("GET", "/v1/statistics", scope="work", query=StatisticsQuery, answers={200: Statistics})
async def read_statistics(request: RequestContext) -> Reply:
    """Read what has happened lately.

    Completed, failed and suppressed work, times and backlog, in buckets of time. They are written
    behind, and a process that is killed loses its last seconds.
    """
    query: StatisticsQuery = request.query
    queue = None if query.queue is None else checks.name(query.queue, "queue")
    last, width = timedelta(seconds=query.last), timedelta(seconds=query.width)
    found = await request.calls.statistics.aread(last=last, width=width, queue=queue)
    return Reply(200, found)


@ROUTES.add("GET", "/v1/workers", scope="admin", answers={200: WorkerList})
async def list_workers(request: RequestContext) -> Reply:
    """List the workers that run.

    By name, with their queues and the number of their jobs. They cover all tenants, so callers with
    a tenant are rejected.
    """
    refuse_tenants(request.tenant)
    return Reply(200, WorkerList(await request.onefold.workers.afind()))
