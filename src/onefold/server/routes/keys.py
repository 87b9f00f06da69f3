"""Keys over HTTP: find keys and their holders; release and settle keys as an operator."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from onefold.errors import InvalidInput
from onefold.model.checks import qualified, shown
from onefold.model.stored_key import JOB, PUBLISH, KeyHolder, KeyPage, KeyState, StoredKey, Why
from onefold.model.wire import Body
from onefold.server.request_context import RequestContext
from onefold.server.routes.claims import Released, Settled
from onefold.server.routing import Calls, RouteTable
from onefold.web.idempotency.stored_response import MEDIA_TYPE, operator_result

K = TypeVar("K", StoredKey, KeyHolder)

ROUTES: Final = RouteTable("keys")

PageLimit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
Status: TypeAlias = Annotated[int, msgspec.Meta(ge=200, le=599)]
MediaType: TypeAlias = Annotated[str, msgspec.Meta(pattern=MEDIA_TYPE)]


class KeysQuery(Body):
    """Filters for keys; several together must all match."""

    surface: str | None = None
    """http, webhook, form, once, publish, lock, step, or one of your own."""
    scope: str | None = None
    """Only keys of this scope."""
    key: str | None = None
    """Only this key."""
    state: KeyState | None = None
    """Only keys in this state."""
    limit: PageLimit = 50
    """How many keys a page has at most."""
    after: str | None = None
    """The `next` of the page before."""


class HoldersQuery(Body):
    """A scope, and the request to compare the holders with."""

    scope: str | None = None
    """Only holders in this scope: the kind of a job, the queue of a publish key, the name of a
    `once`.
    """
    fingerprint: str | None = None
    """Of your request; each holder says whether it stands for that request."""
    payload: str | None = None
    """Instead of a fingerprint: the payload of a publish, as JSON."""


class WhyQuery(HoldersQuery, kw_only=True):
    """The same for all surfaces."""

    key: str
    """The key to explain."""
    surface: str | None = None
    """Only holders on this surface; by default all."""


class ReleaseKeyBody(Body):
    """Free this key, as an operator. Its holder is fenced off."""

    scope: str = ""
    """The scope of the key."""
    step: str | None = None
    """Only this step of its last attempt, by its label."""


class SettleKeyBody(Body):
    """Mark this key as done, as an operator. Its holder is fenced off."""

    scope: str = ""
    """The scope of the key."""
    result: Any = None
    """What later attempts receive."""
    status: Status | None = None
    """For http and form, instead of a result: the status of the response."""
    body: str = ""
    """With a status: the body of the response."""
    content_type: MediaType = "application/json"
    """With a status: the media type of the body."""
    step: str | None = None
    """Only this step of its last attempt, by its label."""


def _claimed(request: RequestContext) -> str:
    surface = request.path["surface"]
    if surface == JOB:
        raise InvalidInput(
            "surface", "'job' can only be read: cancel or delete the job to release its unique key"
        )
    return surface


Claimed: TypeAlias = Annotated[str, _claimed]
"""The surface in the path; not that of jobs."""


@ROUTES.add("GET", "/v1/keys", scope="admin")
async def list_keys(request: RequestContext, query: KeysQuery) -> KeyPage:
    """List the stored keys of all surfaces.

    One page per request, by filter.
    """
    page = await request.calls.keys.afind(
        limit=query.limit,
        after=query.after,
        surface=query.surface,
        scope=stored_scope(request.tenant, query.surface, query.scope),
        key=query.key,
        state=query.state,
    )
    return replace(page, keys=tuple(shown_key(request.tenant, key) for key in page))


@ROUTES.add("GET", "/v1/why", scope="admin")
async def why(request: RequestContext, query: WhyQuery) -> Why:
    """Why was a request a duplicate?

    All holders of the key: jobs by their unique keys, and claims of every surface; since when,
    until when, and the requests that each of them has suppressed.
    """
    return await _why(request, query.key, query.surface, query)


@ROUTES.add("GET", "/v1/keys/{surface}/{key}", scope="admin")
async def get_key(request: RequestContext, surface: str, key: str, query: HoldersQuery) -> Why:
    """The holders of a key of one surface.

    Every scope in which the key is held, with its state, its lease and its duplicates.
    """
    return await _why(request, key, surface, query)


async def _why(
    request: RequestContext, key: str, surface: str | None, query: WhyQuery | HoldersQuery
) -> Why:
    more: dict[str, Any] = {} if query.payload is None else {"payload": _read(query.payload)}
    found = await request.calls.keys.awhy(
        key,
        surface=surface,
        scope=stored_scope(request.tenant, surface, query.scope),
        fingerprint=query.fingerprint,
        **more,
    )
    return replace(found, holders=tuple(shown_holder(request.tenant, one) for one in found))


@ROUTES.add("POST", "/v1/keys/{surface}/{key}/release", scope="admin")
async def release_key(calls: Calls, surface: Claimed, key: str, body: ReleaseKeyBody) -> Released:
    """Release a key, also if another attempt holds it.

    The next request with this key runs. Use it if the first attempt does not come back.
    """
    scope = stored_scope(calls.context.tenant, surface, body.scope) or ""
    released = await calls.keys.aforce_release(scope, key, surface=surface, step=body.step)
    return Released(released=released)


@ROUTES.add("POST", "/v1/keys/{surface}/{key}/settle", scope="admin")
async def settle_key(calls: Calls, surface: Claimed, key: str, body: SettleKeyBody) -> Settled:
    """Mark a key as done, also if another attempt holds it.

    The next request with this key receives `result`. Use it if the work was done and its result
    is lost.
    """
    result = operator_result(
        "" if body.step else surface,
        body.result,
        status=body.status,
        body=body.body,
        media_type=body.content_type,
    )
    settled = await calls.keys.aforce_settle(
        body.scope, key, result, surface=surface, step=body.step
    )
    return Settled(settled=settled)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput("payload", "must be JSON") from None


def stored_scope(tenant: str, surface: str | None, scope: str | None) -> str | None:
    """The stored scope. That of a publish key is its queue, by the full name."""
    if scope and surface == PUBLISH:
        return qualified(tenant, scope)
    return scope


def shown_key(tenant: str, found: K) -> K:
    """The same with the tenant's own name for the queue of a publish key."""
    if found.surface != PUBLISH:
        return found
    return replace(found, scope=shown(tenant, found.scope))


def shown_holder(tenant: str, found: KeyHolder) -> KeyHolder:
    """The same with the tenant's own names for queues."""
    job = found.job
    if job is not None and job.queue is not None:
        job = replace(job, queue=shown(tenant, job.queue))
        found = replace(found, job=job)
    return shown_key(tenant, found)
