"""What an endpoint is given, and what it says.

A route: what it takes, what it gives, who may ask. Routing and OpenAPI read one table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from onefold.app.onefold import Onefold, Tenant
    from onefold.server.app import Server


FENCE: Final = "onefold-fence"
"""The header that says which delivery is spoken for."""


class RequestContext:
    """One request: who asks, for what, and what is there to answer it with."""

    __slots__ = (
        "body",
        "calls",
        "headers",
        "key",
        "path",
        "principal",
        "query",
        "request_id",
        "root",
        "server",
        "tenant",
    )  # fmt: skip

    def __init__(
        self,
        *,
        server: Server,
        tenant: str,
        principal: str,
        path: Mapping[str, str],
        body: Any,
        query: Any,
        key: str | None,
        request_id: str,
        headers: Mapping[str, str],
        root: str = "",
    ) -> None:
        """Made for each request by the dispatch."""
        self.server: Server = server
        self.calls: Tenant = server.calls_of(tenant)
        """The calls of the caller's tenant: it has no others."""
        self.tenant: str = tenant
        self.principal: str = principal
        self.path: Mapping[str, str] = path
        """What stands in the place of `{name}` in the route's path."""
        self.body: Any = body
        """A value of the route's `body`; None where the route has none."""
        self.query: Any = query
        """A value of the route's `query`."""
        self.key: str | None = key
        """The Idempotency-Key header, read and checked."""
        self.request_id: str = request_id
        self.headers: Mapping[str, str] = headers
        self.root: str = root
        """Where the application is mounted; empty at the root of the host."""

    @property
    def onefold(self) -> Onefold:
        """The whole, for what is not the tenant's alone: queues under their qualified names."""
        return self.server.onefold


class Reply(msgspec.Struct, frozen=True):
    """What an endpoint answers."""

    status: int
    body: object = None
    """Encoded as JSON; None is no body."""
    headers: tuple[tuple[str, str], ...] = ()


RouteScope: TypeAlias = Literal["publish", "work", "admin"]
Keyed: TypeAlias = Literal["claim", "native", "none"]
Endpoint: TypeAlias = Callable[[RequestContext], Awaitable[Reply]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: str
    path: str
    """`/v1/queues/{name}/jobs`"""
    name: str
    """The operation's name, for generators of clients."""
    summary: str
    endpoint: Endpoint
    scope: RouteScope | None
    """What an API key must carry; None is open to everybody."""
    body: Any = None
    """The type of the body; None where there is none."""
    body_optional: bool = False
    """True where nothing at all may be sent instead of `{}`."""
    query: Any = None
    answers: Mapping[int, Any]
    """The type of each answer that is no problem; None is an answer without a body."""
    problems: tuple[int, ...] = ()
    """Statuses of problems beside those that every route may answer with."""
    keyed: Keyed = "claim"
    """What a POST does with an Idempotency-Key: the dispatch claims it and replays the answer; or
    the endpoint makes it part of its own statement; or it is refused."""
    description: str = ""
    streams: bool = False
    """True where the endpoint answers by itself, message by message."""
