"""Idempotency-Key for WSGI: the middleware, and routes without a framework.

A key is checked before the body is read, and the body is read before the key is claimed. The
response is sent after it is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote
from wsgiref.types import WSGIEnvironment

import msgspec

from onefold.errors import LeaseLost
from onefold.model.checks import options_of
from onefold.web.http import HttpRequest, HttpResponse, status_line, wsgi_headers
from onefold.web.idempotency.body import MAX_IN_MEMORY, digested, spool
from onefold.web.idempotency.exchange import Exchange
from onefold.web.idempotency.keyed_routes import (
    SAFE,
    KeyedRoute,
    PathOptions,
    PathTable,
    RouteRegistry,
)
from onefold.web.problems import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self
    from wsgiref.types import StartResponse, WSGIApplication

    from onefold.web.idempotency.body import Digested
    from onefold.web.idempotency.keyed_routes import Match
    from onefold.web.idempotency.policy import RoutePolicy


class Passed:
    """Pieces of a response, and a function to call after the last."""

    def __init__(self, pieces: Iterator[bytes], close: Callable[[], None] | None = None) -> None:
        """`close` is called once, even if this object is closed several times."""
        self._pieces = pieces
        self._close = close

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        """Call `close` if it was not called."""
        close, self._close = self._close, None
        if close is not None:
            close()


class Forwarded(Passed):
    """Pieces that are sent as they come, and stored after the last one."""

    def __init__(
        self,
        exchange: Exchange,
        head: HttpResponse,
        pieces: Iterator[bytes],
        close: Callable[[], None] | None = None,
    ) -> None:
        """`head` is the response without its body."""
        super().__init__(pieces, close)
        self._exchange = exchange
        self._head = head
        self._seen: list[bytes] = []
        self._sent = 0
        self._is_over = False

    def __next__(self) -> bytes:
        """One piece is always held back: the last one is sent after the response is stored."""
        while not self._is_over and len(self._seen) < self._sent + 2:
            self._step()
        if self._sent == len(self._seen):
            raise StopIteration
        self._sent += 1
        return self._seen[self._sent - 1]

    def close(self) -> None:
        """If the client has disconnected, the rest of the response is still made and stored."""
        try:
            while not self._is_over:
                self._step()
        finally:
            super().close()

    def _step(self) -> None:
        try:
            piece = next(self._pieces, None)
        except BaseException as error:
            self._is_over = True
            self._exchange.run(self._exchange.fail(error))
            raise
        if piece is not None:
            self._seen.append(piece)
            return
        self._is_over = True
        answer = msgspec.structs.replace(self._head, body=b"".join(self._seen))
        if self._exchange.run(self._exchange.finish(answer)).status != answer.status:
            # The client has a part of a response, and must not take it for all of it.
            raise LeaseLost("the key of this request", fence=0)


BODY: Final = "onefold.body"
ONCE: Final = "onefold.once"
FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
NOTHING: Final = digested(b"")

log: logging.Logger = logging.getLogger("onefold.web")


class WsgiRouteFinder(Protocol):
    """Finds the route of a request."""

    def find(self, environ: WSGIEnvironment) -> Match | None:
        """None if the application has no such route."""
        ...

    def collect(self) -> None:
        """Name the routes, for the report."""
        ...


class IdempotencyMiddleware:
    """Checks keys and reads bodies; made by the `Idempotency` of a framework, or of this module."""

    def __init__(
        self, app: WSGIApplication, registry: RouteRegistry, finder: WsgiRouteFinder
    ) -> None:
        self.app: WSGIApplication = app
        self._registry = registry
        self._finder = finder
        self._names: frozenset[str] | None = None

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """WSGI."""
        if environ["REQUEST_METHOD"] in SAFE:
            return self.app(environ, start_response)
        is_keyed = not self.check().isdisjoint(environ)
        match = self._match(environ, is_keyed=is_keyed)
        if match is None:
            return self.app(environ, start_response)
        request, route = request_of(environ, match.template), match.route
        refusal = self._registry.refuse_early(route, request) if is_keyed else None
        if refusal is not None:
            return sent(refusal, start_response)
        environ[BODY] = NOTHING
        if route is not None and (is_keyed or route.policy.form is not None):
            return self._call_with_body(environ, start_response, request, route)
        return self._call(environ, start_response, request, route)

    def _call_with_body(
        self,
        environ: WSGIEnvironment,
        start_response: StartResponse,
        request: HttpRequest,
        route: KeyedRoute,
    ) -> Iterable[bytes]:
        """Read the body, and call the application; a body on disk is closed after the response."""
        try:
            file, environ[BODY] = read_body(environ, request, route.policy)
        except Refused as refused:
            problem = refused.problem.described_by(route.policy.link)
            return sent(problem.answer(request), start_response)
        if environ[BODY].length <= MAX_IN_MEMORY:
            return self._call(environ, start_response, request, route)
        try:
            answered = self._call(environ, start_response, request, route)
        except BaseException:
            file.close()
            raise

        def close() -> None:
            with file:
                getattr(answered, "close", _nothing)()

        return Passed(iter(answered), close)

    def _match(self, environ: WSGIEnvironment, *, is_keyed: bool) -> Match | None:
        """The route of a request that may have a key: in a header or in a hidden field."""
        if is_keyed or str(environ.get("CONTENT_TYPE", "")).startswith(FORMS):
            return self._finder.find(environ)
        return None

    def _call(
        self,
        environ: WSGIEnvironment,
        start_response: StartResponse,
        request: HttpRequest,
        route: KeyedRoute | None,
    ) -> Iterable[bytes]:
        """Call the application, whose endpoint claims the key."""
        del request, route
        return self.app(environ, start_response)

    def check(self) -> frozenset[str]:
        """Check and report the routes, once; returns the names of all key headers."""
        if self._names is None:
            self._finder.collect()
            self._registry.announce()
            self._names = frozenset(
                f"HTTP_{name.upper().replace('-', '_')}" for name in self._registry.key_headers
            )
        return self._names


def request_of(environ: WSGIEnvironment, template: str | None = None) -> HttpRequest:
    """The request, without the path that the application is mounted at."""
    return HttpRequest(
        method=environ["REQUEST_METHOD"],
        path=quote(environ.get("PATH_INFO", "").encode("latin-1")) or "/",
        query=environ.get("QUERY_STRING", ""),
        route=template,
        headers=tuple(wsgi_headers(environ)),
    )


def read_body(
    environ: WSGIEnvironment, request: HttpRequest, policy: RoutePolicy
) -> tuple[IO[bytes], Digested]:
    """Read the whole body, and replace `wsgi.input` with it."""
    length = request.content_length
    if length is None and not environ.get("wsgi.input_terminated"):
        # Its end is unknown: an application would not read it, either.
        length = 0
    file, body = spool(environ["wsgi.input"].read, request, policy, length=length)
    environ["wsgi.input"] = file
    environ["CONTENT_LENGTH"] = str(body.length)
    return file, body


def sent(answer: HttpResponse, start_response: StartResponse) -> list[bytes]:
    """Send a response that the application has not made."""
    start_response(status_line(answer.status), list(answer.headers))
    return [answer.body]


# --- without a framework --------------------------------------------------------------------------


class Idempotency(PathTable):
    """Routes of a plain WSGI application.

    idempotency = Idempotency(onefold)
    idempotency.add("POST", "/orders/{id}/pay", principal=who, takeover="refuse")
    app = idempotency.wrap(app)

    The application finds its attempt in `environ["onefold.once"]`.
    """

    @options_of(PathOptions[Callable[[WSGIEnvironment], Any]])
    def add(self, method: str, path: str, **options: Any) -> None:
        """Add a route with its options. `{name}` in a path is any text without a slash.

        `principal` and `tenant` receive the environment.
        """
        self._add(method, path, options)

    def wrap(self, app: WSGIApplication) -> IdempotencyMiddleware:
        """Wrap the application in the middleware. Add its routes before."""
        middleware = _Outside(app, self.registry, self)
        middleware.check()
        return middleware

    def find(self, environ: WSGIEnvironment) -> Match | None:
        """The route of a request; the first that was added wins."""
        path = environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace") or "/"
        return self._find(environ["REQUEST_METHOD"], path)

    def collect(self) -> None:
        """The routes have names already."""


class _Outside(IdempotencyMiddleware):
    """Claims the key before it calls the application, which has no decorated endpoint."""

    def _match(self, environ: WSGIEnvironment, *, is_keyed: bool) -> Match | None:
        """Also without a key: the route may require one, or open a transaction."""
        del is_keyed
        return self._finder.find(environ)

    def _call(
        self,
        environ: WSGIEnvironment,
        start_response: StartResponse,
        request: HttpRequest,
        route: KeyedRoute | None,
    ) -> Iterable[bytes]:
        if route is None:
            return self.app(environ, start_response)
        exchange = Exchange(route, request, environ[BODY], **route.caller(environ))
        answer = exchange.run(exchange.begin())
        if answer is not None:
            return sent(answer, start_response)
        environ[ONCE] = exchange.once
        if not exchange.is_open:
            return self.app(environ, start_response)
        return _Capture(exchange, start_response).run(self.app, environ)


class _Capture:
    """Captures the response of a WSGI application (PEP 3333)."""

    def __init__(self, exchange: Exchange, start_response: StartResponse) -> None:
        self._exchange = exchange
        self._start_response = start_response
        self._head: HttpResponse | None = None
        self._status = ""
        self._written: list[bytes] = []
        self._error: BaseException | None = None
        self._is_sent = False

    def run(self, app: WSGIApplication, environ: WSGIEnvironment) -> Iterable[bytes]:
        """Call the application; returns what the server sends."""
        try:
            answered = app(environ, self.start)
        except BaseException as error:  # noqa: BLE001 - raised again where it is not answered
            return self._failed(error)
        close: Callable[[], None] = getattr(answered, "close", _nothing)
        if self._exchange.route.policy.stream == "buffer":
            return self._whole(answered, close)
        return self._in_parts(answered, close)

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        """`start_response`, as the application has it."""
        if exc_info is not None:
            try:
                if self._is_sent:
                    raise exc_info[1].with_traceback(exc_info[2])
                self._error = exc_info[1]
            finally:
                exc_info = None
        elif self._head is not None:
            raise AssertionError("start_response was called twice without exc_info.")
        self._status = status
        self._head = HttpResponse(int(status[:3]), (*headers, *self._exchange.added))
        return self._written.append

    def _whole(self, answered: Iterable[bytes], close: Callable[[], None]) -> Iterable[bytes]:
        """Held back until it is stored."""
        try:
            try:
                pieces = list(answered)
            finally:
                close()
            body = b"".join([*self._written, *pieces])
            answer = msgspec.structs.replace(self._started(), body=body)
        except BaseException as error:  # noqa: BLE001 - raised again where it is not answered
            return self._failed(error)
        final = self._finished(answer)
        if final is not answer:
            return sent(final, self._start_response)
        self._start_response(self._status, list(answer.headers))
        return [body]

    def _in_parts(self, answered: Iterable[bytes], close: Callable[[], None]) -> Iterable[bytes]:
        """Sent as it comes; the status is known with the first piece."""
        pieces = iter(answered)
        try:
            first = [piece for piece in [next(pieces, None)] if piece is not None]
            head = self._started()
        except BaseException as error:  # noqa: BLE001 - raised again where it is not answered
            try:
                return self._failed(error)
            finally:
                close()
        rest = chain(self._written, first, pieces)
        if self._exchange.route.policy.stream == "forward":
            self._is_sent = True
            self._start_response(self._status, list(head.headers))
            return Forwarded(self._exchange, head, rest, close)
        final = self._finished(head)
        if final is not head:
            close()
            return sent(final, self._start_response)
        self._is_sent = True
        self._start_response(self._status, list(head.headers))
        return Passed(rest, close)

    def _failed(self, error: BaseException) -> Iterable[bytes]:
        final = self._exchange.run(self._exchange.fail(error))
        if final is None or not isinstance(error, Exception):
            raise error
        if not self._exchange.is_lost_by(error):
            log.error("A keyed request failed.", exc_info=error)
        return sent(final, self._start_response)

    def _started(self) -> HttpResponse:
        if self._head is None:
            raise AssertionError("The application has not called start_response.")
        return self._head

    def _finished(self, answer: HttpResponse) -> HttpResponse:
        if self._error is not None:
            self._exchange.run(self._exchange.undo(self._error))
        return self._exchange.run(self._exchange.finish(answer))


def _nothing() -> None:
    """For iterables that have no `close`."""
