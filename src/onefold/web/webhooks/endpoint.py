"""`WebhookEndpoint`: the base of `Webhook` and of the `Receiver` of pushed jobs, as applications.

Give an application to a route. Starlette and FastAPI redirect `/hook` to `/hook/` for a mounted
application, and senders do not follow redirects.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from onefold.errors import UsageError
from onefold.runtime import RequestRuntime
from onefold.web.http import HttpRequest, HttpResponse, asgi_headers, status_line, wsgi_headers
from onefold.web.webhooks import responses
from onefold.web.webhooks.provider import BadSignature, TooManySignatures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
    from typing import TypeAlias
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from onefold.runtime import Procedure, Runtime
    from onefold.web.webhooks.webhook_event import Verified

    F = TypeVar("F", bound=Callable[..., Any])
    Handler: TypeAlias = Callable[..., Any]
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
        self.runtime: Runtime = RequestRuntime(runtime)

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
        self._handler: Handler | None = None

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(thread_name_prefix="onefold-receiver")

    @property
    def asgi(self) -> AsgiWebhook:
        """The endpoint as an ASGI application."""
        return AsgiWebhook(self)

    @property
    def wsgi(self) -> WSGIApplication:
        """The endpoint as a WSGI application: mount it, or run it."""
        return self._call_wsgi

    def process(self, handler: F) -> F:
        """Decorate the handler: a function or a coroutine function."""
        if self._handler is not None:
            raise UsageError(f"The {type(self).__name__} {self.name!r} has a handler already.")
        self._handler = handler
        return handler

    def rejected_unread(self, request: HttpRequest) -> HttpResponse | None:
        """The response to a request whose body is not read: not a POST, or too long."""
        if request.method != "POST":
            return responses.NOT_ALLOWED
        if (request.content_length or 0) > self.max_body:
            return responses.too_large(self.max_body)
        return None

    def verify(self, request: HttpRequest, body: bytes) -> Verified:
        """Check the signature of a request; raises `BadSignature`. Nothing is stored."""
        raise NotImplementedError

    def check(self, request: HttpRequest, body: bytes) -> HttpResponse | Verified:
        """Check a request without the database: the response if it is rejected, or its event."""
        if (rejected := self.rejected_unread(request)) is not None:
            return rejected
        if len(body) > self.max_body:
            return responses.too_large(self.max_body)
        try:
            return self.verify(request, body)
        except BadSignature as error:
            self.rejected(error.code)
            too_many = isinstance(error, TooManySignatures)
            return responses.TOO_MANY_SIGNATURES if too_many else responses.REJECTED

    def rejected(self, code: str) -> None:
        """Report the reason of a rejection, which the sender does not receive."""
        raise NotImplementedError

    def accept(
        self,
        request: HttpRequest,
        body: bytes,
        handler: Handler | None = None,
        arguments: Arguments = (),
    ) -> HttpResponse | EndpointDelivery:
        """Check a request: the response if it is rejected, or the delivery to run."""
        checked = self.check(request, body)
        if isinstance(checked, HttpResponse):
            return checked
        chosen = handler or self._handler
        if chosen is None:
            raise UsageError(
                f"The {type(self).__name__} {self.name!r} has no handler: decorate a function with"
                " its `process`."
            )
        return self.delivery(checked, request, chosen, arguments)

    def delivery(
        self, verified: Verified, request: HttpRequest, handler: Handler, arguments: Arguments
    ) -> EndpointDelivery:
        """The delivery of a checked request."""
        raise NotImplementedError

    def receive(
        self,
        request: HttpRequest,
        body: bytes,
        handler: Handler | None = None,
        arguments: Arguments = (),
    ) -> HttpResponse:
        """Receive one request, blocking; returns the response to its sender."""
        accepted = self.accept(request, body, handler, arguments)
        return accepted.run() if isinstance(accepted, EndpointDelivery) else accepted

    async def areceive(
        self,
        request: HttpRequest,
        body: bytes,
        handler: Handler | None = None,
        arguments: Arguments = (),
    ) -> HttpResponse:
        """`receive`, awaited. A plain handler runs in a thread."""
        accepted = self.accept(request, body, handler, arguments)
        return await accepted.arun() if isinstance(accepted, EndpointDelivery) else accepted

    async def respond(
        self,
        scope: Scope,
        receive: Receive,
        handler: Handler | None = None,
        arguments: Arguments = (),
    ) -> tuple[HttpResponse | None, Work | None]:
        """The response to an ASGI request, and the work to do after it is sent.

        None if the sender has disconnected.
        """
        request = _asgi_request(scope)
        if (rejected := self.rejected_unread(request)) is not None:
            return rejected, None
        body = await _asgi_body(receive, self.max_body)
        if body is None:
            return None, None
        accepted = self.accept(request, body, handler, arguments)
        if not isinstance(accepted, EndpointDelivery):
            return accepted, None
        if self.responds_first:
            return responses.ACCEPTED, accepted.arun
        return await accepted.arun(), None

    def respond_wsgi(
        self, environ: WSGIEnvironment, handler: Handler | None = None, arguments: Arguments = ()
    ) -> HttpResponse:
        """The response to a WSGI request. Work after the response is done in a thread.

        `close()` of the response would be too early: some servers send nothing before it returns.
        """
        decoded = f"{environ.get('SCRIPT_NAME', '')}{environ.get('PATH_INFO', '')}"
        request = wsgi_request(environ, raw_path(environ) or quote(decoded.encode("latin-1")))
        if (rejected := self.rejected_unread(request)) is not None:
            return rejected
        body = _wsgi_body(request, environ, self.max_body)
        accepted = self.accept(request, body, handler, arguments)
        if not isinstance(accepted, EndpointDelivery):
            return accepted
        if not self.responds_first:
            return accepted.run()
        self._threads.submit(_run, accepted)
        return responses.ACCEPTED

    def _call_wsgi(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        response = self.respond_wsgi(environ)
        start_response(status_line(response.status), list(response.headers))
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else response.body]


def _run(delivery: EndpointDelivery) -> None:
    try:
        delivery.run()
    except Exception:
        # The result of the thread is not read.
        log.exception("A pushed job could not be received.")


class AsgiWebhook:
    """Give it to a route: `app.add_route("/hooks", webhook.asgi, methods=["POST"])`."""

    def __init__(self, endpoint: WebhookEndpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Receive one request."""
        if scope["type"] != "http":
            return
        response, work = await self._endpoint.respond(scope, receive)
        if response is None:
            return
        headers = asgi_headers(response.headers)
        body = b"" if scope["method"] == "HEAD" else response.body
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        if work is not None:
            await work()


def _asgi_request(scope: Scope) -> HttpRequest:
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


async def _asgi_body(receive: Receive, limit: int) -> bytes | None:
    """The body, or a beginning that is longer than the limit; None if it ends too early."""
    body = bytearray()
    is_over = False
    while not is_over and len(body) <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        is_over = not message.get("more_body", False)
    return bytes(body)


def wsgi_request(environ: Mapping[str, Any], path: str) -> HttpRequest:
    """The request of an environment, with the path as it was sent."""
    return HttpRequest(
        method=str(environ["REQUEST_METHOD"]),
        path=path,
        query=str(environ.get("QUERY_STRING", "")),
        headers=tuple(wsgi_headers(environ)),
    )


def raw_path(environ: Mapping[str, Any]) -> str | None:
    """The path as it was sent, if the server provides it: PATH_INFO is decoded."""
    for name in ("REQUEST_URI", "RAW_URI"):
        raw: Any = environ.get(name)
        if isinstance(raw, str) and raw.startswith("/"):
            return raw.partition("?")[0]
    return None


def _wsgi_body(request: HttpRequest, environ: WSGIEnvironment, limit: int) -> bytes:
    """The body, or a beginning that is longer than the limit."""
    wanted = request.content_length
    if wanted is None:
        wanted = limit + 1 if environ.get("wsgi.input_terminated") else 0
    body = bytearray()
    while len(body) < wanted:
        piece: bytes = environ["wsgi.input"].read(wanted - len(body))
        if not piece:
            break
        body += piece
    return bytes(body)
