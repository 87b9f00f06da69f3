"""A `Webhook`, or the `Receiver` of pushed jobs, as an ASGI or WSGI application.

Give it to a route. Starlette and FastAPI redirect `/hook` to `/hook/` for a mounted application,
and senders do not follow redirects.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from onefold.web.http import HttpRequest, asgi_headers
from onefold.web.webhooks import processing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping
    from wsgiref.types import StartResponse, WSGIEnvironment

    from onefold.web.http import HttpResponse
    from onefold.web.webhooks.webhook import Webhook


if TYPE_CHECKING:
    Work = Callable[[], Awaitable[object]]
    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]


class Receives(Protocol):
    """A `Webhook`, or a `Receiver`."""

    @property
    def event(self) -> type[Any]:
        """The type of the first argument of a handler."""
        ...

    @property
    def max_body(self) -> int:
        """Bytes of a body; more is 413."""
        ...

    def probed(self, method: str) -> HttpResponse | None:
        """The response to another method than POST; None for a POST."""
        ...

    async def respond(
        self,
        request: HttpRequest,
        body: bytes,
        handler: Callable[..., Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> tuple[HttpResponse, Work | None]:
        """The response, and a function to call after it is sent."""
        ...


class AsgiWebhook:
    """Give it to a route: `app.add_route("/hooks", webhook.asgi, methods=["POST"])`."""

    def __init__(self, webhook: Receives) -> None:
        """Made by `Webhook.asgi` and `Receiver.asgi`."""
        self._webhook = webhook

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Receive one request."""
        if scope["type"] != "http":
            return
        request = request_of(scope)
        answer: bytes | HttpResponse | None = self._webhook.probed(request.method)
        if answer is None:
            answer = await read_body(request, receive, self._webhook.max_body)
        afterwards: Work | None = None
        if isinstance(answer, bytes):
            answer, afterwards = await self._webhook.respond(request, answer)
        if answer is not None:
            await send_answer(answer, send, head=request.method == "HEAD")
        if afterwards is not None:
            await afterwards()


def request_of(scope: Scope) -> HttpRequest:
    """The request of a scope."""
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.partition(b"?")[0].decode("latin-1")
    return HttpRequest(
        method=scope["method"],
        path=path,
        query=scope.get("query_string", b"").decode("latin-1"),
        headers=tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in scope["headers"]
        ),
    )


async def read_body(
    request: HttpRequest, receive: Receive, limit: int
) -> bytes | HttpResponse | None:
    """The body; a response if it is too long; None if the sender has disconnected."""
    if is_too_long(request, limit):
        return processing.too_large(limit)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            return processing.too_large(limit)
        if not message.get("more_body", False):
            return bytes(body)


def is_too_long(request: HttpRequest, limit: int) -> bool:
    """True if Content-Length is above the limit."""
    length = request.value("content-length") or ""
    return (
        length.isascii()
        and length.isdigit()
        and (len(length) > len(str(limit)) or int(length) > limit)
    )


async def send_answer(answer: HttpResponse, send: Send, *, head: bool = False) -> None:
    """Send an answer."""
    headers = asgi_headers(answer.headers)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else answer.body})


class WsgiWebhook:
    """Mount it, or run it."""

    def __init__(self, webhook: Webhook) -> None:
        """Made by `Webhook.wsgi`."""
        self._webhook = webhook

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Receive one request."""
        request = wsgi_request_of(environ)
        answer = self._webhook.probed(request.method)
        if answer is None:
            body = wsgi_read_body(request, environ, self._webhook.settings.max_body)
            answer = self._webhook.receive(request, body) if isinstance(body, bytes) else body
        start_response(status_line(answer.status), list(answer.headers))
        return [b"" if request.method == "HEAD" else answer.body]


def wsgi_request_of(environ: WSGIEnvironment, path: str | None = None) -> HttpRequest:
    """The request of an environment; `path` replaces the path of it."""
    return HttpRequest(
        method=str(environ["REQUEST_METHOD"]),
        path=_path(environ) if path is None else path,
        query=str(environ.get("QUERY_STRING", "")),
        headers=tuple(_headers(environ)),
    )


def raw_path(environ: WSGIEnvironment) -> str | None:
    """The path as it was sent, if the server provides it."""
    for name in ("REQUEST_URI", "RAW_URI"):
        raw: Any = environ.get(name)
        if isinstance(raw, str) and raw.startswith("/"):
            return raw.partition("?")[0]
    return None


def _path(environ: WSGIEnvironment) -> str:
    """The path as it was sent, if the server provides it: PATH_INFO is decoded."""
    if (raw := raw_path(environ)) is not None:
        return raw
    decoded = f"{environ.get('SCRIPT_NAME', '')}{environ.get('PATH_INFO', '')}"
    return quote(decoded.encode("latin-1"))


def _headers(environ: WSGIEnvironment) -> Iterable[tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name.removeprefix("HTTP_").replace("_", "-").lower(), str(value)
        elif name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
            yield name.replace("_", "-").lower(), str(value)


def wsgi_read_body(
    request: HttpRequest, environ: WSGIEnvironment, limit: int
) -> bytes | HttpResponse:
    """The body, or a response if it is too long."""
    if is_too_long(request, limit):
        return processing.too_large(limit)
    length = request.value("content-length") or ""
    is_number = length.isascii() and length.isdigit()
    if not is_number and not environ.get("wsgi.input_terminated"):
        return b""
    wanted = int(length) if is_number else limit + 1
    body = bytearray()
    while len(body) < wanted:
        piece: bytes = environ["wsgi.input"].read(wanted - len(body))
        if not piece:
            break
        body += piece
    return processing.too_large(limit) if len(body) > limit else bytes(body)


def status_line(status: int) -> str:
    """A status with its phrase."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"
