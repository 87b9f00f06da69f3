"""Authentication: the caller of a request, and the scopes of its API key.

A caller sends `Authorization: Bearer of_…`. Each request reads the database, so that a revoked key
is rejected at once: a publish in the statement that stores the job, if an earlier request has
proven the key. All invalid keys get the same response. While no key was ever created, a
server on loopback accepts requests of this machine without a key, but not those that a browser
sends for another site.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from onefold.model.api_key import SCOPES, proven, read_text
from onefold.model.wire import BadBody
from onefold.operations import api_keys
from onefold.server.problems import FORBIDDEN, RATE_LIMITED, UNAUTHENTICATED, refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.types import Scope

    from onefold.app.onefold import Onefold
    from onefold.model.api_key import Shown
    from onefold.server.request_context import RequestContext
    from onefold.web.problems import Refused


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a host of a URL or of a bind is this machine, and only reachable from it.

    Only the usual names count: another site can have a name that resolves to 127.0.0.1.
    """
    name = host.removeprefix("[").removesuffix("]").removesuffix(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


MOST: Final = 10_000
"""Keys in memory; the one that was proven first is dropped."""
READS: Final = frozenset({"GET", "HEAD"})
_OF_PROXY: Final = re.compile(
    r"(.+-)?forwarded(-.+)?|(.+-)?(client|connecting|originating|real)-ip|via|cdn-loop|max-forwards"
    r"|((x-)?proxy|cf|x-arr|x-envoy|x-original)-.+|x-varnish|x-(url-)?scheme|front-end-https"
)
"""Names of headers that proxies add: their clients may be on any machine."""
_HOST: Final = re.compile(
    r"(?P<host>\[[0-9a-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(:[0-9]{0,5})?", re.ASCII | re.IGNORECASE
)
"""The syntax of RFC 3986."""


class Caller(msgspec.Struct, frozen=True):
    """The caller of a request."""

    tenant: str
    principal: str
    """The id of the key; "anonymous" if no key is needed."""
    scopes: frozenset[str]
    unconfirmed: str | None = None
    """The id of a key that may be revoked by now."""

    def require(self, scope: str, method: str = "POST", *, secret: bool = False) -> None:
        """Reject a caller without the scope.

        `admin` includes all scopes, `read` may read everything without secrets, and `work` what
        `publish` may read.
        """
        sufficient = {"read", "work"} if scope == "publish" else {"read"}
        reads = method in READS and not secret and not self.scopes.isdisjoint(sufficient)
        if reads or not self.scopes.isdisjoint((scope, "admin")):
            return
        detail = (
            f"This API key does not have the scope {scope!r}, which this request needs. Nothing was"
            " done. Use a key with that scope."
        )
        raise refused(FORBIDDEN, detail, extra={"scope": scope})


PUBLIC: Final = Caller("", "", frozenset())
"""The caller of a route that needs no key."""
ANONYMOUS: Final = Caller("", "anonymous", frozenset(SCOPES))
"""A caller on this machine, while no key was ever created."""


class Authority:
    """Finds the caller of a request."""

    def __init__(self, onefold: Onefold, *, anonymous: bool) -> None:
        """`anonymous` accepts callers without a key while there are none: only on loopback."""
        self._onefold = onefold
        self._anonymous = anonymous
        self._proven: dict[Shown | None, Caller] = {}
        """Callers by the keys without a rate that earlier requests have proven."""

    async def admit(
        self,
        needed: str | None,
        headers: Mapping[str, str],
        scope: Scope,
        *,
        confirms: bool = False,
        secret: bool = False,
    ) -> Caller:
        """The caller of a request that needs the scope `needed`; None needs no key.

        If the endpoint `confirms` the key, it may come from memory. If the response has a `secret`,
        the scope `read` is not enough. Names of headers are in lower case. Raises `Refused`.
        """
        if needed is None:
            return PUBLIC
        caller = None
        if "authorization" in headers:
            token = bearer(headers["authorization"]) or ""
            if confirms and (known := self._proven.get(read_text(token))):
                caller = known
            else:
                caller = await self._caller(token)
        if caller is None:
            if not self._anonymous or await self._onefold.api_keys.aexist():
                raise unauthenticated()
            check_local(headers, scope.get("client"), scope.get("http_version"))
            return ANONYMOUS
        caller.require(needed, scope["method"], secret=secret)
        return caller

    async def _caller(self, token: str) -> Caller | None:
        shown = read_text(token)
        admission = await self._onefold.api_keys.acheck(token)
        key = admission.key
        if key is None:
            self._proven.pop(shown, None)
            return None
        if admission.wait:
            detail = (
                f"The rate limit of this API key is {key.rate}, and it is used up. Nothing was"
                " done. Send the request again later."
            )
            raise refused(RATE_LIMITED, detail, retry_after=admission.wait)
        caller = Caller(key.tenant, key.id, frozenset(key.scopes))
        if key.rate is None:
            self._proven[shown] = replace(caller, unconfirmed=key.id)
            if len(self._proven) > MOST:
                del self._proven[next(iter(self._proven))]
        return caller


async def still_counts(request: RequestContext) -> bool:
    """Whether the caller is still accepted, for long streams. Nothing is charged."""
    if request.principal == ANONYMOUS.principal:
        return not await request.onefold.api_keys.aexist()
    shown = read_text(bearer(request.headers.get("authorization")) or "")
    if shown is None:
        return False
    (known,) = await request.server.context.store.alook(lambda sql: api_keys.read(sql, [shown.id]))
    return proven(shown, known) is not None


def bearer(header: str | None) -> str | None:
    """The token after `Bearer`; None if the header is missing or has another scheme."""
    scheme, _, token = (header or "").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def refuse_tenants(tenant: str) -> None:
    """Reject callers with a tenant: the response would include data of other tenants."""
    if tenant:
        raise refused(
            FORBIDDEN,
            "The response covers all tenants, so it needs an API key without a tenant. Nothing was"
            " done. Use a key of the operator, which has no tenant.",
        )


def unauthenticated() -> Refused:
    """One error for all invalid keys: it must not reveal what is wrong."""
    detail = "This request needs a valid API key: Authorization: Bearer of_…. Nothing was done."
    return refused(UNAUTHENTICATED, detail)


def check_local(
    headers: Mapping[str, str], client: Sequence[Any] | None, version: str | None
) -> None:
    """Reject requests without a key that do not come from this machine, also by DNS rebinding.

    Without a key, a request is only accepted because it comes from this machine. But a browser on
    this machine runs pages of other sites, and a proxy on this machine forwards requests of other
    machines. `client` is the address of the peer, if there is one. `version` is that of HTTP: only
    old clients still send 1.0, and nginx, which adds no header by default.
    """
    if client is not None and not is_loopback(client[0]):
        raise _not_local(f"from the address {client[0]!r}")
    host = headers.get("host")
    if host is not None:
        found = _HOST.fullmatch(host)
        if found is None:
            raise BadBody("Host", f"must be a host and a port, got {host[:200]!r}", of="header")
        if not is_loopback(found["host"]):
            raise _not_local(f"with the Host {host[:200]!r}, which is not a name of this machine")
    origin = headers.get("origin")
    if origin is not None and not is_loopback(_host_of(origin)):
        raise _not_local(f"with the Origin {origin[:200]!r}, which is another site")
    if headers.get("sec-fetch-site") == "cross-site":
        raise _not_local("with Sec-Fetch-Site: cross-site, for another site")
    if (sign := _sign_of_proxy(headers, version)) is not None:
        raise _not_local(f"{sign}, as through a proxy")


def _sign_of_proxy(headers: Iterable[str], version: str | None) -> str | None:
    if version in {"1.0", "1"}:  # granian has the second
        return "by HTTP/1.0"
    name = next(filter(_OF_PROXY.fullmatch, headers), None)
    return None if name is None else f"with the header {name[:200]}"


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _not_local(origin: str) -> Refused:
    return refused(
        FORBIDDEN,
        "This server has no API keys, so it accepts only requests of this machine; this one came"
        f" {origin}. Nothing was done. Create a key: onefold apikeys create --scope admin.",
    )
