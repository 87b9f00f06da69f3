"""Sends by urllib3, for `Client`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from onefold.client.errors import Unreachable
from onefold.client.flow import CUT, Pause, Reply, Send, is_delimited
from onefold.operations.run import run

try:
    import urllib3
except ModuleNotFoundError as _missing:
    raise ImportError(
        "The client needs urllib3; install it: pip install 'onefold[client]'"
    ) from _missing

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

    def _perform(self, step: Step) -> Reply | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        return self._send(step)

    def _send(self, send: Send) -> Reply:
        deadline = time.monotonic() + send.timeout
        try:
            response = self._pool.request(
                send.method,
                self._url + send.path,
                body=send.body,
                headers={**self._headers, **send.headers},
                timeout=urllib3.Timeout(total=send.timeout),
                redirect=False,
                preload_content=False,
            )
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
