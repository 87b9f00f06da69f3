"""Queues over HTTP: create, get, list, pause and delete them, change their secrets."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import replace

from onefold.app.queues import OVERLAP
from onefold.errors import QueueNotFound
from onefold.model import checks
from onefold.model.lifecycle import Retention
from onefold.model.queue import CONFIDENTIAL, Queue, QueuePage, QueueSecrets, QueueSettings
from onefold.model.retry import DEFAULT_BACKOFF
from onefold.model.timestamps import Duration, as_duration
from onefold.model.wire import Body, Query, camel, members_of
from onefold.push.address import AddressPolicy, endpoint
from onefold.server.problems import QUEUE_NOT_EMPTY, QUEUE_NOT_FOUND
from onefold.server.request_context import Reply, RequestContext
from onefold.server.routing import RouteTable

ROUTES: Final = RouteTable("queues")
_QUEUES: Final = "/v1/queues"
_QUEUE: Final = "/v1/queues/{name}"


class QueuesQuery(Query):
    """A page of queues."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    """How many queues a page has at most."""
    after: str | None = None
    """The `next` of the page before."""
    counts: bool = True
    """The numbers of jobs in each queue; slow with millions of jobs."""


class QueueQuery(Query):
    """Options for one queue."""

    counts: bool = True
    """The numbers of jobs in the queue; slow with millions of jobs."""


class DeleteQueueQuery(Query):
    """How to remove a queue."""

    force: bool = False
    """Also remove the jobs in the queue."""


class SecretBody(Body):
    """A new secret."""

    signing_secret: str | None = None
    """`whsec_` and base64; left out, one is created."""
    overlap: Duration = msgspec.field(default_factory=lambda: as_duration(OVERLAP))
    """For how many seconds the old secret also signs; by default a day."""


@ROUTES.add("GET", _QUEUES, scope="work", query=QueuesQuery, answers={200: QueuePage})
async def list_queues(request: RequestContext) -> Reply:
    """List queues by name.

    One page per request. `counts=false` leaves the numbers of jobs out, which is faster.
    """
    query: QueuesQuery = request.query
    page = await request.calls.queues.afind(
        saved=True, after=query.after, limit=query.limit, counts=query.counts
    )
    return Reply(200, {"items": [_public(queue) for queue in page], "next": page.next})


@ROUTES.add("PUT", _QUEUE, scope="admin", body=QueueSettings, answers={200: Queue, 201: Queue})
async def put_queue(request: RequestContext) -> Reply:
    """Create a queue, or replace its settings.

    A setting that is left out has its default, not its earlier value. The secrets, and whether the
    queue is paused, stay as they are unless given. `{}` creates a queue that workers pull from.
    """
    name, settings = _name(request), request.body
    if settings.endpoint is not None:
        read = endpoint(settings.endpoint)
        AddressPolicy(request.server.settings.push_allow).check(read)
        settings = replace(settings, endpoint=read.url)
    try:
        saved = await request.calls.queues.asave(name, settings)
    finally:
        # Also after an error: the new settings may be stored.
        request.server.changed(request.tenant, name)
    return Reply(201 if saved.is_new else 200, _with_defaults(saved))


@ROUTES.add(
    "GET", _QUEUE, scope="work", query=QueueQuery, answers={200: Queue}, problems=(QUEUE_NOT_FOUND,)
)
async def get_queue(request: RequestContext) -> Reply:
    """Get a queue.

    Its settings, whether it is paused or held, and how many jobs it has in each state. Secrets and
    the values of headers are left out.
    """
    query: QueueQuery = request.query
    return Reply(200, _public(await _found(request, counts=query.counts)))


@ROUTES.add(
    "DELETE",
    _QUEUE,
    scope="admin",
    query=DeleteQueueQuery,
    answers={204: None},
    problems=(QUEUE_NOT_FOUND, QUEUE_NOT_EMPTY),
)
async def delete_queue(request: RequestContext) -> Reply:
    """Remove a queue.

    Rejected while it has queued or running jobs, unless forced.
    """
    name = _name(request)
    query: DeleteQueueQuery = request.query
    if not await request.calls.queues.adelete(name, force=query.force):
        raise QueueNotFound(name)
    request.server.changed(request.tenant, name)
    return Reply(204)


@ROUTES.add(
    "POST", f"{_QUEUE}/pause", scope="admin", answers={200: Queue}, problems=(QUEUE_NOT_FOUND,)
)
async def pause_queue(request: RequestContext) -> Reply:
    """Pause a queue: no worker or endpoint receives its jobs.

    Running jobs continue, and jobs can still be published to it. Safe to repeat.
    """
    await _found(request)
    return _changed(request, await request.calls.queues.apause(_name(request)))


@ROUTES.add(
    "POST", f"{_QUEUE}/resume", scope="admin", answers={200: Queue}, problems=(QUEUE_NOT_FOUND,)
)
async def resume_queue(request: RequestContext) -> Reply:
    """Resume a paused queue.

    Safe to repeat. A hold of the queue stays until it is over.
    """
    await _found(request)
    return _changed(request, await request.calls.queues.aresume(_name(request)))


@ROUTES.add(
    "GET",
    f"{_QUEUE}/secret",
    scope="admin",
    answers={200: QueueSecrets},
    problems=(QUEUE_NOT_FOUND,),
    secret=True,
)
async def get_secret(request: RequestContext) -> Reply:
    """Get the secrets that sign the pushes of a queue.

    Every secret that signs now, the newest first, and when each of them expires.
    """
    return _secrets(await _found(request))


@ROUTES.add(
    "POST",
    f"{_QUEUE}/secret",
    scope="admin",
    body=SecretBody,
    answers={200: QueueSecrets},
    problems=(QUEUE_NOT_FOUND,),
)
async def rotate_secret(request: RequestContext) -> Reply:
    """Sign with a new secret; the old one also signs for a while.

    Until `overlap` is over, every push is signed with both secrets, and x-simpleq-signature with
    the old one.
    """
    name, body = _name(request), request.body
    try:
        queue = await request.calls.queues.arotate_secret(
            name, secret=body.signing_secret, overlap=body.overlap
        )
    finally:
        request.server.changed(request.tenant, name)
    if queue is None:
        raise QueueNotFound(name)
    return _secrets(queue)


def _secrets(queue: Queue) -> Reply:
    return Reply(200, QueueSecrets(queue.signing_secret, queue.secrets))


def _changed(request: RequestContext, queue: Queue | None) -> Reply:
    name = _name(request)
    if queue is None:
        raise QueueNotFound(name)
    request.server.changed(request.tenant, name)
    return Reply(200, _public(queue))


def _public(queue: Queue) -> dict[str, Any]:
    """The members of a queue that every caller may see."""
    members = members_of(_with_defaults(queue))
    for name in CONFIDENTIAL:
        del members[camel(name)]
    return members


def _with_defaults(queue: Queue) -> Queue:
    return replace(
        queue,
        backoff=queue.backoff or DEFAULT_BACKOFF,
        retention=queue.retention or Retention(),
    )


async def _found(request: RequestContext, *, counts: bool = False) -> Queue:
    name = _name(request)
    queue = await request.calls.queues.aget(name, counts=counts)
    if queue is None:
        raise QueueNotFound(name)
    return queue


def _name(request: RequestContext) -> str:
    return checks.name(request.path["name"], "name")
