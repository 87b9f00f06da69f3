"""Connections for pushes: a request is written only to a connection that is still open.

Looks names up, and answers with nothing but addresses that may be connected to.

The connector connects to what it is given here and asks nobody again, so a name that means another
address a moment later changes nothing.

Sends requests and reads answers: one pool of connections for a process, whatever it talks to.

A receiver may be slow, broken or hostile. It is given so long, so many bytes are read of it, and
nothing that it says makes us talk to somebody else.
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
from onefold.push.response_policy import EXCERPT_BYTES, PushAnswered, Unanswered, excerpt_of, told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.connector import Connection

    from onefold.push.address import AddressPolicy, Endpoint
    from onefold.push.response_policy import PushExchange


_used: Final[WeakSet[object]] = WeakSet()
"""Connections that have carried a request."""


class Connector(aiohttp.TCPConnector):
    """The same, without connections that their server has closed while they were idle.

    A request that was written may have been read, so it is never sent again. A connection is
    therefore checked before the first byte is written to it. aiohttp discards those whose end the
    event loop has seen; this also asks the kernel, which may know of an end that the loop has not
    seen yet.
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
    """Whether anything came in while it was idle: its end, or bytes that answer no request."""
    transport = connection.transport
    if transport is None or transport.is_closing():
        return True
    poll = select.poll()
    poll.register(transport.get_extra_info("socket"), select.POLLIN | select.POLLPRI)
    return bool(poll.poll(0))


Lookup: TypeAlias = Callable[[str], Awaitable[list[str]]]
"""A name to its addresses, as text."""

THREADS: Final = 32
"""For names whose servers do not answer: others are looked up meanwhile."""

log: logging.Logger = logging.getLogger("onefold.push")


class CheckedResolver(AbstractResolver):
    """What aiohttp asks for addresses."""

    def __init__(self, policy: AddressPolicy, lookup: Lookup | None = None) -> None:
        """`lookup` stands in for the machine's own."""
        self._policy = policy
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="onefold-names")
        self._lookup = self._ask if lookup is None else lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a name that may be pushed to; raises `AddressRefused` without any."""
        del family
        allowed, refusal = list[ResolveResult](), None
        for text in await self._lookup(host):
            address = ip_address(text)
            try:
                if not self._policy.allows_host(host):
                    self._policy.check_address(address)
            except AddressRefused as error:
                # The log is the operator's. The sentence is also for whoever asks by a name what
                # there is in this network, and does not tell the address.
                log.warning("Nothing is pushed to %s: it has the address %s.", host, text)
                refusal = error
            else:
                allowed.append(_answer(host, str(address), port, version=address.version))
        if allowed:
            return allowed
        raise refusal or OSError(f"{host} has no address")

    async def _ask(self, host: str) -> list[str]:
        ask = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        return [str(place[0]) for *_, place in found]

    async def close(self) -> None:
        """Wait for no answer any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _answer(host: str, address: str, port: int, *, version: int) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET if version == 4 else socket.AF_INET6,  # noqa: PLR2004 - IP's own
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )


KEPT_ALIVE: Final = 1.5
"""Seconds that a connection waits for its next request. Servers wait longer (2 s and more by
default), so a request and the end of its connection rarely cross on the way."""
REMEMBERED = 10
"""Seconds for which the addresses of a name are, once they were checked."""
DRAINED: Final = 64 * 1024
"""Bytes of an answer that are read for the connection's sake; with a longer one it is closed."""
PATIENCE: Final = 2.0
"""Seconds for the rest of an answer whose status is known."""
URLS: Final = 10_000
LINE_BYTES: Final = 8_190
"""Of the status line, and of each header."""


class Sender:
    """Posts, and tells what came back. Never raises for what a receiver does."""

    def __init__(
        self, policy: AddressPolicy, *, connections: int, lookup: Lookup | None = None
    ) -> None:
        """Made in the event loop that it is used in; `connections` is the most to one endpoint."""
        self._policy = policy
        self._connections = connections
        self._resolver = CheckedResolver(policy, lookup)
        self._places: dict[str, _Places] = {}
        """By the whole URL: whoever shares a host with an endpoint that hangs does not wait."""
        self._urls: dict[str, URL] = {}
        """Of endpoints that were checked."""
        self._session = aiohttp.ClientSession(
            connector=Connector(
                resolver=self._resolver,
                ttl_dns_cache=REMEMBERED,
                limit=0,
                keepalive_timeout=KEPT_ALIVE,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
            timeout=aiohttp.ClientTimeout(total=None),  # we have a clock of our own
        )

    async def post(
        self, endpoint: Endpoint, body: bytes, headers: Mapping[str, str], *, within: float
    ) -> PushExchange:
        """One try, within so many seconds from when it has a place among the connections."""
        places = self._places.get(endpoint.url)
        if places is None:
            places = self._places[endpoint.url] = _Places(self._connections)
        places.wanted += 1
        try:
            async with places:
                return await self._try(endpoint, body, headers, within)
        finally:
            places.wanted -= 1
            if not places.wanted:
                del self._places[endpoint.url]

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
            why = told(error)
        return Unanswered(why, time.monotonic() - began)

    def _url(self, endpoint: Endpoint) -> URL:
        """Checked here: an address that stands in the URL is connected to without a resolver."""
        url = self._urls.get(endpoint.url)
        if url is None:
            self._policy.check(endpoint)
            if len(self._urls) >= URLS:
                self._urls.clear()
            url = self._urls[endpoint.url] = URL(endpoint.url, encoded=True)
        return url

    async def _post(
        self, url: URL, body: bytes, headers: Mapping[str, str], began: float
    ) -> PushAnswered:
        async with self._session.post(
            url,
            data=body,
            headers=headers,
            allow_redirects=False,
            ssl=self._trust if url.scheme == "https" else True,
        ) as response:
            duration = time.monotonic() - began
            # Its word is its status. What becomes of the rest cannot take that back.
            start = await _start_of(response)
            said = tuple(response.headers.items())
            return PushAnswered(response.status, said, excerpt_of(start), duration)

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        """Whom this machine trusts, or SSL_CERT_FILE says. Read when the first needs it."""
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        file = os.environ.get("SSL_CERT_FILE")
        if file and not context.cert_store_stats()["x509"]:
            # OpenSSL says nothing, and trusts nobody.
            log.warning("No certificate could be read from SSL_CERT_FILE, %s.", file)
        return context

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self._resolver.close()


async def _start_of(response: aiohttp.ClientResponse) -> bytes:
    """The beginning of a body. All of a short one is read, so that the connection can be kept."""
    if response.content.is_eof():
        return await response.content.read(EXCERPT_BYTES)  # all of it came with the head
    read = bytearray()
    with suppress(TimeoutError, aiohttp.ClientError, OSError, ValueError):
        async with asyncio.timeout(PATIENCE):
            async for piece in response.content.iter_any():
                read += piece
                if len(read) > DRAINED:
                    break
            else:
                return bytes(read[:EXCERPT_BYTES])
    response.close()
    return bytes(read[:EXCERPT_BYTES])


class _Places(asyncio.Semaphore):
    """So many connections to one endpoint: queues that share it wait for each other."""

    wanted: int = 0
    """By how many pushes, those that have one included."""
