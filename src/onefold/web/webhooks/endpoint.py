"""`WebhookEndpoint`: the base of `Webhook` and of the `Receiver` of pushed jobs, as applications.

Give an application to a route. Starlette and FastAPI redirect `/hook` to `/hook/` for a mounted
application, and senders do not follow redirects.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from onefold.errors import UsageError
from onefold.web.http import HttpRequest, HttpResponse, asgi_headers, status_line, wsgi_headers
from onefold.web.webhooks import responses
from onefold.web.webhooks.provider import BadSignature

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping
    from typing import TypeAlias
    from wsgiref.types import StartResponse, WSGIEnvironment

    from onefold.runtime import Procedure, Runtime
    from onefold.web.webhooks.webhook_event import Verified

    Handler = TypeVar("Handler", bound=Callable[..., Any])
    Handles: TypeAlias = Callable[..., Any] | None
    Arguments: TypeAlias = tuple[Any, ...]
    Work: TypeAlias = Callable[[], Awaitable[object]]
    Scope: TypeAlias = MutableMapping[str, Any]
    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]

log: logging.Logger = logging.getLogger("onefold.web")


class EndpointDelivery:
    """One request that was checked, and the run of its handler."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime: Runtime = runtime

    def process(self) -> Procedure[HttpResponse]:
        """Run the handler; returns the response."""
        raise NotImplementedError

    def roll_back(self) -> Procedure[None]:
        """Roll back the transaction if it is open."""
        raise NotImplementedError

    def run(self) -> HttpResponse:
        """Process it, blocking."""
        try:
            return self.runtime.run(self.process())
        finally:
            self.runtime.run(self.roll_back())

    async def arun(self) -> HttpResponse:
        """`run`, awaited. A plain handler runs in a thread."""
        try:
            return await self.runtime.arun(self.process())
        finally:
            await self.runtime.arun(self.roll_back())


class WebhookEndpoint:
    """Checks requests, and runs a handler for each one."""

    event: type[Any]
    """The type of the first argument of a handler."""
    responds_first: bool = False
    """True: the response is sent before the handler runs."""

    def __init__(self, name: str, max_body: int) -> None:
        self.name: str = name
        self.max_body: int = max_body
        self._handler: Callable[..., Any] | None = None

    @property
    def asgi(self) -> AsgiWebhook:
        """The endpoint as an ASGI application."""
        return AsgiWebhook(self)

    @property
    def wsgi(self) -> WsgiWebhook:
        """The endpoint as a WSGI application. Create it once."""
        return WsgiWebhook(self)

    def process(self, handler: Handler) -> Handler:
        """Decorate the handler: a function or a coroutine function."""
        if self._handler is not None:
            raise UsageError(f"The {type(self).__name__} {self.name!r} has a handler already.")
        self._handler = handler
        return handler

    def probed(self, method: str) -> HttpResponse | None:
        """The response to a request that is not a POST."""
        return None if method == "POST" else responses.NOT_ALLOWED

    def verify(self, request: HttpRequest, body: bytes) -> Verified:
        """Check the signature of a request; raises `BadSignature`. Nothing is stored."""
        raise NotImplementedError

    def check(self, request: HttpRequest, body: bytes) -> HttpResponse | Verified:
        """Check a request without the database: the response if it is rejected, or its event."""
        if (probed := self.probed(request.method)) is not None:
            return probed
        if len(body) > self.max_body:
            return responses.too_large(self.max_body)
        try:
            return self.verify(request, body)
        except BadSignature as error:
            self.rejected(error.code)
            return responses.REJECTED

    def rejected(self, code: str) -> None:
        """Report the reason of a rejection, which the sender does not receive."""
        raise NotImplementedError

    def accept(
        self, request: HttpRequest, body: bytes, handler: Handles = None, arguments: Arguments = ()
    ) -> HttpResponse | EndpointDelivery:
        """Check a request: the response if it is rejected, or the delivery to run."""
        checked = self.check(request, body)
        if isinstance(checked, HttpResponse):
            return checked
        chosen = self._handler if handler is None else handler
        return self.delivery(checked, request, chosen, arguments)

    def delivery(
        self, verified: Verified, request: HttpRequest, handler: Handles, arguments: Arguments
    ) -> EndpointDelivery:
        """The delivery of a checked request."""
        raise NotImplementedError

    def no_handler(self) -> UsageError:
        """The error of an endpoint without a handler."""
        return UsageError(
            f"The {type(self).__name__} {self.name!r} has no handler: decorate a function with its"
            " `process`."
        )

    def receive(
        self, request: HttpRequest, body: bytes, handler: Handles = None, arguments: Arguments = ()
    ) -> HttpResponse:
        """Receive one request, blocking; returns the response to its sender."""
        accepted = self.accept(request, body, handler, arguments)
        return accepted.run() if isinstance(accepted, EndpointDelivery) else accepted

    async def areceive(
        self, request: HttpRequest, body: bytes, handler: Handles = None, arguments: Arguments = ()
    ) -> HttpResponse:
        """`receive`, awaited. A plain handler runs in a thread."""
        accepted = self.accept(request, body, handler, arguments)
        return await accepted.arun() if isinstance(accepted, EndpointDelivery) else accepted

    async def respond(
        self, request: HttpRequest, body: bytes, handler: Handles = None, arguments: Arguments = ()
    ) -> tuple[HttpResponse, Work | None]:
        """The response, and the work to do after it is sent."""
        accepted = self.accept(request, body, handler, arguments)
        if not isinstance(accepted, EndpointDelivery):
            return accepted, None
        if self.responds_first:
            return responses.ACCEPTED, accepted.arun
        return await accepted.arun(), None


class AsgiWebhook:
    """Give it to a route: `app.add_route("/hooks", webhook.asgi, methods=["POST"])`."""

    def __init__(self, endpoint: WebhookEndpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Receive one request."""
        if scope["type"] != "http":
            return
        request = request_of(scope)
        response: bytes | HttpResponse | None = self._endpoint.probed(request.method)
        if response is None:
            response = await read_body(request, receive, self._endpoint.max_body)
        work: Work | None = None
        if isinstance(response, bytes):
            response, work = await self._endpoint.respond(request, response)
        if response is None:
            return
        headers = asgi_headers(response.headers)
        body = b"" if request.method == "HEAD" else response.body
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        if work is not None:
            await work()


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
    if (request.content_length or 0) > limit:
        return responses.too_large(limit)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            return responses.too_large(limit)
        if not message.get("more_body", False):
            return bytes(body)


class WsgiWebhook:
    """A WSGI application: mount it, or run it."""

    def __init__(self, endpoint: WebhookEndpoint) -> None:
        self._endpoint = endpoint
        # For work after the response. `close()` of a response is too early: some servers send
        # nothing before it returns.
        self._threads = ThreadPoolExecutor(thread_name_prefix="onefold-receiver")

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Receive one request."""
        request = wsgi_request_of(environ)
        response = self._endpoint.probed(request.method)
        if response is None:
            body = wsgi_read_body(request, environ, self._endpoint.max_body)
            response = self._respond(request, body) if isinstance(body, bytes) else body
        start_response(status_line(response.status), list(response.headers))
        return [b"" if request.method == "HEAD" else response.body]

    def _respond(self, request: HttpRequest, body: bytes) -> HttpResponse:
        accepted = self._endpoint.accept(request, body)
        if not isinstance(accepted, EndpointDelivery):
            return accepted
        if not self._endpoint.responds_first:
            return accepted.run()
        self._threads.submit(self._work, accepted)
        return responses.ACCEPTED

    def _work(self, delivery: EndpointDelivery) -> None:
        try:
            delivery.run()
        except Exception:
            # The result of the thread is not read.
            log.exception("A pushed job could not be received.")


def wsgi_request_of(environ: WSGIEnvironment, path: str | None = None) -> HttpRequest:
    """The request of an environment; `path` replaces the path of it."""
    return HttpRequest(
        method=str(environ["REQUEST_METHOD"]),
        path=_path(environ) if path is None else path,
        query=str(environ.get("QUERY_STRING", "")),
        headers=tuple(wsgi_headers(environ)),
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


def wsgi_read_body(
    request: HttpRequest, environ: WSGIEnvironment, limit: int
) -> bytes | HttpResponse:
    """The body, or a response if it is too long."""
    length = request.content_length
    if (length or 0) > limit:
        return responses.too_large(limit)
    if length is None and not environ.get("wsgi.input_terminated"):
        return b""
    wanted = limit + 1 if length is None else length
    body = bytearray()
    while len(body) < wanted:
        piece: bytes = environ["wsgi.input"].read(wanted - len(body))
        if not piece:
            break
        body += piece
    return responses.too_large(limit) if len(body) > limit else bytes(body)
