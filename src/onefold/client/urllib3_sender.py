"""Sends the requests of a `Client` with urllib3."""

from __future__ import annotations

import contextlib
import time
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
    import urllib3

if TYPE_CHECKING:
    import ssl

    from onefold.client.connection import Connection

CONNECTIONS: Final = 16
"""Idle connections that are kept."""


class Urllib3Sender:
    """Connections that threads share; without proxies, redirects and cookies."""

    def __init__(self, connection: Connection, tls: ssl.SSLContext | None = None) -> None:
        """It connects with the first request."""
        self._url = connection.url
        self._headers = connection.headers
        # A request never waits for a connection: more than these are opened, and closed again.
        self._pool = urllib3.PoolManager(maxsize=CONNECTIONS, retries=False, ssl_context=tls)

    def send(self, request: ClientRequest) -> ClientResponse:
        """Send a request; `Unreachable` without a complete response."""
        deadline = time.monotonic() + request.timeout
        try:
            response = self._request(request, urllib3.Timeout(total=request.timeout))
            try:
                body = _read(response, deadline)
            except BaseException:
                # The rest of this response must not be read as the next one.
                response.close()
                raise
            response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(self._url, _reason(error)) from error
        return complete_response(self._url, response.status, response.headers, body)

    async def asend(self, request: ClientRequest) -> ClientResponse:
        """Rejected: urllib3 blocks."""
        raise UsageError(f"A Client cannot await {request.path}. Use an AsyncClient.")

    def open(
        self, request: ClientRequest, *, silence: float
    ) -> tuple[ClientResponse, Urllib3Stream | None]:
        """The head of a stream, and the stream. A rejection is read completely."""
        try:
            timeout = urllib3.Timeout(connect=request.timeout, read=silence)
            response = self._request(request, timeout)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(self._url, _reason(error)) from error
        stream = Urllib3Stream(response, self._url)
        headers = lower_names(response.headers)
        if response.status < FIRST_REJECTION:
            return ClientResponse(response.status, headers, b""), stream
        try:
            return ClientResponse(response.status, headers, stream.read_problem()), None
        finally:
            stream.close()

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()

    def _request(
        self, request: ClientRequest, timeout: urllib3.Timeout
    ) -> urllib3.BaseHTTPResponse:
        return self._pool.request(
            request.method,
            self._url + request.path,
            body=request.body,
            headers={**self._headers, **request.headers},
            timeout=timeout,
            redirect=False,
            preload_content=False,
        )


class Urllib3Stream:
    """The body of a response, read piece by piece."""

    def __init__(self, response: urllib3.BaseHTTPResponse, url: str) -> None:
        """Made by `Urllib3Sender.open`."""
        self._response = response
        self._url = url

    def read(self) -> bytes:
        """The next bytes; empty at the end."""
        try:
            return self._response.read1(2**16)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(self._url, _reason(error)) from error

    def read_problem(self) -> bytes:
        """All bytes, up to the limit of a problem."""
        body = b""
        while len(body) < LONGEST_PROBLEM and (piece := self.read()):
            body += piece
        return body

    def shut_down(self) -> None:
        """End a `read` that waits in another thread."""
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # It has ended already.
            self._response.shutdown()

    def close(self) -> None:
        """Close the connection."""
        self._response.close()


def _read(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """The body. A timeout of a socket covers one read only, so that the deadline is checked too."""
    pieces: list[bytes] = []
    while piece := response.read1(2**16):
        pieces.append(piece)
        if time.monotonic() >= deadline:
            raise urllib3.exceptions.TimeoutError("the response was not complete in time")
    return b"".join(pieces)


def _reason(error: BaseException) -> str:
    """The message without the objects that urllib3 writes before it."""
    text = str(error)
    for mark in (">: ", "): "):
        text = text.rpartition(mark)[2]
    return (text or type(error).__name__).removesuffix(".")
