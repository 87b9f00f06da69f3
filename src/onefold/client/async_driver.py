"""Sends by aiohttp, for `AsyncClient`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from onefold.client.connection import LEAST_REFUSAL
from onefold.client.errors import Unreachable
from onefold.client.flow import CUT, LONGEST_REFUSAL, Pause, Reply, Send, is_delimited
from onefold.errors import Needs, UsageError
from onefold.operations.statement import run_async

with Needs("onefold[client]"):
    import aiohttp
    from yarl import URL

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from onefold.client.flow import Flow, Step, T

CONNECTIONS: Final = 100
"""At a time; more requests wait for one."""


class AsyncDriver:
    """Connections of one event loop; no proxies, no redirects, no cookies."""

    def __init__(
        self, url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None = None
    ) -> None:
        """Nothing is opened before the first request: the loop is that one's."""
        self._url = url
        self._headers = headers
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        return await run_async(flow, self._perform)

    async def close(self) -> None:
        """Close what is kept."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def open(self, send: Send, *, silence: float) -> tuple[Reply, AsyncStream | None]:
        """The beginning of an answer that goes on, and the rest of it; a refusal is read whole."""
        limit = aiohttp.ClientTimeout(total=None, connect=send.timeout, sock_read=silence)
        try:
            response = await self._requested(send, limit)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(self._url, _reason(error)) from error
        stream = AsyncStream(response, self._url)
        headers = {name.lower(): value for name, value in response.headers.items()}
        if response.status < LEAST_REFUSAL:
            return Reply(response.status, headers, b""), stream
        try:
            return Reply(response.status, headers, await stream.whole()), None
        finally:
            stream.close()

    @staticmethod
    async def pause(seconds: float) -> None:
        """Send nothing for so long."""
        await asyncio.sleep(seconds)

    async def _perform(self, step: Step) -> Reply | None:
        if isinstance(step, Pause):
            await self.pause(step.seconds)
            return None
        return await self._send(step)

    async def _send(self, send: Send) -> Reply:
        try:
            limit = aiohttp.ClientTimeout(total=send.timeout)
            async with await self._requested(send, limit) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(self._url, _reason(error)) from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        if not is_delimited(response.status, headers):
            raise Unreachable(self._url, CUT)
        return Reply(response.status, headers, body)

    async def _requested(self, send: Send, limit: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        return await self._opened().request(
            send.method,
            # As it stands: a name in the path may hold what aiohttp would read anew.
            URL(self._url + send.path, encoded=True),
            data=send.body,
            headers={**self._headers, **send.headers},
            timeout=limit,
            allow_redirects=False,
        )

    def _opened(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is not None and self._loop is not loop:
            raise UsageError(
                "This AsyncClient has been used in another event loop, and its connections belong"
                " to that one. Close it there, or make one for each loop."
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


class AsyncStream:
    """The rest of an answer that goes on, piece by piece."""

    def __init__(self, response: aiohttp.ClientResponse, url: str) -> None:
        """Made by `AsyncDriver.open`."""
        self._response = response
        self._url = url
        self._begun: bytes | None = None

    async def begin(self) -> None:
        """Wait for the first piece, and keep it: it is the first that is read."""
        # At once, since aiohttp forgets what has come when a connection breaks that nobody reads.
        try:
            self._begun = await self.read()
        except BaseException:
            self.close()
            raise

    async def read(self) -> bytes:
        """What has come, waiting for it; nothing at the end. Given up, it loses nothing."""
        if self._begun is not None:
            piece, self._begun = self._begun, None
            return piece
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(self._url, _reason(error)) from error

    async def whole(self) -> bytes:
        """All of it, or as much as a problem may have."""
        body = b""
        while len(body) < LONGEST_REFUSAL and (piece := await self.read()):
            body += piece
        return body

    def close(self) -> None:
        """Hang up."""
        self._response.close()


def _reason(error: BaseException) -> str:
    """What a person makes of it; a timeout says nothing of itself."""
    if isinstance(error, TimeoutError):
        return str(error) or "no answer in time"
    return (str(error) or type(error).__name__).removesuffix(".")
