"""Jobs over HTTP: get one, find many, cancel, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from onefold.errors import JobNotFound
from onefold.model.attempt import AttemptList
from onefold.model.checks import qualified, shown
from onefold.model.job import JobPage
from onefold.model.timestamps import Moment
from onefold.model.wire import Answer, Body
from onefold.operations import attempts as history
from onefold.server.problems import JOB_NOT_FOUND, WRONG_STATE
from onefold.server.request_context import RequestContext
from onefold.server.routing import Calls, JobId, RouteTable
from onefold.server.simpleq import SimpleqJob, simpleq_job

if TYPE_CHECKING:
    from onefold.model.job import Job

ROUTES: Final = RouteTable("jobs")

PageLimit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=100)]


class JobFilters(Body):
    """Filters for jobs; several together must all match."""

    id: str | None = None
    """Only the job with this id, or jobs whose ids begin with these 8 or more digits."""
    kind: str | None = None
    """Only jobs of this kind."""
    unique_key: str | None = None
    """Only jobs with this unique key."""
    reason: str | None = None
    """`failed`, `poison`, `expired`, `ack timeout`, or the reason that a handler gave."""
    error_type: str | None = None
    """Only jobs whose last failure has this type."""
    tag: str | None = None
    """Only jobs with this tag."""
    text: str | None = None
    """Only jobs with this text in the payload, without regard to case. One request searches 2,000
    payloads."""
    created_from: Moment | None = None
    """Only jobs that were enqueued at this time or later."""
    created_before: Moment | None = None
    """Only jobs that were enqueued before this time."""
    ended_from: Moment | None = None
    """Only jobs that ended at this time or later."""
    ended_before: Moment | None = None
    """Only jobs that ended before this time."""

    def options(self) -> dict[str, Any]:
        """The filters as options of `find`."""
        return {name: getattr(self, name) for name in JobFilters.__struct_fields__}


class JobsQuery(JobFilters):
    """Filters, and a page."""

    state: tuple[str, ...] = ()
    """One or more of scheduled, ready, running, retrying, awaiting, completed, dead, cancelled."""
    queue: str | None = None
    """Only jobs of this queue."""
    limit: PageLimit = 50
    """How many jobs a page has at most."""
    after: str | None = None
    """The `next` of the page before."""
    newest_first: bool = False
    """True lists the newest job first."""


class CancelBody(Body):
    """The reason, for people."""

    reason: str | None = None
    """Why it is cancelled, for people."""


class Cancelled(Answer):
    """The job will not run again."""

    id: str
    """The id of the job."""
    already: bool
    """True if it was cancelled before."""


@ROUTES.add("GET", "/v1/jobs/{id}", scope="publish", problems=(JOB_NOT_FOUND,))
async def get_job(request: RequestContext, job_id: JobId) -> SimpleqJob:
    """Get a job.

    With the outcome of each of its last fifty deliveries, and the reason why it waits.
    """
    tenant = request.tenant
    job, attempts = await request.server.context.store.atransact(
        lambda sql: history.with_attempts(sql, tenant, job_id), write=False
    )
    waiting = await request.calls.deliveries.awhy(job_id)
    return simpleq_job(of_tenant(job), attempts, waiting)


@ROUTES.add("GET", "/v1/jobs/{id}/attempts", scope="publish", problems=(JOB_NOT_FOUND,))
async def get_attempts(calls: Calls, job_id: JobId) -> AttemptList:
    """List the deliveries of a job.

    The last fifty that have ended, and the current one; the newest last.
    """
    return AttemptList(tuple(await calls.deliveries.aattempts(job_id)))


@ROUTES.add("GET", "/v1/jobs", scope="publish")
async def find_jobs(request: RequestContext, query: JobsQuery) -> JobPage:
    """Find jobs by filter.

    One page per request; the oldest job is first by default. One request looks at 10,000 jobs, so
    a page by a filter may have few jobs or none, and a `next` that continues. A page ends after
    4 MiB.
    """
    page = await request.calls.afind(
        limit=query.limit,
        after=query.after,
        newest_first=query.newest_first,
        state=query.state or None,
        queue=None if query.queue is None else qualified(request.tenant, query.queue),
        **query.options(),
    )
    return page_of_tenant(page)


def page_of_tenant(page: JobPage) -> JobPage:
    """The page with the names of the queues as the tenant knows them."""
    return msgspec.structs.replace(page, jobs=tuple(map(of_tenant, page)))


def of_tenant(job: Job) -> Job:
    """The job with the name of its queue as its tenant knows it."""
    return msgspec.structs.replace(job, queue=shown(job.tenant, job.queue)) if job.tenant else job


@ROUTES.add("POST", "/v1/jobs/{id}/cancel", scope="publish", problems=(JOB_NOT_FOUND, WRONG_STATE))
async def cancel_job(calls: Calls, job_id: JobId, body: CancelBody) -> Cancelled:
    """Cancel a queued or running job.

    A running handler receives the cancellation with its next heartbeat; it may still end normally.
    """
    changed = await calls.acancel(job_id, reason=body.reason)
    return Cancelled(id=job_id, already=not changed)


@ROUTES.add("DELETE", "/v1/jobs/{id}", scope="admin", problems=(JOB_NOT_FOUND,))
async def delete_job(calls: Calls, job_id: JobId) -> None:
    """Delete a job in any state.

    Its unique key is free at once; its publish key is remembered.
    """
    if not await calls.adelete(job_id):
        raise JobNotFound(job_id)
