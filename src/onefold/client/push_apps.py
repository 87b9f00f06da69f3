"""A receiver of pushed jobs as an ASGI or a WSGI application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.client.verdict import ACCEPTED
from onefold.surfaces.webhooks import asgi, wsgi

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIEnvironment

    from onefold.client.receiver import Receiver
    from onefold.surfaces.http.answer import Answer
    from onefold.surfaces.http.request import Request
    from onefold.surfaces.webhooks.asgi import Receive, Scope, Send


class AsgiReceiver:
    """Mount it, or give it to a route."""

    def __init__(self, receiver: Receiver) -> None:
        """Made by `Receiver.asgi`."""
        self._receiver = receiver

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Receive one request."""
        if scope["type"] != "http":
            return
        request = asgi.request_of(scope)
        body = await asgi.read_body(request, receive, self._receiver.max_body)
        if body is None:
            return
        refused = body if not isinstance(body, bytes) else self._receiver.check(request, body)
        if refused is not None or not isinstance(body, bytes):
            assert refused is not None
            await asgi.send_answer(refused, send, head=request.method == "HEAD")
        elif self._receiver.mode == "ack":
            await asgi.send_answer(ACCEPTED, send)
            await self._receiver.areceive(request, body)
        else:
            await asgi.send_answer(await self._receiver.areceive(request, body), send)


class WsgiReceiver:
    """Mount it, or run it."""

    def __init__(self, receiver: Receiver) -> None:
        """Made by `Receiver.wsgi`."""
        self._receiver = receiver

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Receive one request."""
        request = wsgi.request_of(environ)
        body = wsgi.read_body(request, environ, self._receiver.max_body)
        refused = body if not isinstance(body, bytes) else self._receiver.check(request, body)
        if refused is not None or not isinstance(body, bytes):
            assert refused is not None
            return _said(refused, start_response, head=request.method == "HEAD")
        if self._receiver.mode == "ack":
            _said(ACCEPTED, start_response)
            return _Afterwards(self._receiver, request, body)
        return _said(self._receiver.receive(request, body), start_response)


class _Afterwards:
    """An empty body. The server closes it when the answer is sent: then the work begins."""

    def __init__(self, receiver: Receiver, request: Request, body: bytes) -> None:
        self._receiver = receiver
        self._request = request
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        return iter([b""])

    def close(self) -> None:
        self._receiver.receive(self._request, self._body)


def _said(answer: Answer, start_response: StartResponse, *, head: bool = False) -> list[bytes]:
    start_response(wsgi.status_line(answer.status), list(answer.headers))
    return [b"" if head else answer.body]
