"""Idempotency-Key for ASGI applications: the middleware, and routes for those without a framework.

1. Requests that can have no effect pass untouched; so do those without a key, until a route of
   theirs asks.
2. A key is checked before the body is read, and claimed when the endpoint begins: after routing,
   authentication and validation, which refuse without an outcome.
3. A keyed request runs in a task of its own: it comes to its end though its client has gone.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from onefold.errors import UsageError
from onefold.surfaces.conversation import Conversation
from onefold.surfaces.http.desk import KEYED, SAFE, Desk
from onefold.surfaces.http.key import read_key
from onefold.surfaces.http.problem import Refused, not_configured, too_large
from onefold.surfaces.table import Table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from typing import Unpack

    from onefold.app import Onefold
    from onefold.surfaces.http.answer import Answer
    from onefold.surfaces.http.desk import Unconfigured
    from onefold.surfaces.http.policy import PolicyOptions
    from onefold.surfaces.table import Match

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

CONVERSATION: Final = "onefold.conversation"
GRACE: Final = 30.0
"""Seconds that a shutdown waits for keyed requests in flight."""

FORMS: Final = (b"application/x-www-form-urlencoded", b"multipart/form-data")
HIDDEN: Final = frozenset(
    {"http.response.pathsend", "http.response.zerocopysend", "http.response.trailers"}
)
"""Ways past us in which an answer could be sent."""

DEAF: Final = "2.4"
"""From this version of ASGI on, an application may rely on being told by `send` that its client has
gone, and streams on until then. Ours are not told while they are kept back: they come to an end."""

log: logging.Logger = logging.getLogger("onefold.surfaces")


class Finder(Protocol):
    """Knows where requests go."""

    def find(self, scope: Scope) -> Match | None:
        """None where the application has nothing for it, and will say so."""
        ...

    def collect(self, scope: Scope) -> None:
        """Name the routes, for the report."""
        ...


class IdempotencyMiddleware:
    """The middleware; made by the `Idempotency` of a framework, or of this module."""

    def __init__(self, app: App, desk: Desk, finder: Finder) -> None:
        """`finder` knows where requests go."""
        self.app: App = app
        self._desk = desk
        self._finder = finder
        self._is_checked = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._names: frozenset[bytes] = frozenset()
        self._has_forms = False
        self._longest = 0
        """Of the bodies that any route accepts."""
        self._captures_all = False
        """Whether a request without a key may come to a transaction of ours."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """ASGI; what passes untouched costs no coroutine of its own."""
        if scope["type"] != "http":
            return self._other(scope, receive, send)
        if scope["method"] in SAFE:
            return self.app(scope, receive, send)
        if not self._is_checked:
            self._check(scope)
        is_keyed, is_form = self._signs(scope)
        if is_keyed or is_form:
            return self._keyed(scope, receive, send, is_keyed=is_keyed)
        if self._captures_all:
            conversation = Conversation(self._desk, scope, receive, send)
            guarded = _guarded(scope, conversation)
            return self._converse(guarded, conversation, receive)
        scope[CONVERSATION] = self._desk
        return self.app(scope, receive, send)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _keyed(self, scope: Scope, receive: Receive, send: Send, *, is_keyed: bool) -> None:
        conversation = Conversation(self._desk, scope, receive, send)
        if is_keyed:
            refusal = self._refusal(scope, conversation)
            if refusal is not None:
                await conversation.answer(refusal)
                return
        guarded = _guarded(scope, conversation)
        if conversation.keeps_back:
            guarded["asgi"] = {**scope.get("asgi", {}), "spec_version": DEAF}
        conversation.listen(self._longest)
        await self._apart(self._converse(guarded, conversation, conversation.receive))

    def _signs(self, scope: Scope) -> tuple[bool, bool]:
        is_keyed = is_form = False
        for name, value in scope["headers"]:
            if name in self._names:
                is_keyed = True
            elif name == b"content-type" and self._has_forms:
                is_form = value.startswith(FORMS)
        return is_keyed, is_form

    def _refusal(self, scope: Scope, conversation: Conversation) -> Answer | None:
        """What can be refused before the body is read."""
        match = self._finder.find(scope)
        if match is None:
            return None
        if match.route is None:
            if scope["method"] in KEYED and self._desk.unconfigured == "refuse":
                return not_configured().answer(conversation.request)
            return None
        conversation.template = match.template
        policy, request = match.route.policy, conversation.request
        conversation.keeps_back = policy.stream != "tombstone"
        try:
            read_key(request, policy.key)
        except Refused as refused:
            return refused.problem.described_by(policy.link).answer(request)
        length = request.value("content-length") or ""
        if length.isascii() and length.isdigit() and int(length) > policy.max_request:
            return too_large(policy.max_request).answer(request)
        return None

    async def _converse(self, scope: Scope, conversation: Conversation, receive: Receive) -> None:
        try:
            await self._call(scope, conversation, receive)
        except BaseException as error:
            if not await conversation.fail(error):
                raise
        if conversation.is_open:
            missing = RuntimeError("The application has ended without an answer.")
            log.error("%s", missing)
            await conversation.fail(missing)

    async def _call(self, scope: Scope, conversation: Conversation, receive: Receive) -> None:
        await self.app(scope, receive, conversation.send)

    async def _apart(self, work: Any) -> None:
        """Run to the end, whatever becomes of who waits for it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                task.add_done_callback(_tell)
            raise

    # --- the life of the application --------------------------------------------------------------

    def _check(self, scope: Scope) -> None:
        """Once; where a server tells an application nothing of its life, with a first request."""
        if self._is_checked:
            return
        self._finder.collect(scope)
        self._desk.announce()
        policies = [route.policy for route in self._desk.routes]
        names = {name for policy in policies for name in policy.key.headers}
        self._names = frozenset(name.lower().encode() for name in names | {"idempotency-key"})
        self._has_forms = any(policy.form is not None for policy in policies)
        self._longest = max((policy.max_request for policy in policies), default=0)
        self._captures_all = self._captures_all or any(
            policy.joined and not policy.required for policy in policies
        )
        self._is_checked = True

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
        except UsageError as error:
            log.error("The application does not start: %s", error)  # noqa: TRY400 - said in full
            await receive()
            told = "\n".join([str(error), *getattr(error, "__notes__", [])])
            await send({"type": "lifespan.startup.failed", "message": told})
            return

        async def heard() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown" and self._tasks:
                await asyncio.wait(self._tasks, timeout=GRACE)
            return message

        await self.app(scope, heard, send)


def _guarded(scope: Scope, conversation: Conversation) -> Scope:
    """What the application is told: whom it talks to, and of no way around us."""
    guarded = {**scope, CONVERSATION: conversation}
    if "extensions" in scope:
        guarded["extensions"] = {
            name: value for name, value in scope["extensions"].items() if name not in HIDDEN
        }
    return guarded


def _tell(task: asyncio.Task[None]) -> None:
    """Of a request whose client has gone: nobody else would see it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("A request failed after its client had gone.", exc_info=error)


def conversation_of(scope: Scope) -> Conversation:
    """The conversation that an endpoint is part of."""
    found = scope.get(CONVERSATION)
    if isinstance(found, Desk):
        # There is no key, so there is nothing to listen to.
        found = scope[CONVERSATION] = Conversation(found, scope, _silence, _silence)
    if not isinstance(found, Conversation):
        raise UsageError(
            "This endpoint has a policy, but its application has no middleware to keep it. Call"
            " idempotency.install(app)."
        )
    return found


async def _silence(*_: object) -> Any:
    raise UsageError("Nothing is heard or said here: the request has no key.")


# --- without a framework --------------------------------------------------------------------------


class Idempotency:
    """Routes of a plain ASGI application.

    idempotency = Idempotency(onefold)
    idempotency.add("POST", "/orders/{id}/pay", principal=who, takeover="refuse")
    app = idempotency.wrap(app)
    """

    def __init__(
        self,
        onefold: Onefold,
        *,
        unconfigured: Unconfigured = "refuse",
        **defaults: Unpack[PolicyOptions],
    ) -> None:
        """`defaults` hold for every route that does not say otherwise."""
        self.desk: Desk = Desk(onefold, unconfigured=unconfigured, defaults=defaults)
        self._table = Table(self.desk)

    def add(
        self,
        method: str,
        path: str,
        *,
        principal: Callable[[Scope], Any] | None = None,
        tenant: Callable[[Scope], Any] | None = None,
        **options: Unpack[PolicyOptions],
    ) -> None:
        """Say what holds for a route. `{name}` in a path is any text without a slash.

        `principal` and `tenant` are given the ASGI scope; they may be coroutine functions.
        """
        self._table.add(method, path, options, principal=principal, tenant=tenant)

    def wrap(self, app: App) -> IdempotencyMiddleware:
        """The application, with its keys honoured."""
        return _Outside(app, self.desk, self)

    def find(self, scope: Scope) -> Match | None:
        """The route of a request; the first that was added wins."""
        root = scope.get("root_path", "")
        return self._table.find(scope["method"], scope["path"].removeprefix(root) or "/")

    def collect(self, scope: Scope) -> None:
        """They have names already."""

    def report(self) -> list[str]:
        """What is guaranteed, route by route."""
        return self.desk.report()


class _Outside(IdempotencyMiddleware):
    """Claims before it calls the application: there is no endpoint to ask."""

    def __init__(self, app: App, desk: Desk, finder: Finder) -> None:
        """Every request may be one of a route that requires a key."""
        super().__init__(app, desk, finder)
        self._captures_all = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI; a coroutine function, for servers that look whether it is one."""
        await super().__call__(scope, receive, send)

    async def _call(self, scope: Scope, conversation: Conversation, receive: Receive) -> None:
        match = self._finder.find(scope)
        if match is not None and match.route is not None:
            conversation.template = match.template
            route = match.route
            principal = await _asked(route.principal, scope)
            tenant = await _asked(route.tenant, scope)
            answer = await conversation.begin(route, principal=principal, tenant=tenant)
            if answer is not None:
                await conversation.answer(answer)
                return
            scope = {**scope, "onefold.once": conversation.once}
        await self.app(scope, receive, conversation.send)


async def _asked(function: Callable[[Scope], Any] | None, scope: Scope) -> Any:
    if function is None:
        return None
    value = function(scope)
    return await value if hasattr(value, "__await__") else value
