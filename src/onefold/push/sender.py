"""Sends push requests and reads responses, with one pool of connections per process.

A receiver may be slow, broken or hostile: time and bytes are limited, and redirects are not
followed. A name is resolved once per connection, and only to addresses that the policy allows.
"""

from __future__ import annotations

import asyncio
import logging
import math
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from onefold.errors import Needs

with Needs("onefold[server]"):
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult
    from aiohttp.http import HttpProcessingError
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


_polls: Final[WeakKeyDictionary[object, select.poll]] = WeakKeyDictionary()
"""By connection that was used for a request: asks the kernel whether anything has arrived."""

LINE_BYTES: Final = 8_190
"""Of the status line of a response, and of each header."""
ARRIVED: Final = select.POLLIN | select.POLLPRI


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
            protocol, transport = connection.protocol, connection.transport
            assert protocol is not None
            poll = _polls.get(protocol)
            if poll is None:  # it is new
                if transport is not None:
                    poll = _polls[protocol] = select.poll()
                    poll.register(transport.get_extra_info("socket"), ARRIVED)
                break
            # Its end may have arrived, or bytes without a request: these are not our response.
            if protocol.is_connected() and not protocol.should_close and not poll.poll(0):
                break
            connection.close()
        # A parser for each response: the last one may have read the beginning of another response.
        protocol.set_response_params(
            read_until_eof=True,
            auto_decompress=False,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
        )
        return connection


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
"""Seconds for the body of a response after its status is known, within the time of the push."""
SITES: Final = 10_000
SWITCHING: Final = 101
NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)
"""`_try` has the timeout."""


class RequestDeadlines:
    """Ends timeouts with one timer for all of them: a timer for each request would cost more."""

    def __init__(self) -> None:
        """Created in its event loop."""
        self._loop = asyncio.get_running_loop()
        self._ends: dict[asyncio.Timeout, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = math.inf

    def add(self, timeout: asyncio.Timeout, seconds: float) -> None:
        """Let a timeout that was entered without a deadline end after so many seconds."""
        end = self._ends[timeout] = self._loop.time() + seconds
        if end < self._fires_at:
            self._set_timer(end)

    def remove(self, timeout: asyncio.Timeout) -> float:
        """Forget a timeout, and return the seconds that were left."""
        now = self._loop.time()
        return self._ends.pop(timeout, now) - now

    def _set_timer(self, at: float) -> None:
        self.close()
        self._fires_at = at
        self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        now = self._loop.time()
        for timeout in [timeout for timeout, end in self._ends.items() if end <= now]:
            del self._ends[timeout]
            timeout.reschedule(now)
        self._fires_at = math.inf
        if self._ends:
            self._set_timer(min(self._ends.values()))

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()


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
        self._deadlines = RequestDeadlines()
        self._sites: dict[str, _Site] = {}
        """By URL of an endpoint that passed the check."""
        self._connector = Connector(
            resolver=self._resolver, ttl_dns_cache=DNS_TTL, limit=0, keepalive_timeout=KEEPALIVE
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
        began, timeout = time.monotonic(), asyncio.timeout(None)
        try:
            site = self._site(endpoint)
            async with timeout:
                self._deadlines.add(timeout, within)
                return await self._post(site, body, headers, began, timeout)
        except TimeoutError:
            why = f"no answer within {within:g} s"
        except AddressRefused as error:
            why = str(error)
        except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
            why = connection_error(error)
        finally:
            self._deadlines.remove(timeout)
        return NoResponse(why, time.monotonic() - began)

    def _site(self, endpoint: Endpoint) -> _Site:
        """Checked here: an address in the URL is used without the resolver."""
        site = self._sites.get(endpoint.url)
        if site is None:
            self._policy.check(endpoint)
            if len(self._sites) >= SITES:
                self._sites.clear()
            url = URL(endpoint.url, encoded=True)
            tls = self._tls if url.scheme == "https" else True
            start = f"POST {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
            site = self._sites[endpoint.url] = _Site(
                aiohttp.ClientRequest("POST", url, ssl=tls), start
            )
        return site

    async def _post(
        self,
        site: _Site,
        body: bytes,
        headers: Mapping[str, str],
        began: float,
        deadline: asyncio.Timeout,
    ) -> PushResponse:
        head = _head(site.start, headers, len(body))
        connection = await self._connector.connect(site.request, [], NO_TIMEOUT)
        protocol, transport, complete = connection.protocol, connection.transport, False
        assert protocol is not None
        try:
            if transport is not None:  # otherwise the read raises the reason
                transport.writelines((head, body))
            message, content = await protocol.read()
            while message.code < 200 and message.code != SWITCHING:  # noqa: PLR2004 - HTTP's own
                message, content = await protocol.read()
            duration = time.monotonic() - began
            # The status decides. A failure while the body is read does not change it.
            left = self._deadlines.remove(deadline)
            start, complete = await _start_of(content, min(left, BODY_TIMEOUT))
        finally:
            if transport is not None and transport.get_write_buffer_size():
                transport.abort()  # a receiver that does not read must not keep the rest in memory
            elif complete:
                connection.release()
            connection.close()  # unless it was released
        received = tuple(message.headers.items())
        return PushResponse(message.code, received, excerpt_of(start), duration)

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
        self._deadlines.close()
        await self._connector.close()
        await self._resolver.close()


def _head(start: str, headers: Mapping[str, str], length: int) -> bytes:
    """The request up to its body."""
    lines = "".join([f"{name}: {text}\r\n" for name, text in headers.items()])
    if lines.count("\r") != len(headers) or lines.count("\n") != len(headers):
        raise ValueError("a header contains a line break")
    return f"{start}{lines}Content-Length: {length}\r\n\r\n".encode()


async def _start_of(content: aiohttp.StreamReader, seconds: float) -> tuple[bytes, bool]:
    """The beginning of a body, and whether all was read. Then the connection can be reused."""
    if content.is_eof():
        return content.read_nowait(EXCERPT_BYTES), True  # it is in the buffer already
    read = bytearray()
    with suppress(TimeoutError, aiohttp.ClientError, OSError, ValueError):
        async with asyncio.timeout(seconds):
            async for piece in content.iter_any():
                read += piece
                if len(read) > DRAINED:
                    break
            else:
                return bytes(read[:EXCERPT_BYTES]), True
    return bytes(read[:EXCERPT_BYTES]), False


class _Site(NamedTuple):
    """An endpoint as the connector needs it."""

    request: aiohttp.ClientRequest
    """Where to connect. It is not sent itself."""
    start: str
    """The request line, and the header with the host."""


class _ConnectionLimit(asyncio.Semaphore):
    """Limits the connections to one endpoint, for all queues that use it."""

    users: int = 0
    """Pushes that have a connection or wait for one."""
