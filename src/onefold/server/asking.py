"""What an endpoint is given, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onefold.app import Onefold, Tenant
    from onefold.server.state import Server

FENCE: Final = "onefold-fence"
"""The header that says which delivery is spoken for."""


class Asking:
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


class Said(msgspec.Struct, frozen=True):
    """What an endpoint answers."""

    status: int
    body: object = None
    """Encoded as JSON; None is no body."""
    headers: tuple[tuple[str, str], ...] = ()
