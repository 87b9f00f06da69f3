"""What an endpoint receives and returns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import ConflictingOptions
from onefold.model.wire import BadBody

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
