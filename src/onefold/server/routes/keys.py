"""Keys over HTTP: find keys and their holders; release and settle keys as an operator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.checks import qualified, shown
from onefold.model.stored_key import JOB, PUBLISH, KeyHolder, KeyPage, KeyState, StoredKey, Why
from onefold.model.wire import Answer, Body
from onefold.server.request_context import Reply, Route
from onefold.web import http as stored

if TYPE_CHECKING:
    from onefold.server.request_context import RequestContext

K = TypeVar("K", StoredKey, KeyHolder)

PageLimit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
Status: TypeAlias = Annotated[int, msgspec.Meta(ge=200, le=599)]
MediaType: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[!-~][ -~]{0,254}$(?!\n)")]
"""A header value without line breaks."""

ANSWERED: Final = frozenset({"form", "http"})
"""The surfaces whose results are HTTP responses."""


class KeysQuery(Body):
    """Filters for keys; several together must all match."""

    surface: str | None = None
    """http, webhook, form, once, publish, lock, step, or one of your own."""
    scope: str | None = None
    key: str | None = None
    state: KeyState | None = None
    limit: PageLimit = 50
    after: str | None = None
    """The `next` of the page before."""


class WhyQuery(Body):
    """Filters for holders, and the request to compare them with."""

    key: str
    surface: str | None = None
    scope: str | None = None
    fingerprint: str | None = None
    """Of your request; each holder says whether it stands for that request."""
    payload: str | None = None
    """Instead of a fingerprint: the payload of a publish, as JSON."""


class HoldersQuery(Body):
    """The same for one surface and one key."""

    scope: str | None = None
    fingerprint: str | None = None
    payload: str | None = None


class ReleaseKeyBody(Body):
    """Free this key, as an operator. Its holder is fenced off."""

    scope: str = ""
    step: str | None = None
    """Only this step of its last attempt, by its label."""


class SettleKeyBody(Body):
    """Mark this key as done, as an operator. Its holder is fenced off."""

    scope: str = ""
    result: Any = None
    """What later attempts receive."""
    status: Status | None = None
    """For http and form, instead of a result: the status of the response."""
    body: str = ""
    content_type: MediaType = "application/json"
    step: str | None = None


class KeyReleased(Answer):
    """Whether there was anything to free."""

    released: bool


class KeySettled(Answer):
    """Whether there was anything to settle."""

    settled: bool


async def list_keys(asking: RequestContext) -> Reply:
    """A page of keys."""
    query: KeysQuery = asking.query
    page = await asking.calls.keys.afind(
        limit=query.limit,
        after=query.after,
        surface=query.surface,
        scope=_stored(asking, query.surface, query.scope),
        key=query.key,
        state=query.state,
    )
    return Reply(200, replace(page, keys=tuple(_shown(asking, key) for key in page)))


async def why(asking: RequestContext) -> Reply:
    """The holders of a key, on all surfaces."""
    query: WhyQuery = asking.query
    return await _why(asking, query.key, query.surface, query)


async def holders(asking: RequestContext) -> Reply:
    """The holders of a key of one surface."""
    return await _why(asking, asking.path["key"], asking.path["surface"], asking.query)


async def _why(
    asking: RequestContext, key: str, surface: str | None, query: WhyQuery | HoldersQuery
) -> Reply:
    more: dict[str, Any] = {} if query.payload is None else {"payload": _read(query.payload)}
    found = await asking.calls.keys.awhy(
        key,
        surface=surface,
        scope=_stored(asking, surface, query.scope),
        fingerprint=query.fingerprint,
        **more,
    )
    return Reply(200, replace(found, holders=tuple(_holder(asking, one) for one in found)))


async def release(asking: RequestContext) -> Reply:
    """Free a key as an operator."""
    body: ReleaseKeyBody = asking.body
    surface, key = _claimed(asking), asking.path["key"]
    scope = _stored(asking, surface, body.scope) or ""
    released = await asking.calls.keys.aforce_release(scope, key, surface=surface, step=body.step)
    return Reply(200, KeyReleased(released=released))


async def settle(asking: RequestContext) -> Reply:
    """Mark a key as done, as an operator."""
    body: SettleKeyBody = asking.body
    surface, key = _claimed(asking), asking.path["key"]
    result = _result(body, "" if body.step else surface)
    settled = await asking.calls.keys.aforce_settle(
        body.scope, key, result, surface=surface, step=body.step
    )
    return Reply(200, KeySettled(settled=settled))


def _claimed(asking: RequestContext) -> str:
    surface = asking.path["surface"]
    if surface == JOB:
        raise InvalidInput(
            "surface", "'job' is for looking: a unique key goes with its job; cancel or delete that"
        )
    return surface


def _result(body: SettleKeyBody, surface: str) -> Any:
    if surface not in ANSWERED:
        if body.status is not None or body.body:
            raise ConflictingOptions("status", "and body are for keys of http and form alone")
        return body.result
    if body.status is None or body.result is not None:
        raise InvalidInput("status", f"is required for a key of {surface}, instead of a result")
    headers = (("Content-Type", body.content_type),) if body.body else ()
    told = stored.HttpResponse(body.status, headers, body.body.encode())
    return json.loads(stored.to_stored(told, stored.Kept()))


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput("payload", "must be JSON") from None


def _stored(asking: RequestContext, surface: str | None, scope: str | None) -> str | None:
    """The stored scope. That of a publish key is its queue, by the full name."""
    if scope and surface == PUBLISH:
        return qualified(asking.tenant, scope)
    return scope


def _shown(asking: RequestContext, found: K) -> K:
    """The same with the tenant's own name for the queue of a publish key."""
    if found.surface != PUBLISH:
        return found
    return replace(found, scope=shown(asking.tenant, found.scope))


def _holder(asking: RequestContext, found: KeyHolder) -> KeyHolder:
    job = found.job
    if job is not None and job.queue is not None:
        job = replace(job, queue=shown(asking.tenant, job.queue))
        found = replace(found, job=job)
    return _shown(asking, found)


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/keys",
        name="listKeys",
        summary="Stored keys of every surface",
        description="A page at a time, by filter.",
        scope="admin",
        endpoint=list_keys,
        query=KeysQuery,
        answers={200: KeyPage},
    ),
    Route(
        method="GET",
        path="/v1/why",
        name="why",
        summary="Why was I deduplicated?",
        description=(
            "Everybody who has this key: jobs by their unique keys, and claims of every surface;"
            " since when, until when, and the requests that each has kept away."
        ),
        scope="admin",
        endpoint=why,
        query=WhyQuery,
        answers={200: Why},
    ),
    Route(
        method="GET",
        path="/v1/keys/{surface}/{key}",
        name="getKey",
        summary="Who has a key of one surface",
        description=(
            "Every scope in which the key is held, with its state, its lease and its duplicates."
        ),
        scope="admin",
        endpoint=holders,
        query=HoldersQuery,
        answers={200: Why},
    ),
    Route(
        method="POST",
        path="/v1/keys/{surface}/{key}/release",
        name="releaseKey",
        summary="Free a key, whoever has it",
        description=(
            "The next request with this key runs. Use it where the first will not come back."
        ),
        scope="admin",
        endpoint=release,
        body=ReleaseKeyBody,
        body_optional=True,
        answers={200: KeyReleased},
    ),
    Route(
        method="POST",
        path="/v1/keys/{surface}/{key}/settle",
        name="settleKey",
        summary="Say that a key is done, whoever has it",
        description=(
            "The next request with this key is given `result`. Use it where the work was done"
            " and the answer is lost."
        ),
        scope="admin",
        endpoint=settle,
        body=SettleKeyBody,
        body_optional=True,
        answers={200: KeySettled},
    ),
)
