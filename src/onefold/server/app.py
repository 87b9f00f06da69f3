"""`create_app`: the server as one ASGI application, to run by itself or to mount.

Also here: the settings of a server, and the table of routes, the busiest first, because paths of
the same length are tried in this order.
"""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import InvalidInput, Needs

with Needs("onefold[server]"):
    from starlette.routing import Router

from onefold.server.auth import Authority
from onefold.server.dashboard.asgi import dashboard_paths
from onefold.server.dashboard.dashboard import Dashboard
from onefold.server.deadlines import Deadlines
from onefold.server.dispatch import AccessLog, PathApp, PathFinder
from onefold.server.drain import draining_at_signals
from onefold.server.events import Feed
from onefold.server.keyed import keyed_route
from onefold.server.metrics import HttpMetrics
from onefold.server.queue_cache import QueueCache
from onefold.server.routes import (
    claims,
    dead,
    deliveries,
    events,
    jobs,
    keys,
    publish,
    queues,
    schedules,
    statistics,
    steps,
)
from onefold.server.routes.meta import about_routes
from onefold.server.unread_responses import Unread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.types import Receive, Scope, Send

    from onefold.app.context import Context
    from onefold.app.onefold import Onefold, Tenant
    from onefold.push.push_worker import PushWorker
    from onefold.server.routing import Route
    from onefold.web.idempotency.keyed_routes import KeyedRoute


MEBIBYTE: Final = 1024 * 1024
SECRET_LENGTH: Final = 16


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and options of a server."""

    max_body: int = 4 * MEBIBYTE
    """Bytes of a request's body."""
    request_timeout: timedelta = timedelta(seconds=30)
    """How long a request may take from its first byte to its response."""
    body_timeout: timedelta = timedelta(seconds=15)
    """How long a client may take to send a body: a slow client must not block a connection."""
    grace: timedelta = timedelta(seconds=30)
    """How long a stop may take."""
    anonymous: bool = False
    """Whether callers without a key are accepted while no key exists. Only for loopback."""
    push: bool = True
    """Whether this process pushes jobs, rescues, prunes, and runs schedules."""
    push_concurrency: int = 200
    """Concurrent pushes of this process."""
    push_allow: tuple[str, ...] = ()
    """Private networks and hosts that jobs may be pushed to: `10.0.0.0/8`."""
    access_log: bool = True
    secret: str = msgspec.field(default_factory=lambda: secrets.token_urlsafe(32))
    """Signs the sessions of the dashboard: the same for all servers behind one address."""

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        for name in ("max_body", "push_concurrency"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, f"must be at least 1, got {getattr(self, name)!r}")
        for name in ("request_timeout", "body_timeout", "grace"):
            if getattr(self, name) <= timedelta(0):
                raise InvalidInput(name, f"must be longer than 0, got {getattr(self, name)}")
        if len(self.secret) < SECRET_LENGTH:
            raise InvalidInput("secret", f"must have at least {SECRET_LENGTH} characters")


ROUTES: Final[tuple[Route, ...]] = (
    *publish.ROUTES,
    *deliveries.ROUTES,
    *jobs.ROUTES,
    *claims.ROUTES,
    *claims.LOCKS,
    *steps.ROUTES,
    *queues.ROUTES,
    *dead.ROUTES,
    *schedules.ROUTES,
    *statistics.ROUTES,
    *events.ROUTES,
    *keys.ROUTES,
)


def create_app(onefold: Onefold, settings: ServerSettings | None = None) -> ServerApp:
    """The server on a database.

    Run it with any ASGI server that supports the lifespan, or mount it:

        server = create_app(onefold)
        app = Starlette(routes=[Mount("/jobs", server)], lifespan=server.lifespan)
    """
    return ServerApp(onefold, ServerSettings() if settings is None else settings)


class ServerApp:
    """An ASGI application, and the state that its requests share.

    Its lifespan starts the pushing of jobs, and drains at the end.
    """

    def __init__(self, onefold: Onefold, settings: ServerSettings, *, closes: bool = False) -> None:
        """Made by `create_app`. With `closes`, it closes `onefold` at its end."""
        self.onefold: Onefold = onefold
        self.context: Context = onefold.context
        self.settings: ServerSettings = settings
        self.tenants: Mapping[str, Tenant] = _Tenants(onefold)
        """The calls of each tenant."""
        self.authority: Authority = Authority(onefold, anonymous=settings.anonymous)
        self.queues: QueueCache = QueueCache(onefold)
        self.deadlines: Deadlines = Deadlines()
        self.unread: Unread = Unread(self.deadlines, settings.request_timeout.total_seconds())
        """The responses that HTTP/2 clients have not read yet."""
        self.feed: Feed = Feed(onefold.context.hooks)
        """The events of this process, for its listeners."""
        self.push_worker: PushWorker | None = None
        """None before the start, or if this process does not push."""
        self.keyed_route: KeyedRoute = keyed_route(onefold, settings.request_timeout)
        """The policy of POSTs with an Idempotency-Key."""
        self.draining: bool = False
        """True if the server accepts no new work."""
        metrics = HttpMetrics(onefold) if find_spec("prometheus_client") else None
        self.access_log: AccessLog = AccessLog(metrics, wanted=settings.access_log)
        paths: dict[str, dict[str, Route]] = {}
        for route in (*ROUTES, *about_routes(ROUTES, metrics)):
            paths.setdefault(route.path, {})[route.method] = route
        self._closes = closes
        dashboard = Dashboard(
            onefold,
            settings.secret,
            anonymous=settings.anonymous,
            push_allow=settings.push_allow,
        )
        self._paths = PathFinder(
            {path: PathApp(self, methods, path) for path, methods in paths.items()}
            | dashboard_paths(self, dashboard),
            default=PathApp(self, {}),
        )
        self._lifespan = Router(lifespan=self.lifespan).lifespan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            # Nothing is sent to a websocket, which rejects it.
            if scope["type"] == "lifespan":
                await self._lifespan(scope, receive, send)
            return
        raw = scope.get("raw_path")
        if raw is not None and (b"%" in raw or not raw.isascii()):
            # Routes match the raw path, so that a name may contain an encoded slash.
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        app, scope["path_params"] = self._paths.find(scope["path"], scope.get("root_path", ""))
        await app.respond(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncGenerator[None]:
        """Push jobs while it is open. An application that mounts this one has to run it."""
        del app
        self.draining = False
        async with AsyncExitStack() as stack:
            if self._closes:
                # Entered first, so closed last: the other parts may still write.
                stack.push_async_callback(self.onefold.aclose)
            if self.settings.push:
                from onefold.push.push_worker import PushSettings, PushWorker

                settings = PushSettings(
                    concurrency=self.settings.push_concurrency,
                    grace=self.settings.grace,
                    allow=self.settings.push_allow,
                )
                worker = PushWorker(self.onefold, settings)
                self.push_worker = await stack.enter_async_context(worker)
            stack.enter_context(draining_at_signals(self.drain))
            try:
                yield
            finally:
                self.drain()
        self.push_worker = None

    def drain(self) -> None:
        """Accept no new work, and end the streams."""
        self.draining = True
        self.feed.close()

    def changed(self, tenant: str, queue: str) -> None:
        """Drop the cached settings of a queue, and notify the push worker."""
        self.queues.forget(tenant, queue)
        if self.push_worker is not None:
            self.push_worker.changed()


class _Tenants(dict[str, "Tenant"]):
    """The calls of each tenant, created once. The name of the operator is empty."""

    def __init__(self, onefold: Onefold) -> None:
        super().__init__({"": onefold})
        self._onefold = onefold

    def __missing__(self, tenant: str) -> Tenant:
        calls = self[tenant] = self._onefold.tenant(tenant)
        return calls
