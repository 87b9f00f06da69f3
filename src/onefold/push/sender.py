"""Sends requests and reads answers: one pool of connections for a process, whatever it talks to.

A receiver may be slow, broken or hostile. It is given so long, so many bytes are read of it, and
nothing that it says makes us talk to somebody else.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from yarl import URL

from onefold.push.address import AddressRefused
from onefold.push.reading import EXCERPT_BYTES, Answered, Unanswered, excerpt_of
from onefold.push.resolver import CheckedResolver
from onefold.push.trouble import told

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from onefold.push.address import AddressPolicy, Endpoint
    from onefold.push.reading import Exchange
    from onefold.push.resolver import Lookup

KEPT_ALIVE: Final = 4.0
"""Seconds that a connection waits for its next request: less than most servers wait."""
REMEMBERED = 10
"""Seconds for which the addresses of a name are, once they were checked."""
DRAINED: Final = 64 * 1024
"""Bytes of an answer that are read for the connection's sake; with a longer one it is closed."""
PATIENCE: Final = 2.0
"""Seconds for the rest of an answer whose status is known."""
LINE_BYTES: Final = 8_190
"""Of the status line, and of each header."""


class Sender:
    """Posts, and tells what came back. Never raises for what a receiver does."""

    def __init__(
        self, policy: AddressPolicy, *, connections: int, lookup: Lookup | None = None
    ) -> None:
        """Made in the event loop that it is used in; `connections` is the most to one endpoint."""
        self._policy = policy
        self._resolver = CheckedResolver(policy, lookup)
        self._places = _Places(connections)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
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
            trace_configs=[_telling_reuse()],
        )

    async def post(
        self, endpoint: Endpoint, body: bytes, headers: Mapping[str, str], *, within: float
    ) -> Exchange:
        """One try, within so many seconds from when it has a place among the connections."""
        async with self._places.one_of(endpoint):
            began = time.monotonic()
            try:
                self._policy.check(endpoint)
                async with asyncio.timeout(within):
                    return await self._post(endpoint, body, headers, began)
            except TimeoutError:
                why = f"no answer within {within:g} s"
            except AddressRefused as error:
                why = str(error)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                why = told(error)
            return Unanswered(why, time.monotonic() - began)

    async def _post(
        self, endpoint: Endpoint, body: bytes, headers: Mapping[str, str], began: float
    ) -> Answered:
        used = SimpleNamespace(again=False)
        try:
            return await self._send(endpoint, body, headers, began, used)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            if not used.again:
                raise
        # Closed while it was idle, as servers do: we were too late to see it. A new one will tell.
        return await self._send(endpoint, body, headers, began, used)

    async def _send(
        self,
        endpoint: Endpoint,
        body: bytes,
        headers: Mapping[str, str],
        began: float,
        used: SimpleNamespace,
    ) -> Answered:
        async with self._session.post(
            URL(endpoint.url, encoded=True),
            data=body,
            headers=headers,
            allow_redirects=False,
            timeout=_UNBOUNDED,
            trace_request_ctx=used,
        ) as response:
            duration = time.monotonic() - began
            # Its word is its status. What becomes of the rest cannot take that back.
            start = await _start_of(response)
            said = tuple(response.headers.items())
            return Answered(response.status, said, excerpt_of(start), duration)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self._resolver.close()


_UNBOUNDED: Final = aiohttp.ClientTimeout(total=None)
"""We have a clock of our own."""


async def _start_of(response: aiohttp.ClientResponse) -> bytes:
    """The beginning of a body. All of a short one is read, so that the connection can be kept."""
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


def _telling_reuse() -> aiohttp.TraceConfig:
    """Tells whether a request was sent on a connection that had been used before."""

    async def reused(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
        context.trace_request_ctx.again = True

    async def made(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
        context.trace_request_ctx.again = False

    config = aiohttp.TraceConfig()
    config.on_connection_reuseconn.append(reused)
    config.on_connection_create_end.append(made)
    return config


class _Places:
    """So many connections to one endpoint: queues that share it wait for each other."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._places: dict[tuple[str, int], asyncio.Semaphore] = {}

    @asynccontextmanager
    async def one_of(self, endpoint: Endpoint) -> AsyncGenerator[None]:
        key = (endpoint.host, endpoint.port)
        places = self._places.setdefault(key, asyncio.Semaphore(self._most))
        self._waiting[key] += 1
        try:
            async with places:
                yield
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._places[key]
