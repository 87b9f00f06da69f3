"""Idempotency-Key for ASGI: the middleware, and routes without a framework.

A key is checked before the body is read, and claimed when the endpoint begins. The response is
sent after it is committed. A keyed request runs in its own task: it ends even if its client has
disconnected.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import quote

from onefold.errors import LeaseLost, UsageError
from onefold.model.checks import options_of
from onefold.runtime import shielded
from onefold.web.http import HttpRequest, HttpResponse, asgi_headers
from onefold.web.idempotency.body import Digesting, digested
from onefold.web.idempotency.exchange import Exchange
from onefold.web.idempotency.keyed_routes import (
    SAFE,
    PathOptions,
    PathTable,
    RouteRegistry,
)
from onefold.web.problems import INCOMPLETE, Refused, make, too_large

if TYPE_CHECKING:
    from onefold.web.idempotency.body import Digested
    from onefold.web.idempotency.keyed_routes import KeyedRoute, Match
    from onefold.web.idempotency.once_parameter import Once


Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

NOTHING: Final = digested(b"")

WHOLE: Final = 64 * 1024 * 1024
"""The most bytes of a body that are kept to compare it by its value."""


class AsgiExchange:
    """The messages of one ASGI request, in and out, around its `Exchange`."""

    template: str | None = None
    """The template of the matched route, if it is known."""
    is_held_back: bool = False
    """True if the response is completed even if the client has disconnected."""

    # Class attributes: most requests need none of them.
    _exchange: Exchange | None = None
    _digesting: Digesting | None = None
    _is_read: bool = False
    _is_incomplete: bool = False
    _is_gone: bool = False
    _start: Message | None = None
    _is_started: bool = False
    _is_replaced: bool = False
    _request: HttpRequest | None = None

    def __init__(self, registry: RouteRegistry, scope: Scope, receive: Receive, send: Send) -> None:
        self.registry: RouteRegistry = registry
        self._scope = scope
        self._receive = receive
        self._send = send
        self._read_ahead: deque[Message] = deque()
        self._pieces: list[bytes] = []

    @property
    def request(self) -> HttpRequest:
        """The request, without its messages."""
        if self._request is None:
            self._request = _request(self._scope, self.template)
        return self._request

    @property
    def is_open(self) -> bool:
        """True while a response is expected that will be stored."""
        return self._exchange is not None and self._exchange.is_open

    @property
    def once(self) -> Once | None:
        """The attempt as the handler sees it; None if the route has no policy."""
        return None if self._exchange is None else self._exchange.once

    # --- in ---------------------------------------------------------------------------------------

    def digest_body(self, longest: int = WHOLE) -> None:
        """Digest the body while the application reads it. A longer one is rejected anyway."""
        self._digesting = Digesting(min(longest, WHOLE), request=self.request)

    async def receive(self) -> Message:
        """`receive` of the application."""
        if self._read_ahead:
            return self._read_ahead.popleft()
        if self._is_gone:
            return {"type": "http.disconnect"}
        return await self._read_message()

    async def _read_message(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._is_incomplete = not self._is_read
            self._is_gone = self._is_read = True
        elif self._digesting is not None and not self._is_read:
            self._digesting.feed(message.get("body", b""))
            self._is_read = not message.get("more_body", False)
        return message

    async def _body(self, limit: int) -> Digested:
        """The whole body, also if the application has not read it yet."""
        if self._digesting is None:
            return NOTHING
        while not self._is_read and self._digesting.length <= limit:
            self._read_ahead.append(await self._read_message())
        if self._digesting.length > limit:
            raise Refused(too_large(limit))
        if self._is_incomplete:
            raise Refused(make(INCOMPLETE))
        return self._digesting.done()

    async def disconnected(self) -> None:
        """Returns when the client has disconnected."""
        while not self._is_gone:
            message = await self._read_message()
            if message["type"] != "http.disconnect":
                self._read_ahead.append(message)

    # --- the handler ------------------------------------------------------------------------------

    async def begin(
        self, route: KeyedRoute, *, principal: object, tenant: object, target: object = None
    ) -> HttpResponse | None:
        """Claim the key. None: the handler runs; otherwise the response to send.

        `target` is a session that the framework has made for this request.
        """
        if self._exchange is not None:
            raise UsageError("This request has a policy already: one route, one @idempotency.")
        if route.registry is not self.registry:
            raise UsageError(
                "This endpoint has its policy from another Idempotency than the one that is"
                " installed in its application, and would keep its keys in that one's database."
            )
        if route.begins_unkeyed and self._send is _no_messages:
            raise UsageError(
                f"{route.name} was added to its application after the start. Add routes before the"
                " first request: the middleware ends the transactions of those that it knows."
            )
        try:
            body = await self._body(route.policy.max_request)
        except Refused as refused:
            return route.refusal(refused.problem, self.request, NOTHING)
        self._exchange = Exchange(
            route, self.request, body, principal=principal, tenant=tenant, target=target
        )
        return await self._exchange.abegin(None if self._digesting is None else self.disconnected)

    async def undo(self, error: BaseException) -> None:
        """The handler has raised: roll back what it has written."""
        assert self._exchange is not None
        await self._exchange.arun(self._exchange.undo(error))

    async def fail(self, error: BaseException) -> bool:
        """The application has raised, or ended without a response.

        Sends the stored failure, if there is one. True: the exception is handled.
        """
        if self._exchange is None:
            return False
        final = await self._exchange.arun(self._exchange.fail(error))
        if final is None or self._is_started or not isinstance(error, Exception):
            return False
        with suppress(OSError):
            await self.answer(final)
        return self._exchange.is_lost_by(error)

    # --- out --------------------------------------------------------------------------------------

    def send(self, message: Message) -> Awaitable[None]:
        """`send` of the application; without a policy it costs no coroutine of its own."""
        return self._send(message) if self._exchange is None else self._captured(message)

    async def _captured(self, message: Message) -> None:
        assert self._exchange is not None
        if self._is_replaced:
            return
        if not self._exchange.is_open:
            await self._send(message)
        elif message["type"] == "http.response.start":
            own = [(name.lower(), value) for name, value in message.get("headers", ())]
            added = asgi_headers(self._exchange.added)
            self._start = {**message, "headers": [*own, *added]}
            if self._stream == "tombstone":
                await self._finish(b"")
        elif message["type"] == "http.response.body":
            await self._piece(message)
        else:
            await self._send(message)

    async def _piece(self, message: Message) -> None:
        self._pieces.append(bytes(message.get("body", b"")))
        if not message.get("more_body", False):
            await self._finish(b"".join(self._pieces))
        elif self._stream == "forward":
            await self._forward()

    async def _forward(self) -> None:
        """Send all but the last piece: the end is not sent before it is stored."""
        assert self._start is not None
        # If the client has disconnected, the rest of the response is still made and stored.
        with suppress(OSError):
            if not self._is_started:
                self._is_started = True
                await self._send(self._start)
            elif len(self._pieces) > 1:
                piece = self._pieces[-2]
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def _finish(self, body: bytes) -> None:
        assert self._exchange is not None
        assert self._start is not None
        answer = HttpResponse(self._start["status"], _headers(self._start), body)
        final = await self._exchange.arun(self._exchange.finish(answer))
        if final is answer:
            await self._send_response(body)
            return
        if self._is_started:
            # The client has a part of a response, and must not take it for all of it.
            raise LeaseLost("the key of this request", fence=0)
        self._is_replaced = True
        await self.answer(final)

    async def _send_response(self, body: bytes) -> None:
        assert self._start is not None
        if self._stream == "tombstone":
            await self._send(self._start)
            return
        if not self._is_started:
            await self._send(self._start)
        last = self._pieces[-2:] if self._is_started else [body]
        await self._send({"type": "http.response.body", "body": b"".join(last)})

    async def answer(self, answer: HttpResponse) -> None:
        """Send a response that the application has not made."""
        headers = asgi_headers(answer.headers)
        await self._send(
            {"type": "http.response.start", "status": answer.status, "headers": headers}
        )
        await self._send({"type": "http.response.body", "body": answer.body})

    @property
    def _stream(self) -> str:
        assert self._exchange is not None
        return self._exchange.route.policy.stream


def _headers(start: Message) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in start.get("headers", ())
    )


def _request(scope: Scope, template: str | None) -> HttpRequest:
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.decode("latin-1").partition("?")[0]
    root = quote(scope.get("root_path", ""))
    return HttpRequest(
        method=scope["method"],
        # Without the prefix of a proxy: it is the same route.
        path=path.removeprefix(root) or "/",
        query=scope.get("query_string", b"").decode("latin-1"),
        route=template,
        headers=tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in scope["headers"]
        ),
    )


EXCHANGE: Final = "onefold.exchange"
GRACE: Final = 30.0
"""Seconds that a shutdown waits for keyed requests in flight."""

FORMS: Final = (b"application/x-www-form-urlencoded", b"multipart/form-data")
HIDDEN: Final = frozenset(
    {"http.response.pathsend", "http.response.zerocopysend", "http.response.trailers"}
)
"""Extensions by which a response could be sent past the middleware."""

ANYWHERE: Final = ("",)
"""What every path begins with."""

COMPLETES_RESPONSES: Final = "2.4"
"""From this version of ASGI on, applications stream until `send` raises because the client has
disconnected. For a response that is held back it never raises, so they complete the response."""

log: logging.Logger = logging.getLogger("onefold.web")


class AsgiRouteFinder(Protocol):
    """Finds the route of a request."""

    def find(self, scope: Scope) -> Match | None:
        """None if the application has no such route."""
        ...

    def collect(self, scope: Scope) -> None:
        """Name the routes, for the report."""
        ...

    def prefixes(self, scope: Scope, wanted: set[KeyedRoute], /) -> tuple[str, ...]:
        """What the paths of requests to these routes begin with; or `ANYWHERE`."""
        ...


class IdempotencyMiddleware:
    """The middleware; made by the `Idempotency` of a framework, or of this module."""

    def __init__(self, app: App, registry: RouteRegistry, finder: AsgiRouteFinder) -> None:
        self.app: App = app
        self._registry = registry
        self._finder = finder
        self._is_checked = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._names: frozenset[bytes] = frozenset()
        self._signs: frozenset[bytes] = frozenset()
        """Headers without which a request has no key, and no form that may have one."""
        self._longest = 0
        """Of the bodies that any route accepts."""
        self._captured: tuple[str, ...] = ()
        """Where a request without a key may need a transaction: what its path begins with."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """ASGI; a request that is only passed on costs no coroutine of its own."""
        if scope["type"] != "http":
            is_lifespan = scope["type"] == "lifespan"
            return (self._lifespan if is_lifespan else self.app)(scope, receive, send)
        if scope["method"] in SAFE:
            return self.app(scope, receive, send)
        if not self._is_checked:
            self._check(scope)
        signs = self._signs
        for name, value in scope["headers"]:
            if name in signs and (name in self._names or value.startswith(FORMS)):
                return self._keyed(scope, receive, send)
        if self._captured and (scope["path"].startswith(self._captured) or scope.get("root_path")):
            exchange = AsgiExchange(self._registry, scope, receive, send)
            return self._pass_on(_guarded(scope, exchange), exchange, receive)
        scope[EXCHANGE] = self._registry
        return self.app(scope, receive, send)

    async def _keyed(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = AsgiExchange(self._registry, scope, receive, send)
        names = self._names
        # Without forms, the key is the only sign.
        if self._signs is names or any(name in names for name, _ in scope["headers"]):
            refusal = self._refusal(scope, exchange)
            if refusal is not None:
                await exchange.answer(refusal)
                return
        guarded = _guarded(scope, exchange)
        if exchange.is_held_back:
            guarded["asgi"] = {**scope.get("asgi", {}), "spec_version": COMPLETES_RESPONSES}
        exchange.digest_body(self._longest)
        await self._run_to_end(self._pass_on(guarded, exchange, exchange.receive))

    def _refusal(self, scope: Scope, exchange: AsgiExchange) -> HttpResponse | None:
        """The rejection of a request before its body is read; None if it is accepted."""
        match = self._finder.find(scope)
        if match is None:
            return None
        exchange.template = match.template
        if match.route is not None:
            exchange.is_held_back = match.route.policy.stream != "tombstone"
        return self._registry.refuse_early(match.route, exchange.request)

    async def _pass_on(self, scope: Scope, exchange: AsgiExchange, receive: Receive) -> None:
        try:
            await self._call(scope, exchange, receive)
        except BaseException as error:
            if not await exchange.fail(error):
                raise
        if exchange.is_open:
            missing = RuntimeError("The application has ended without a response.")
            log.error("%s", missing)
            await exchange.fail(missing)

    def _call(self, scope: Scope, exchange: AsgiExchange, receive: Receive) -> Awaitable[None]:
        return self.app(scope, receive, exchange.send)

    async def _run_to_end(self, work: Any) -> None:
        """Run to the end even if the server cancels the request."""
        task, outcome = shielded(work, self._tasks)
        try:
            await outcome
        except asyncio.CancelledError:
            if not task.done():
                task.add_done_callback(_log_failure)
            raise

    # --- the life of the application --------------------------------------------------------------

    def _check(self, scope: Scope) -> None:
        """Check the routes: at the start, or without lifespan with the first request."""
        self._finder.collect(scope)
        self._registry.announce()
        policies = [route.policy for route in self._registry.routes]
        self._names = frozenset(name.encode() for name in self._registry.key_headers)
        has_forms = any(policy.form is not None for policy in policies)
        self._signs = self._names | {b"content-type"} if has_forms else self._names
        self._longest = max((policy.max_request for policy in policies), default=0)
        begun = {route for route in self._registry.routes if route.begins_unkeyed}
        self._captured = self._captured or (self._finder.prefixes(scope, begun) if begun else ())
        self._is_checked = True

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
        except UsageError as error:
            log.error("The application does not start: %s", error)  # noqa: TRY400 - the message is complete
            await receive()
            message = "\n".join([str(error), *getattr(error, "__notes__", [])])
            await send({"type": "lifespan.startup.failed", "message": message})
            return

        async def receive_shutdown() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown" and self._tasks:
                await asyncio.wait(self._tasks, timeout=GRACE)
            return message

        await self.app(scope, receive_shutdown, send)


def _guarded(scope: Scope, exchange: AsgiExchange) -> Scope:
    """The scope of the application, without extensions that would bypass the middleware."""
    guarded = {**scope, EXCHANGE: exchange}
    if "extensions" in scope:
        guarded["extensions"] = {
            name: value for name, value in scope["extensions"].items() if name not in HIDDEN
        }
    return guarded


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log the error of a request whose client has disconnected."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("A request failed after its client had disconnected.", exc_info=error)


def asgi_exchange_of(scope: Scope) -> AsgiExchange:
    """The exchange of the request that an endpoint handles."""
    found = scope.get(EXCHANGE)
    if isinstance(found, RouteRegistry):
        # Without a key, no message needs to be read.
        found = scope[EXCHANGE] = AsgiExchange(found, scope, _no_messages, _no_messages)
    if not isinstance(found, AsgiExchange):
        raise UsageError(
            "This endpoint has a policy, but its application has no middleware to keep it. Call"
            " idempotency.install(app)."
        )
    return found


async def _no_messages(*_: object) -> Any:
    raise UsageError("This request has no key, so its messages do not pass through Onefold.")


# --- without a framework --------------------------------------------------------------------------


class Idempotency(PathTable):
    """Routes of a plain ASGI application.

    idempotency = Idempotency(onefold)
    idempotency.add("POST", "/orders/{id}/pay", principal=who, takeover="refuse")
    app = idempotency.wrap(app)
    """

    @options_of(PathOptions[Callable[[Scope], Any]])
    def add(self, method: str, path: str, **options: Any) -> None:
        """Add a route with its options. `{name}` in a path is any text without a slash.

        `principal` and `tenant` receive the ASGI scope; they may be coroutine functions.
        """
        self._add(method, path, options)

    def wrap(self, app: App) -> IdempotencyMiddleware:
        """Wrap the application in the middleware."""
        return _Outside(app, self.registry, self)

    def find(self, scope: Scope) -> Match | None:
        """The route of a request; the first that was added wins."""
        root = scope.get("root_path", "")
        return self._find(scope["method"], scope["path"].removeprefix(root) or "/")

    def collect(self, scope: Scope) -> None:
        """The routes have names already."""

    def prefixes(self, *_: object) -> tuple[str, ...]:
        """Every request is matched before the application is called."""
        return ANYWHERE


class _Outside(IdempotencyMiddleware):
    """Claims the key before it calls the application, which has no decorated endpoint."""

    def __init__(self, app: App, registry: RouteRegistry, finder: AsgiRouteFinder) -> None:
        super().__init__(app, registry, finder)
        self._captured = ANYWHERE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI; a coroutine function, for servers that look whether it is one."""
        await super().__call__(scope, receive, send)

    async def _call(self, scope: Scope, exchange: AsgiExchange, receive: Receive) -> None:
        match = self._finder.find(scope)
        if match is not None and match.route is not None:
            exchange.template = match.template
            caller = await match.route.acaller(scope)
            answer = await exchange.begin(match.route, **caller)
            if answer is not None:
                await exchange.answer(answer)
                return
            scope = {**scope, "onefold.once": exchange.once}
        await self.app(scope, receive, exchange.send)
