"""Sends requests and reads answers: one pool of connections for a process, whatever it talks to.

A receiver may be slow, broken or hostile. It is given so long, so many bytes are read of it, and
nothing that it says makes us talk to somebody else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final

from onefold.errors.extra import Needs

with Needs("onefold[server]"):
    import aiohttp
    from yarl import URL


from onefold.push.address import AddressRefused
from onefold.push.connector import Connector
from onefold.push.reading import EXCERPT_BYTES, Answered, Unanswered, excerpt_of
from onefold.push.resolver import CheckedResolver
from onefold.push.trouble import told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onefold.push.address import AddressPolicy, Endpoint
    from onefold.push.reading import Exchange
    from onefold.push.resolver import Lookup

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

log: logging.Logger = logging.getLogger("onefold.push")


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
    ) -> Exchange:
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
    ) -> Exchange:
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
    ) -> Answered:
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
            return Answered(response.status, said, excerpt_of(start), duration)

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
