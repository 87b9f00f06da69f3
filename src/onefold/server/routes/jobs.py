"""Jobs over HTTP: get one, find many, cancel, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from onefold.errors import InvalidInput, JobNotFound
from onefold.model.checks import qualified, shown
from onefold.model.ids import parse_id
from onefold.model.job import AttemptList, JobPage
from onefold.model.timestamps import Moment
from onefold.model.wire import Answer, Body, Query
from onefold.operations import attempts as history
from onefold.server.request_context import Reply, Route
from onefold.server.simpleq import SimpleqJob, simpleq_job

if TYPE_CHECKING:
    from onefold.model.job import Job
    from onefold.server.request_context import RequestContext

LONGEST_PAGE: Final = 100
"""Jobs on a page: each may have a payload of a mebibyte."""
_SHOWN: Final = 100


class JobsQuery(Query):
    """Filters; several together must all match."""

    state: tuple[str, ...] = ()
    """One or more of scheduled, ready, running, retrying, awaiting, completed, dead, cancelled."""
    queue: str | None = None
    kind: str | None = None
    unique_key: str | None = None
    reason: str | None = None
    error_type: str | None = None
    tag: str | None = None
    created_from: Moment | None = None
    created_before: Moment | None = None
    ended_from: Moment | None = None
    ended_before: Moment | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_PAGE)] = 50
    after: str | None = None
    """The `next` of the page before."""
    newest_first: bool = False


class CancelBody(Body):
    """The reason, for people."""

    reason: str | None = None


class Cancelled(Answer):
    """The job will not run again."""

    id: str
    already: bool
    """True if it was cancelled before."""


def job_id_of(asking: RequestContext) -> str:
    """The id in the path; a text that is not an id raises `JobNotFound`."""
    given = asking.path["id"]
    try:
        return parse_id(given)
    except InvalidInput as error:
        raise JobNotFound(repr(given[:_SHOWN])) from error


async def get_job(asking: RequestContext) -> Reply:
    """One job, with the history of its deliveries."""
    job_id, tenant = job_id_of(asking), asking.tenant
    job, attempts = await asking.server.context.store.atransact(
        lambda sql: history.with_attempts(sql, tenant, job_id), write=False
    )
    return Reply(200, simpleq_job(of_tenant(job), attempts))


async def get_attempts(asking: RequestContext) -> Reply:
    """The deliveries of one job."""
    attempts = await asking.calls.deliveries.aattempts(job_id_of(asking))
    return Reply(200, AttemptList(tuple(attempts)))


async def find_jobs(asking: RequestContext) -> Reply:
    """Jobs by filter, one page per request."""
    query: JobsQuery = asking.query
    page = await asking.calls.afind(
        limit=query.limit,
        after=query.after,
        newest_first=query.newest_first,
        state=query.state or None,
        queue=None if query.queue is None else qualified(asking.tenant, query.queue),
        kind=query.kind,
        unique_key=query.unique_key,
        reason=query.reason,
        error_type=query.error_type,
        tag=query.tag,
        created_from=query.created_from,
        created_before=query.created_before,
        ended_from=query.ended_from,
        ended_before=query.ended_before,
    )
    return Reply(200, page_of_tenant(page))


def page_of_tenant(page: JobPage) -> JobPage:
    """The page with the names of the queues as the tenant knows them."""
    return JobPage(tuple(map(of_tenant, page)), page.next)


def of_tenant(job: Job) -> Job:
    """The job with the name of its queue as its tenant knows it."""
    return msgspec.structs.replace(job, queue=shown(job.tenant, job.queue)) if job.tenant else job


async def cancel_job(asking: RequestContext) -> Reply:
    """Stop a queued or running job."""
    job_id = job_id_of(asking)
    body: CancelBody = asking.body
    changed = await asking.calls.acancel(job_id, reason=body.reason)
    return Reply(200, Cancelled(id=job_id, already=not changed))


async def delete_job(asking: RequestContext) -> Reply:
    """Remove a job in any state, and release its unique key."""
    job_id = job_id_of(asking)
    if not await asking.calls.adelete(job_id):
        raise JobNotFound(job_id)
    return Reply(204)


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/jobs/{id}",
        name="getJob",
        summary="Look at a job",
        description="How it stands, and how each of its last fifty deliveries has ended.",
        scope="publish",
        endpoint=get_job,
        answers={200: SimpleqJob},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/attempts",
        name="getAttempts",
        summary="The deliveries of a job",
        description="The last fifty that have ended, and the current one; the newest last.",
        scope="publish",
        endpoint=get_attempts,
        answers={200: AttemptList},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/jobs",
        name="findJobs",
        summary="Find jobs",
        description="Oldest first unless told otherwise.",
        scope="publish",
        endpoint=find_jobs,
        query=JobsQuery,
        answers={200: JobPage},
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/cancel",
        name="cancelJob",
        summary="Cancel a job",
        description="What is running is told by its next heartbeat, and may still come to its end.",
        scope="publish",
        endpoint=cancel_job,
        body=CancelBody,
        body_optional=True,
        answers={200: Cancelled},
        problems=(404, 409),
    ),
    Route(
        method="DELETE",
        path="/v1/jobs/{id}",
        name="deleteJob",
        summary="Delete a job",
        description="In any state. Its unique key is free at once; its publish key is remembered.",
        scope="admin",
        endpoint=delete_job,
        answers={204: None},
        problems=(404,),
    ),
)
