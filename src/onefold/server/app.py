"""`create_app`: the server as one ASGI application, to run by itself or to mount.

Also here: the settings of a server, the state that all requests share, and the table of routes,
the busiest first, because routing tries them in this order.
"""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import Needs

with Needs("onefold[server]"):
    from starlette.routing import Route as Path
    from starlette.routing import Router


from onefold.errors import InvalidInput
from onefold.model.wire import headers_of
from onefold.server import problems
from onefold.server.asgi_io import problem_response, request_id_of, send_response
from onefold.server.auth import Authority
from onefold.server.deadlines import Deadlines
from onefold.server.dispatch import AccessLog, AccessRecord, PathApp
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
    steps,
)
from onefold.server.routes import publish as batch
from onefold.server.routes.meta import about_routes
from onefold.server.unread_responses import Unread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from onefold.app.context import Context
    from onefold.app.onefold import Onefold, Tenant
    from onefold.push.push_worker import PushWorker
    from onefold.server.asgi_io import Receive, Scope, Send
    from onefold.server.request_context import Route
    from onefold.web.idempotency.keyed_routes import KeyedRoute


class Server:
    """The state of one server process."""

    def __init__(self, onefold: Onefold, settings: ServerSettings) -> None:
        """Create the parts; nothing runs yet."""
        self.onefold: Onefold = onefold
        self.context: Context = onefold.context
        self.settings: ServerSettings = settings
        self.queues: QueueCache = QueueCache(onefold)
        self.deadlines: Deadlines = Deadlines()
        self.unread: Unread = Unread(self.deadlines, settings.request_timeout.total_seconds())
        """The responses that HTTP/2 clients have not read yet."""
        self.feed: Feed = Feed(onefold.context.hooks)
        """The events of this process, for its listeners."""
        self.courier: PushWorker | None = None
        """The worker that pushes jobs; None before the start, or if this process does not push."""
        self.keyed_route: KeyedRoute = keyed_route(onefold, settings.request_timeout)
        """The policy of POSTs with an Idempotency-Key."""
        self.draining: bool = False
        """True if the server accepts no new work."""
        self._tenants: dict[str, Tenant] = {"": onefold}

    def drain(self) -> None:
        """Accept no new work, and end the streams."""
        self.draining = True
        self.feed.close()

    def calls_of(self, tenant: str) -> Tenant:
        """The calls of one tenant; created once."""
        calls = self._tenants.get(tenant)
        if calls is None:
            calls = self._tenants[tenant] = self.onefold.tenant(tenant)
        return calls

    def changed(self, tenant: str, queue: str) -> None:
        """Drop the cached settings of a queue, and notify the push worker."""
        self.queues.forget(tenant, queue)
        if self.courier is not None:
            self.courier.changed()


MEBIBYTE: Final = 1024 * 1024


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

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        for name in ("max_body", "push_concurrency"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, f"must be at least 1, got {getattr(self, name)!r}")
        for name in ("request_timeout", "body_timeout", "grace"):
            if getattr(self, name) <= timedelta(0):
                raise InvalidInput(name, f"must be longer than 0, got {getattr(self, name)}")


ROUTES: Final[tuple[Route, ...]] = (
    *publish.ROUTES,
    *deliveries.ROUTES,
    *jobs.ROUTES,
    *batch.BATCH_ROUTES,
    *claims.ROUTES,
    *steps.ROUTES,
    *queues.ROUTES,
    *dead.ROUTES,
    *schedules.ROUTES,
    *events.ROUTES,
    *keys.ROUTES,
)


NOWHERE: Final = "-"
"""The route label for unknown paths: a label per path would be unbounded."""

log: logging.Logger = logging.getLogger("onefold.server")


def create_app(onefold: Onefold, settings: ServerSettings | None = None) -> ServerApp:
    """The server on a database.

    Run it with any ASGI server that supports the lifespan, or mount it:

        server = create_app(onefold)
        app = Starlette(routes=[Mount("/jobs", server)], lifespan=server.lifespan)
    """
    return ServerApp(onefold, ServerSettings() if settings is None else settings)


class ServerApp:
    """An ASGI application. Its lifespan starts the pushing of jobs, and drains at the end."""

    def __init__(self, onefold: Onefold, settings: ServerSettings, *, closes: bool = False) -> None:
        """Made by `create_app`. With `closes`, it closes `onefold` at its end."""
        self._closes = closes
        self.server: Server = Server(onefold, settings)
        metrics = HttpMetrics(onefold) if find_spec("prometheus_client") else None
        self._access = AccessLog(metrics, wanted=settings.access_log)
        authority = Authority(onefold, anonymous=settings.anonymous)
        routes = (*ROUTES, *about_routes(ROUTES, metrics))
        self._router = Router(
            routes=[
                Path(path, PathApp(self.server, authority, methods, self._access))
                for path, methods in _by_path(routes).items()
            ],
            redirect_slashes=False,
            default=self._nowhere,
            lifespan=self.lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        raw = scope.get("raw_path")
        if raw is not None and (b"%" in raw or not raw.isascii()):
            # Routes match the raw path, so that a name may contain an encoded slash.
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await self._router(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncGenerator[None]:
        """Push jobs while it is open. An application that mounts this one has to run it."""
        del app
        server = self.server
        server.draining = False
        async with AsyncExitStack() as stack:
            if self._closes:
                # Entered first, so closed last: the other parts may still write.
                stack.push_async_callback(server.onefold.aclose)
            if server.settings.push:
                from onefold.push.push_worker import PushSettings, PushWorker

                settings = PushSettings(
                    concurrency=server.settings.push_concurrency,
                    grace=server.settings.grace,
                    allow=server.settings.push_allow,
                )
                server.courier = await stack.enter_async_context(
                    PushWorker(server.onefold, settings)
                )
            stack.enter_context(draining_at_signals(server.drain))
            try:
                yield
            finally:
                server.drain()
        server.courier = None

    async def _nowhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return 404 for an unknown path."""
        del receive
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        known = AccessRecord(request_id_of(headers_of(scope["headers"])))
        path = scope["path"]
        refused = problems.not_found(path[:200])
        response = problem_response(refused.problem, instance=path, request_id=known.request_id)
        head = scope["method"] == "HEAD"
        await send_response(send, response, request_id=known.request_id, head=head)
        self._access.note(scope, NOWHERE, response.status, started=started, known=known)


def _by_path(routes: Sequence[Route]) -> dict[str, dict[str, Route]]:
    paths: dict[str, dict[str, Route]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method] = route
    return paths
