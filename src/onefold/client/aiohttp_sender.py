"""Sends the requests of an `AsyncClient` with aiohttp."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from onefold.client.connection import (
    FIRST_REJECTION,
    LONGEST_PROBLEM,
    complete_response,
    lower_names,
)
from onefold.client.problems import Unreachable
from onefold.client.requests import ClientRequest, ClientResponse
from onefold.errors import Needs, UsageError

with Needs("onefold[client]"):
    import aiohttp
    from yarl import URL

if TYPE_CHECKING:
    import ssl

    from onefold.client.connection import Connection

CONNECTIONS: Final = 100
"""Connections at a time; further requests wait."""


class AiohttpSender:
    """Connections of one event loop; without proxies, redirects and cookies."""

    def __init__(self, connection: Connection, tls: ssl.SSLContext | None = None) -> None:
        """It connects with the first request, and belongs to the event loop of that one."""
        self._url = connection.url
        self._headers = connection.headers
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def send(self, request: ClientRequest) -> ClientResponse:
        """Rejected: aiohttp is awaited."""
        raise UsageError(f"An AsyncClient cannot block for {request.path}. Await it.")

    async def asend(self, request: ClientRequest) -> ClientResponse:
        """Send a request; `Unreachable` without a complete response."""
        try:
            timeout = aiohttp.ClientTimeout(total=request.timeout)
            async with await self._request(request, timeout) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(self._url, _reason(error)) from error
        return complete_response(self._url, response.status, response.headers, body)

    async def open(
        self, request: ClientRequest, *, silence: float
    ) -> tuple[ClientResponse, AiohttpStream | None]:
        """The head of a stream, and the stream. A rejection is read completely."""
        timeout = aiohttp.ClientTimeout(total=None, connect=request.timeout, sock_read=silence)
        try:
            response = await self._request(request, timeout)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(self._url, _reason(error)) from error
        stream = AiohttpStream(response, self._url)
        headers = lower_names(response.headers)
        if response.status < FIRST_REJECTION:
            return ClientResponse(response.status, headers, b""), stream
        try:
            return ClientResponse(response.status, headers, await stream.read_problem()), None
        finally:
            stream.close()

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _request(
        self, request: ClientRequest, limit: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        return await self._open_session().request(
            request.method,
            # Encoded already: aiohttp would decode some characters of a name.
            URL(self._url + request.path, encoded=True),
            data=request.body,
            headers={**self._headers, **request.headers},
            timeout=limit,
            allow_redirects=False,
        )

    def _open_session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is not None and self._loop is not loop:
            raise UsageError(
                "This AsyncClient was used in another event loop, and its connections belong to"
                " that loop. Close it there, or create one AsyncClient per loop."
            )
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=CONNECTIONS, ssl=True if self._tls is None else self._tls
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
            self._loop = loop
        return self._session


class AiohttpStream:
    """The body of a response, read piece by piece."""

    def __init__(self, response: aiohttp.ClientResponse, url: str) -> None:
        """Made by `AiohttpSender.open`."""
        self._response = response
        self._url = url
        self._first: bytes | None = None

    async def read_ahead(self) -> None:
        """Read the first bytes now; the next `read` returns them.

        Without a reader, aiohttp drops what has arrived when the connection breaks.
        """
        try:
            self._first = await self.read()
        except BaseException:
            self.close()
            raise

    async def read(self) -> bytes:
        """The next bytes; empty at the end. A cancelled call loses nothing."""
        if self._first is not None:
            piece, self._first = self._first, None
            return piece
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(self._url, _reason(error)) from error

    async def read_problem(self) -> bytes:
        """All bytes, up to the limit of a problem."""
        body = b""
        while len(body) < LONGEST_PROBLEM and (piece := await self.read()):
            body += piece
        return body

    def close(self) -> None:
        """Close the connection."""
        self._response.close()


def _reason(error: BaseException) -> str:
    """The message; a timeout has none of its own."""
    if isinstance(error, TimeoutError):
        return str(error) or "no response in time"
    return (str(error) or type(error).__name__).removesuffix(".")
