"""Routes: an endpoint is a function, and its annotations say what it takes and what it returns.

@ROUTES.add("POST", "/v1/jobs/{id}/ack", scope="work", problems=(JOB_NOT_FOUND, LEASE_LOST))
async def acknowledge_job(calls: Calls, job_id: JobId, body: AckBody) -> SimpleqEnded: ...

Routing, the dispatch and the OpenAPI document read the same table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import getdoc
from operator import attrgetter, itemgetter
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Struct
from msgspec.structs import fields

from onefold.app.onefold import Tenant
from onefold.errors import InvalidInput, JobNotFound
from onefold.model import checks
from onefold.model.ids import parse_id
from onefold.model.wire import camel
from onefold.server.request_context import Reply, RequestContext
from onefold.web.problems import ProblemKind

T = TypeVar("T")

_SHOWN: Final = 100


RouteScope: TypeAlias = Literal["publish", "work", "admin"]
Keyed: TypeAlias = Literal["claim", "native"]
Endpoint: TypeAlias = Callable[[RequestContext], Awaitable[Reply]]
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
STREAM: Final = "text/event-stream"


class Route(Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: str
    path: str
    """`/v1/queues/{name}/jobs`"""
    name: str
    """The name of the operation, for client generators."""
    summary: str
    endpoint: Endpoint
    scope: RouteScope | None
    """The scope that an API key needs; None if no key is needed."""
    body: Any = None
    """The type of the body; None if the route has none."""
    body_optional: bool = False
    """True if an empty body counts as `{}`."""
    query: Any = None
    answers: Mapping[int, Any]
    """The type of each response by status, without problems; None has no body, and a text is the
    media type of a response that is not JSON."""
    tag: str = ""
    """The group of the operation in the reference."""
    problems: tuple[ProblemKind, ...] = ()
    """The problems of the route, without those that every such route may return."""
    keyed: Keyed = "claim"
    """What a POST does with an Idempotency-Key. `claim`: the dispatch claims it and replays the
    response. `native`: the endpoint uses it in its own statement."""
    confirms: bool = False
    """True if the endpoint confirms the API key in the transaction of its job."""
    description: str = ""
    streams: bool = False
    """True if the endpoint returns a stream of messages."""
    secret: bool = False
    """True if the response has a secret: the scope `read` is not enough."""


class Created(Struct, Generic[T], frozen=True):
    """A result with the status 201 if it is new, and otherwise 200."""

    result: T
    is_new: bool


class Signature(NamedTuple):
    """What the annotations of an endpoint say."""

    endpoint: Endpoint
    body: Any
    query: Any
    answers: Mapping[int, Any]


def job_id_of(request: RequestContext) -> str:
    """The id in the path; a text that is not an id raises `JobNotFound`."""
    given = request.path["id"]
    try:
        return parse_id(given)
    except InvalidInput as error:
        raise JobNotFound(repr(given[:_SHOWN])) from error


def name_of(request: RequestContext) -> str:
    """The checked name in the path."""
    return checks.name(request.path["name"], "name")


def fence_of(request: RequestContext) -> int | None:
    """The fence of the body or of the header."""
    return request.fence(request.body.fence)


Calls: TypeAlias = Annotated[Tenant, attrgetter("calls")]
"""The calls of the caller's tenant."""
JobId: TypeAlias = Annotated[str, job_id_of]
Name: TypeAlias = Annotated[str, name_of]
GivenFence: TypeAlias = Annotated[int | None, fence_of]

_OWN: Final = {"body": attrgetter("body"), "query": attrgetter("query")}


def signature(function: Callable[..., Awaitable[Any]], path: str) -> Signature:
    """Read the annotations of an endpoint, once, when it is declared."""
    hints = get_type_hints(function, include_extras=True)
    returned = hints.pop("return")
    getters = [(name, _getter(name, hint, path)) for name, hint in hints.items()]
    reply, answers = _replying(returned)

    async def endpoint(request: RequestContext) -> Reply:
        return reply(await function(**{name: get(request) for name, get in getters}))

    return Signature(endpoint, hints.get("body"), hints.get("query"), answers)


def _getter(name: str, hint: Any, path: str) -> Callable[[RequestContext], Any]:
    """How to get one argument: by its name, or by the function in its annotation."""
    if name in _OWN:
        return _OWN[name]
    if get_origin(hint) is Annotated:
        getter: Callable[[RequestContext], Any] = get_args(hint)[1]
        return getter
    if hint is RequestContext:
        return _itself
    assert f"{{{name}}}" in path, name
    value = itemgetter(name)
    return lambda request: value(request.path)


def _itself(request: RequestContext) -> RequestContext:
    return request


def _replying(returned: Any) -> tuple[Callable[[Any], Reply], dict[int, Any]]:
    """How a result becomes a reply, and the statuses that are possible."""
    if returned is type(None):
        return _nothing, {204: None}
    if get_origin(returned) is Created:
        (kind,) = get_args(returned)
        return _created, {200: kind, 201: kind}
    return _found, {200: returned}


def _nothing(_: object) -> Reply:
    return Reply(204)


def _created(created: Created[Any]) -> Reply:
    return Reply(201 if created.is_new else 200, created.result)


def _found(result: object) -> Reply:
    return Reply(200, result)


class RouteTable(list[Route]):
    """The routes of one module. The function is the operation: its name, summary, description.

    ROUTES = RouteTable("schedules")

    @ROUTES.add("GET", "/v1/schedules/{name}", scope="work")
    async def get_schedule(calls: Calls, name: Name) -> Schedule: ...
    """

    def __init__(self, tag: str = "") -> None:
        """`tag` is the group of the routes in the reference."""
        super().__init__()
        self._tag = tag

    def add(
        self,
        method: str,
        path: str,
        *,
        scope: RouteScope | None,
        answers: Mapping[int, Any] | None = None,
        body: Any = None,
        query: Any = None,
        problems: tuple[ProblemKind, ...] = (),
        keyed: Keyed = "claim",
        confirms: bool = False,
        secret: bool = False,
    ) -> Callable[[F], F]:
        """Add the decorated endpoint. Its fields are those of `Route`.

        Without `answers`, the annotations of the endpoint say what it takes and returns.
        """

        def decorate(function: F) -> F:
            nonlocal answers, body, query
            endpoint: Endpoint = function
            if answers is None:
                endpoint, body, query, answers = signature(function, path)
            summary, _, description = (getdoc(function) or "").partition("\n\n")
            route = Route(
                method=method,
                path=path,
                name=camel(function.__name__),
                summary=summary.removesuffix("."),
                description=description.replace("\n", " "),
                endpoint=endpoint,
                scope=scope,
                body=body,
                body_optional=body is not None and not any(f.required for f in fields(body)),
                query=query,
                answers=answers,
                tag=self._tag,
                problems=problems,
                keyed=keyed,
                confirms=confirms,
                streams=STREAM in answers.values(),
                secret=secret,
            )
            self.append(route)
            return function

        return decorate
