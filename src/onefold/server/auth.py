"""Names and addresses that only this machine can reach.

Who asks, and what they may.

1. A caller shows an API key: `Authorization: Bearer of_…`. Whatever is wrong with it, the answer is
   the same. Every request asks the database, so that a revoked key is refused at once.
2. While no key was ever made, a server that only this machine can reach lets everybody in, as
   nobody in particular. A browser that another site has sent is not everybody: the names that it
   says it came by, and from, must be this machine's.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from onefold.model.api_key import SCOPES, proven, read_text
from onefold.model.wire import BadBody
from onefold.operations import api_keys
from onefold.server.problems import FORBIDDEN, RATE_LIMITED, UNAUTHENTICATED
from onefold.web.problems import Refused, make

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onefold.app.onefold import Onefold
    from onefold.model.api_key import ApiKey
    from onefold.server.asgi_io import Scope
    from onefold.server.request_context import RequestContext


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a host, as a URL or a bind has it, is this machine and nobody else's way to it.

    Only what is written in the one usual way: a name that happens to resolve to 127.0.0.1 is how
    another site's page gets here.
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


READS: Final = frozenset({"GET", "HEAD"})
FORWARDED: Final = (
    "forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via", "proxy-connection",
)  # fmt: skip
"""What a proxy adds, or a client that takes us for one: whoever is behind it may be anywhere."""
_HOST: Final = re.compile(
    r"(?P<host>\[[0-9a-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(:[0-9]{0,5})?", re.ASCII | re.IGNORECASE
)
"""As RFC 3986 has it."""


class Caller(msgspec.Struct, frozen=True):
    """Who asks."""

    tenant: str
    principal: str
    """The id of the key; "anonymous" where none is needed."""
    scopes: frozenset[str]

    def may(self, scope: str | None, method: str = "POST") -> bool:
        """Whether what needs `scope` is open; `admin` opens all, `work` what `publish` reads."""
        if scope is None or scope in self.scopes or "admin" in self.scopes:
            return True
        return scope == "publish" and method in READS and "work" in self.scopes

    def require(self, scope: str | None, method: str = "POST") -> None:
        """Refuse what the key is not for."""
        if not self.may(scope, method):
            raise Refused(
                make(
                    FORBIDDEN,
                    f"This API key has no scope {scope!r}, which this request needs. Nothing was"
                    " done. Use another key, or have one made with that scope.",
                    extra={"scope": scope},
                )
            )


ANYBODY: Final = Caller("", "", frozenset())
"""Whoever asks for what is open to all."""
ANONYMOUS: Final = Caller("", "anonymous", frozenset(SCOPES))
"""Whoever is on this machine, where no key was ever made."""


class Authority:
    """Tells who asks."""

    def __init__(self, onefold: Onefold, *, anonymous: bool) -> None:
        """`anonymous` lets callers without a key in while there are none: on loopback alone."""
        self._onefold = onefold
        self._anonymous = anonymous

    async def admit(self, needed: str | None, headers: Mapping[str, str], scope: Scope) -> Caller:
        """Who asks for what needs `needed`, which everybody may where it is None.

        Names of headers are in lower case. Raises `Refused`.
        """
        if needed is None:
            return ANYBODY
        caller = None
        if "authorization" in headers and (shown := bearer(headers["authorization"])) is not None:
            caller = await self._caller(shown)
        if caller is None:
            if not self._anonymous or await self._onefold.api_keys.aexist():
                raise unauthenticated()
            refuse_strangers(headers, scope.get("client"))
            return ANONYMOUS
        caller.require(needed, scope["method"])
        return caller

    async def _caller(self, shown: str) -> Caller | None:
        admission = await self._onefold.api_keys.acheck(shown)
        if admission.key is None:
            return None
        if admission.wait:
            raise Refused(
                make(
                    RATE_LIMITED,
                    f"This API key may make {admission.key.rate} requests, and has made them."
                    " Nothing was done. Send the request again later.",
                    retry_after=admission.wait,
                )
            )
        return _caller_of(admission.key)


async def still_counts(asking: RequestContext) -> bool:
    """Whether who was let in would be let in now: for answers that go on. Nothing is charged."""
    if asking.principal == ANONYMOUS.principal:
        return not await asking.onefold.api_keys.aexist()
    shown = read_text(bearer(asking.headers.get("authorization")) or "")
    if shown is None:
        return False
    (known,) = await asking.server.context.store.atransact(
        lambda sql: api_keys.read(sql, [shown.id]), write=False
    )
    return proven(shown, known) is not None


def _caller_of(key: ApiKey) -> Caller:
    return Caller(key.tenant, key.id, frozenset(key.scopes))


def bearer(header: str | None) -> str | None:
    """What stands behind `Bearer`; None where the header is missing or of another kind."""
    scheme, _, token = (header or "").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def refuse_tenants(tenant: str) -> None:
    """Refuse what tells of all tenants to each of them."""
    if tenant:
        raise Refused(
            make(
                FORBIDDEN,
                "This tells of all tenants, and is for an API key that has none. Nothing was done."
                " Use a key that was made without a tenant, for the operator.",
            )
        )


def unauthenticated() -> Refused:
    """One answer to all that is wrong with a key: which it is, is nobody's business."""
    return Refused(
        make(
            UNAUTHENTICATED,
            "This request needs a valid API key: Authorization: Bearer of_…. Nothing was done.",
        )
    )


def refuse_strangers(headers: Mapping[str, str], client: Sequence[Any] | None) -> None:
    """Refuse what a browser sends for another site, by its own name (DNS rebinding) or by ours.

    Without a key, being on this machine is all that lets anybody in. A browser here obeys pages
    that were written elsewhere, and a proxy here speaks for people who are elsewhere. `client` is
    the address at the other end, where there is one.
    """
    if client is not None and not is_loopback(client[0]):
        raise _stranger(f"from the address {client[0]!r}")
    host = headers.get("host")
    if host is not None and not is_loopback(_named_in(host)):
        raise _stranger(f"with the Host {host[:200]!r}, which is no name of this machine")
    origin = headers.get("origin")
    if origin is not None and not is_loopback(_host_of(origin)):
        raise _stranger(f"with the Origin {origin[:200]!r}, which is another site's")
    if headers.get("sec-fetch-site") == "cross-site":
        raise _stranger("with Sec-Fetch-Site: cross-site, for another site")
    for name in FORWARDED:
        if name in headers:
            raise _stranger(f"with the header {name}, by way of a proxy")


def _named_in(header: str) -> str:
    """The name in a Host header. One that is no `host:port` is a fault of the client."""
    found = _HOST.fullmatch(header)
    if found is None:
        raise BadBody("Host", f"must be a host and a port, got {header[:200]!r}", of="header")
    return found["host"]


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _stranger(said: str) -> Refused:
    return Refused(
        make(
            FORBIDDEN,
            f"This server has no API keys and answers this machine alone; the request came"
            f" {said}. Nothing was done. Make a key: onefold apikeys create --scope admin.",
        )
    )
