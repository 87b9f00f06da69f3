"""What an endpoint receives and returns, and `Route`: routing and OpenAPI read the same table."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from inspect import getdoc
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import fields

from onefold.errors import ConflictingOptions
from onefold.model.wire import BadBody, camel
from onefold.web.problems import ProblemKind

if TYPE_CHECKING:
    from onefold.app.onefold import Onefold, Tenant  # noqa: TC004 - never decoded
    from onefold.server.app import ServerApp  # noqa: TC004 - never decoded


FENCE: Final = "onefold-fence"
"""The header with the fence of a delivery."""
LARGEST_FENCE: Final = 2**63 - 1
_DIGITS: Final = re.compile(r"[0-9]{1,19}")


class RequestContext(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """One request: its caller, its values, and the server."""

    server: ServerApp
    calls: Tenant
    """The calls of the caller's tenant."""
    tenant: str
    principal: str
    path: Mapping[str, str]
    """The parameters of the path, by the names in the route's path."""
    body: Any
    """A value of the route's `body`; None if the route has none."""
    query: Any
    """A value of the route's `query`."""
    key: str | None
    """The checked Idempotency-Key header."""
    request_id: str
    headers: Mapping[str, str]
    unconfirmed: str | None = None
    """The id of an API key that the endpoint has to confirm."""
    root: str = ""
    """The path where the application is mounted; empty at the root of the host."""

    @property
    def onefold(self) -> Onefold:
        """The Onefold of the server, for calls that are not for one tenant."""
        return self.server.onefold

    def fence(self, in_body: int | None) -> int | None:
        """The fence of the body or of the header; two different fences are an error."""
        given = self.headers.get(FENCE)
        if given is None:
            return in_body
        if not _DIGITS.fullmatch(given) or not 1 <= int(given) <= LARGEST_FENCE:
            reason = f"must be a whole number from 1 to {LARGEST_FENCE}, got {given[:50]!r}"
            raise BadBody("Onefold-Fence", reason, of="header")
        if in_body is not None and in_body != int(given):
            reason = "differs from the header Onefold-Fence: send one of them, or equal values"
            raise ConflictingOptions("fence", reason)
        return int(given)


class Reply(msgspec.Struct, frozen=True):
    """What an endpoint returns."""

    status: int
    body: object = None
    """Encoded as JSON; None is an empty body."""
    headers: tuple[tuple[str, str], ...] = ()


RouteScope: TypeAlias = Literal["publish", "work", "admin"]
Keyed: TypeAlias = Literal["claim", "native"]
Endpoint: TypeAlias = Callable[[RequestContext], Awaitable[Reply]]
STREAM: Final = "text/event-stream"


class Route(msgspec.Struct, frozen=True, kw_only=True):
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


class RouteTable(list[Route]):
    """The routes of one module. The function is the operation: its name, summary, description.

    ROUTES = RouteTable("schedules")

    @ROUTES.add("GET", "/v1/schedules/{name}", scope="work", answers={200: Schedule})
    async def get_schedule(request: RequestContext) -> Reply: ...
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
        answers: Mapping[int, Any],
        body: Any = None,
        query: Any = None,
        problems: tuple[ProblemKind, ...] = (),
        keyed: Keyed = "claim",
        confirms: bool = False,
        secret: bool = False,
    ) -> Callable[[Endpoint], Endpoint]:
        """Add the decorated endpoint. Its fields are those of `Route`."""

        def decorate(endpoint: Endpoint) -> Endpoint:
            summary, _, description = (getdoc(endpoint) or "").partition("\n\n")
            route = Route(
                method=method,
                path=path,
                name=camel(endpoint.__name__),
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
            return endpoint

        return decorate
