"""Sends push requests and reads responses, with one pool of connections per process.

A receiver may be slow, broken or hostile: time and bytes are limited, and redirects are not
followed. A name is resolved once per connection, and only to addresses that the policy allows.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

from onefold.errors import Needs

with Needs("onefold[server]"):
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult
    from yarl import URL


from onefold.push.address import AddressRefused
from onefold.push.response_policy import (
    EXCERPT_BYTES,
    NoResponse,
    PushResponse,
    connection_error,
    excerpt_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.connector import Connection

    from onefold.push.address import AddressPolicy, Endpoint
    from onefold.push.response_policy import PushExchange


_used: Final[WeakSet[object]] = WeakSet()
"""Connections that were used for a request."""


class Connector(aiohttp.TCPConnector):
    """A connector that does not use a connection which the server closed while it was idle.

    A request that was written may have been read, so it is never sent again. A connection is
    therefore checked before the first byte is written to it. aiohttp discards connections whose end
    the event loop has seen; this one also asks the kernel, which may know earlier.
    """

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own
    ) -> Connection:
        """A connection from the pool that is still open, or a new one."""
        while True:
            connection = await super().connect(req, traces, timeout)
            if connection.protocol not in _used:
                _used.add(connection.protocol)
                return connection
            if not _has_ended(connection):
                return connection
            connection.close()


def _has_ended(connection: Connection) -> bool:
    """Whether anything arrived while it was idle: its end, or bytes without a request."""
    transport = connection.transport
    if transport is None or transport.is_closing():
        return True
    poll = select.poll()
    poll.register(transport.get_extra_info("socket"), select.POLLIN | select.POLLPRI)
    return bool(poll.poll(0))


Lookup: TypeAlias = Callable[[str], Awaitable[list[str]]]
"""Resolves a name to its addresses, as text."""

THREADS: Final = 32
"""Several, so that a name server that does not answer does not block other names."""

log: logging.Logger = logging.getLogger("onefold.push")


class CheckedResolver(AbstractResolver):
    """Resolves names for aiohttp, and drops addresses that the policy does not allow."""

    def __init__(self, policy: AddressPolicy, lookup: Lookup | None = None) -> None:
        """`lookup` replaces the resolver of the machine."""
        self._policy = policy
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="onefold-names")
        self._lookup = self._resolve if lookup is None else lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The allowed addresses of a name; raises `AddressRefused` if there are none."""
        del family
        allowed, refusal = list[ResolveResult](), None
        for text in await self._lookup(host):
            address = ip_address(text)
            try:
                if not self._policy.allows_host(host):
                    self._policy.check_address(address)
            except AddressRefused as error:
                # The log is for the operator. The error is also shown to the owner of the endpoint,
                # who must not learn the addresses of this network.
                log.warning("Pushes to %s are rejected: it has the address %s.", host, text)
                refusal = error
            else:
                allowed.append(_resolved(host, str(address), port, version=address.version))
        if allowed:
            return allowed
        raise refusal or OSError(f"{host} has no address")

    async def _resolve(self, host: str) -> list[str]:
        resolve = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, resolve)
        return [str(address[0]) for *_, address in found]

    async def close(self) -> None:
        """Do not wait for names that are being resolved."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _resolved(host: str, address: str, port: int, *, version: int) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET if version == 4 else socket.AF_INET6,  # noqa: PLR2004 - IP's own
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )


KEEPALIVE: Final = 1.5
"""Seconds that an idle connection is kept. Servers keep it longer (2 s and more by default), so
they rarely close one to which a request is being written."""
DNS_TTL: Final = 10
"""Seconds for which the checked addresses of a name are cached."""
DRAINED: Final = 64 * 1024
"""Bytes of a response that are read to reuse its connection; after a longer one it is closed."""
BODY_TIMEOUT: Final = 2.0
"""Seconds for the body of a response after its status is known."""
URLS: Final = 10_000
LINE_BYTES: Final = 8_190
"""Of the status line, and of each header."""


class PushSender:
    """Posts requests and returns responses. A receiver cannot cause an exception."""

    def __init__(
        self, policy: AddressPolicy, *, connections: int, lookup: Lookup | None = None
    ) -> None:
        """Created in its event loop; `connections` is the maximum per endpoint."""
        self._policy = policy
        self._connections = connections
        self._resolver = CheckedResolver(policy, lookup)
        self._limits: dict[str, _ConnectionLimit] = {}
        """By the whole URL: an endpoint that hangs does not block others on the same host."""
        self._urls: dict[str, URL] = {}
        """URLs of endpoints that passed the check."""
        self._session = aiohttp.ClientSession(
            connector=Connector(
                resolver=self._resolver,
                ttl_dns_cache=DNS_TTL,
                limit=0,
                keepalive_timeout=KEEPALIVE,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
            timeout=aiohttp.ClientTimeout(total=None),  # `_try` has the timeout
        )

    async def post(
        self, endpoint: Endpoint, body: bytes, headers: Mapping[str, str], *, within: float
    ) -> PushExchange:
        """Try once, for at most `within` seconds after a connection is free."""
        limit = self._limits.get(endpoint.url)
        if limit is None:
            limit = self._limits[endpoint.url] = _ConnectionLimit(self._connections)
        limit.users += 1
        try:
            async with limit:
                return await self._try(endpoint, body, headers, within)
        finally:
            limit.users -= 1
            if not limit.users:
                del self._limits[endpoint.url]

    async def _try(
        self, endpoint: Endpoint, body: bytes, headers: Mapping[str, str], within: float
    ) -> PushExchange:
        began = time.monotonic()
        try:
            url = self._url(endpoint)
            async with asyncio.timeout(within):
                return await self._post(url, body, headers, began)
        except TimeoutError:
            why = f"no answer within {within:g} s"
        except AddressRefused as error:
            why = str(error)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = connection_error(error)
        return NoResponse(why, time.monotonic() - began)

    def _url(self, endpoint: Endpoint) -> URL:
        """Checked here: an address in the URL is used without the resolver."""
        url = self._urls.get(endpoint.url)
        if url is None:
            self._policy.check(endpoint)
            if len(self._urls) >= URLS:
                self._urls.clear()
            url = self._urls[endpoint.url] = URL(endpoint.url, encoded=True)
        return url

    async def _post(
        self, url: URL, body: bytes, headers: Mapping[str, str], began: float
    ) -> PushResponse:
        async with self._session.post(
            url,
            data=body,
            headers=headers,
            allow_redirects=False,
            ssl=self._tls if url.scheme == "https" else True,
        ) as response:
            duration = time.monotonic() - began
            # The status decides. A failure while the body is read does not change it.
            start = await _start_of(response)
            received = tuple(response.headers.items())
            return PushResponse(response.status, received, excerpt_of(start), duration)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """The certificates of this machine, or of SSL_CERT_FILE. Read at the first https push."""
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        file = os.environ.get("SSL_CERT_FILE")
        if file and not context.cert_store_stats()["x509"]:
            # OpenSSL reports no error, and rejects all certificates.
            log.warning("No certificate could be read from SSL_CERT_FILE, %s.", file)
        return context

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self._resolver.close()


async def _start_of(response: aiohttp.ClientResponse) -> bytes:
    """The beginning of a body. A short body is read completely, to reuse the connection."""
    if response.content.is_eof():
        return await response.content.read(EXCERPT_BYTES)  # it is in the buffer already
    read = bytearray()
    with suppress(TimeoutError, aiohttp.ClientError, OSError, ValueError):
        async with asyncio.timeout(BODY_TIMEOUT):
            async for piece in response.content.iter_any():
                read += piece
                if len(read) > DRAINED:
                    break
            else:
                return bytes(read[:EXCERPT_BYTES])
    response.close()
    return bytes(read[:EXCERPT_BYTES])


class _ConnectionLimit(asyncio.Semaphore):
    """Limits the connections to one endpoint, for all queues that use it."""

    users: int = 0
    """Pushes that have a connection or wait for one."""
