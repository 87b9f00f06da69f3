"""Sends by urllib3, for `Client`."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from onefold.client.connection import LEAST_REFUSAL
from onefold.client.errors import Unreachable
from onefold.client.flow import CUT, LONGEST_REFUSAL, Pause, Reply, Send, is_delimited
from onefold.errors import Needs
from onefold.operations.statement import run

with Needs("onefold[client]"):
    import urllib3

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from onefold.client.flow import Flow, Step, T

CONNECTIONS: Final = 16
"""As many are kept."""


class SyncDriver:
    """Connections that are kept and shared by threads; no proxies, no redirects, no cookies."""

    def __init__(
        self, url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None = None
    ) -> None:
        """Nothing is sent yet."""
        self._url = url
        self._headers = headers
        # Nobody waits for a connection: more than are kept are made, and closed again.
        self._pool = urllib3.PoolManager(maxsize=CONNECTIONS, retries=False, ssl_context=tls)

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        return run(flow, self._perform)

    def close(self) -> None:
        """Close what is kept."""
        self._pool.clear()

    def open(self, send: Send, *, silence: float) -> tuple[Reply, SyncStream | None]:
        """The beginning of an answer that goes on, and the rest of it; a refusal is read whole."""
        try:
            response = self._requested(send, urllib3.Timeout(connect=send.timeout, read=silence))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(self._url, _reason(error)) from error
        stream = SyncStream(response, self._url)
        headers = {name.lower(): value for name, value in response.headers.items()}
        if response.status < LEAST_REFUSAL:
            return Reply(response.status, headers, b""), stream
        try:
            return Reply(response.status, headers, stream.whole()), None
        finally:
            stream.close()

    def _perform(self, step: Step) -> Reply | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        return self._send(step)

    def _send(self, send: Send) -> Reply:
        deadline = time.monotonic() + send.timeout
        try:
            response = self._requested(send, urllib3.Timeout(total=send.timeout))
            try:
                body = _read(response, deadline)
            except BaseException:
                # What is left of the answer must not be taken for the next one.
                response.close()
                raise
            response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(self._url, _reason(error)) from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        # http.client takes headers that were cut off for whole ones.
        if not is_delimited(response.status, headers):
            raise Unreachable(self._url, CUT)
        return Reply(response.status, headers, body)

    def _requested(self, send: Send, timeout: urllib3.Timeout) -> urllib3.BaseHTTPResponse:
        return self._pool.request(
            send.method,
            self._url + send.path,
            body=send.body,
            headers={**self._headers, **send.headers},
            timeout=timeout,
            redirect=False,
            preload_content=False,
        )


class SyncStream:
    """The rest of an answer that goes on, piece by piece."""

    def __init__(self, response: urllib3.BaseHTTPResponse, url: str) -> None:
        """Made by `SyncDriver.open`."""
        self._response = response
        self._url = url

    def read(self) -> bytes:
        """What has come, waiting for it; nothing at the end."""
        try:
            return self._response.read1(2**16)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(self._url, _reason(error)) from error

    def whole(self) -> bytes:
        """All of it, or as much as a problem may have."""
        body = b""
        while len(body) < LONGEST_REFUSAL and (piece := self.read()):
            body += piece
        return body

    def end(self) -> None:
        """Let nothing more come: a `read` of another thread comes to its end."""
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # It has ended already.
            self._response.shutdown()

    def close(self) -> None:
        """Hang up."""
        self._response.close()


def _read(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """The body, whole. A timeout of a socket is for one read; a trickle must end, too."""
    pieces: list[bytes] = []
    while piece := response.read1(2**16):
        pieces.append(piece)
        if time.monotonic() >= deadline:
            raise urllib3.exceptions.TimeoutError("the answer did not come to its end in time")
    return b"".join(pieces)


def _reason(error: BaseException) -> str:
    """What a person makes of it: without the objects that urllib3 puts in front."""
    text = str(error)
    for mark in (">: ", "): "):
        text = text.rpartition(mark)[2]
    return (text or type(error).__name__).removesuffix(".")
