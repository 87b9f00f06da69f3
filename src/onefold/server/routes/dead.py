"""Dead letters over HTTP: list, replay and delete."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta

from onefold.model.checks import qualified
from onefold.model.job import Enqueued, EnqueuedMany, JobPage
from onefold.model.wire import Answer, Body
from onefold.server.problems import GONE, JOB_NOT_FOUND, QUEUE_NOT_FOUND, WRONG_STATE
from onefold.server.request_context import RequestContext
from onefold.server.routes.jobs import JobFilters, PageLimit, page_of_tenant
from onefold.server.routing import Calls, JobId, Name, RouteTable

ROUTES: Final = RouteTable("dead letters")
_DEAD: Final = "/v1/queues/{name}/dead"

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]

LIMIT: Final = 1_000
"""The default limit of one request: it takes a second or two."""


class DeadQuery(JobFilters):
    """A page of dead letters, the newest first."""

    limit: PageLimit = 50
    """How many dead letters a page has at most."""
    after: str | None = None
    """The `next` of the page before."""


class ReplayManyBody(JobFilters):
    """Which dead letters to replay."""

    fresh: bool = False
    """Forget finished steps: every step runs again."""
    limit: Limit = LIMIT
    """How many dead letters are replayed at most."""
    after: str | None = None
    """The `next` of a response that reached its limit."""


class DeleteQuery(JobFilters):
    """Which dead letters to delete."""

    limit: Limit = LIMIT
    """How many dead letters are deleted at most."""


class ReplayBody(Body):
    """How to replay a job."""

    fresh: bool = False
    """Forget finished steps; a completed job may run again, too."""


class Deleted(Answer):
    """How many dead letters were deleted."""

    deleted: int
    """How many dead letters were deleted."""
    more: bool
    """True if the limit was reached: there may be more."""


@ROUTES.add("GET", _DEAD, scope="work", problems=(QUEUE_NOT_FOUND,))
async def list_dead(request: RequestContext, name: Name, query: DeadQuery) -> JobPage:
    """List the dead letters of a queue, the newest first.

    One page per request, by filter: kind, reason, type of error, tag, time. A page ends
    after 4 MiB.
    """
    page = await request.calls.afind(
        limit=query.limit, after=query.after, newest_first=True, **_filters(request, name, query)
    )
    if not page.jobs:
        await _check_queue(request, name)
    return page_of_tenant(page)


@ROUTES.add("DELETE", _DEAD, scope="admin", problems=(QUEUE_NOT_FOUND,))
async def delete_dead(request: RequestContext, name: Name, query: DeleteQuery) -> Deleted:
    """Remove dead letters by filter, and free their keys.

    Safe to repeat. A dead letter that changes meanwhile is not deleted.
    """
    deleted = await request.calls.dead.adelete(limit=query.limit, **_filters(request, name, query))
    if not deleted:
        await _check_queue(request, name)
    return Deleted(deleted=deleted, more=deleted >= query.limit)


@ROUTES.add("POST", f"{_DEAD}/replay", scope="admin", problems=(QUEUE_NOT_FOUND,))
async def replay_dead(request: RequestContext, name: Name, body: ReplayManyBody) -> EnqueuedMany:
    """Replay dead letters by filter.

    Safe to repeat: a replayed job is no longer a dead letter. With an Idempotency-Key, a repeat
    receives the same response. A dead letter whose key a newer job holds does not change, and the
    response names that job.
    """
    many = await request.calls.dead.areplay(
        fresh=body.fresh, limit=body.limit, after=body.after, **_filters(request, name, body)
    )
    if not many.items:
        await _check_queue(request, name)
    return many


@ROUTES.add(
    "POST", "/v1/jobs/{id}/replay", scope="admin", problems=(JOB_NOT_FOUND, WRONG_STATE, GONE)
)
async def replay_job(calls: Calls, job_id: JobId, body: ReplayBody) -> Enqueued:
    """Replay a dead or cancelled job.

    If a newer job holds its key, nothing changes, and the response names that job. With `fresh`, a
    completed job may run again, too.
    """
    return await calls.areplay(job_id, fresh=body.fresh)


def _filters(request: RequestContext, name: str, filters: JobFilters) -> dict[str, Any]:
    return {"state": "dead", "queue": qualified(request.tenant, name), **filters.options()}


async def _check_queue(request: RequestContext, name: str) -> None:
    """Raise an error if there is no such queue. Only called if no job was found."""
    await request.server.queues.get(request.tenant, name)
