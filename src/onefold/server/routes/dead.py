"""Dead letters over HTTP: list, replay and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from msgspec import Meta

from onefold.model import checks
from onefold.model.checks import qualified
from onefold.model.job import Enqueued, EnqueuedMany, JobPage
from onefold.model.timestamps import Moment
from onefold.model.wire import Answer, Body
from onefold.server.request_context import Reply, Route
from onefold.server.routes.jobs import job_id_of, page_of_tenant

if TYPE_CHECKING:
    from onefold.app.jobs import FindOptions
    from onefold.server.request_context import RequestContext

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]
PageLimit: TypeAlias = Annotated[int, Meta(ge=1, le=1_000)]

LIMIT: Final = 1_000
"""The default limit of one request: it takes a second or two."""


class Letters(Body):
    """Filters for dead letters; several together must all match."""

    kind: str | None = None
    unique_key: str | None = None
    reason: str | None = None
    """`failed`, `poison`, `expired`, `ack timeout`, or the reason that a handler gave."""
    error_type: str | None = None
    tag: str | None = None
    created_from: Moment | None = None
    created_before: Moment | None = None
    ended_from: Moment | None = None
    ended_before: Moment | None = None


class DeadQuery(Letters):
    """A page of dead letters, the newest first."""

    limit: PageLimit = 50
    after: str | None = None
    """The `next` of the page before."""


class ReplayManyBody(Letters):
    """Which dead letters to replay."""

    fresh: bool = False
    """Forget finished steps: every step runs again."""
    limit: Limit = LIMIT
    after: str | None = None
    """The `next` of a response that reached its limit."""


class DeleteQuery(Letters):
    """Which dead letters to delete."""

    limit: Limit = LIMIT


class ReplayBody(Body):
    """How to replay a job."""

    fresh: bool = False
    """Forget finished steps; a completed job may run again, too."""


class DeleteAnswer(Answer):
    """How many dead letters were deleted."""

    deleted: int
    more: bool
    """True if the limit was reached: there may be more."""


async def list_dead(asking: RequestContext) -> Reply:
    """A page of a queue's dead letters."""
    query: DeadQuery = asking.query
    page = await asking.calls.afind(
        limit=query.limit, after=query.after, newest_first=True, **_filters(asking, query)
    )
    if not page.jobs:
        await _check_queue(asking)
    return Reply(200, page_of_tenant(page))


async def replay_job(asking: RequestContext) -> Reply:
    """Replay one job."""
    body: ReplayBody = asking.body
    enqueued = await asking.calls.areplay(job_id_of(asking), fresh=body.fresh)
    return Reply(200, enqueued)


async def replay_dead(asking: RequestContext) -> Reply:
    """Replay a queue's dead letters, one transaction per batch."""
    body: ReplayManyBody = asking.body
    many = await asking.calls.dead.areplay(
        fresh=body.fresh, limit=body.limit, after=body.after, **_filters(asking, body)
    )
    if not many.items:
        await _check_queue(asking)
    return Reply(200, many)


async def delete_dead(asking: RequestContext) -> Reply:
    """Delete a queue's dead letters, and release their keys."""
    query: DeleteQuery = asking.query
    deleted = await asking.calls.dead.adelete(limit=query.limit, **_filters(asking, query))
    if not deleted:
        await _check_queue(asking)
    return Reply(200, DeleteAnswer(deleted=deleted, more=deleted >= query.limit))


def _filters(asking: RequestContext, letters: Letters) -> FindOptions:
    return {
        "state": "dead",
        "queue": qualified(asking.tenant, _name(asking)),
        "kind": letters.kind,
        "unique_key": letters.unique_key,
        "reason": letters.reason,
        "error_type": letters.error_type,
        "tag": letters.tag,
        "created_from": letters.created_from,
        "created_before": letters.created_before,
        "ended_from": letters.ended_from,
        "ended_before": letters.ended_before,
    }


async def _check_queue(asking: RequestContext) -> None:
    """Raise an error if there is no such queue. Only called if no job was found."""
    await asking.server.queues.get(asking.tenant, _name(asking))


def _name(asking: RequestContext) -> str:
    return checks.name(asking.path["name"], "name")


_PATH: Final = "/v1/queues/{name}/dead"

ROUTES: Final = (
    Route(
        method="GET",
        path=_PATH,
        name="listDead",
        summary="The dead letters of a queue, the newest first",
        description="A page at a time, by filter: kind, reason, type of error, tag, time.",
        endpoint=list_dead,
        scope="work",
        query=DeadQuery,
        answers={200: JobPage},
        problems=(404,),
    ),
    Route(
        method="DELETE",
        path=_PATH,
        name="deleteDead",
        summary="Remove dead letters by filter, and free their keys",
        description="Safe to repeat. A letter that changes meanwhile is left alone.",
        endpoint=delete_dead,
        scope="admin",
        query=DeleteQuery,
        answers={200: DeleteAnswer},
        problems=(404,),
    ),
    Route(
        method="POST",
        path=f"{_PATH}/replay",
        name="replayDead",
        summary="Send dead letters round again, by filter",
        description="Safe to repeat: what has been replayed is no dead letter any more. With an"
        " Idempotency-Key, a repeat is given the same answer. A letter whose key a newer job holds"
        " stays where it is, and the answer names that job.",
        endpoint=replay_dead,
        scope="admin",
        body=ReplayManyBody,
        body_optional=True,
        answers={200: EnqueuedMany},
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/replay",
        name="replayJob",
        summary="Send a dead or cancelled job round again",
        description="Where a newer job holds its key, the answer names that job, and nothing is"
        " changed. With `fresh`, a completed job may be run again, too.",
        endpoint=replay_job,
        scope="admin",
        body=ReplayBody,
        body_optional=True,
        answers={200: Enqueued},
        problems=(404, 409, 410),
    ),
)
