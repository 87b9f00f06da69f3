"""`create_app`: the server as one ASGI application, to be run by itself or mounted in another."""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from onefold.errors.extra import Needs

with Needs("onefold[server]"):
    from starlette.routing import Route as Path
    from starlette.routing import Router


from onefold.server import problems
from onefold.server.about import about_routes
from onefold.server.auth import Authority
from onefold.server.dispatch import PathApp
from onefold.server.incoming import request_id_of
from onefold.server.log import AccessLog, Known
from onefold.server.metrics import HttpMetrics
from onefold.server.outgoing import problem_response, send_response
from onefold.server.settings import ServerSettings
from onefold.server.state import Server
from onefold.server.stopping import draining_at_signals
from onefold.server.table import ROUTES
from onefold.server.wire import headers_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from onefold.app import Onefold
    from onefold.server.incoming import Receive, Scope, Send
    from onefold.server.route import Route

NOWHERE: Final = "-"
"""The route of what has none, in the counters: paths are the callers' words, and without end."""

log: logging.Logger = logging.getLogger("onefold.server")


def create_app(onefold: Onefold, settings: ServerSettings | None = None) -> ServerApp:
    """The server on a database.

    Run it with any ASGI server that carries out the lifespan, or mount it:

        server = create_app(onefold)
        app = Starlette(routes=[Mount("/jobs", server)], lifespan=server.lifespan)
    """
    return ServerApp(onefold, ServerSettings() if settings is None else settings)


class ServerApp:
    """An ASGI application. Its lifespan starts the pushing of jobs, and drains at the end."""

    def __init__(self, onefold: Onefold, settings: ServerSettings, *, closes: bool = False) -> None:
        """Made by `create_app`; where it `closes`, `onefold` is its own and ends with it."""
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
            # Routes are matched as they were written: a name with an encoded slash is one name.
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await self._router(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncGenerator[None]:
        """Push jobs while it is open. Given to the application that this one is mounted in."""
        del app
        server = self.server
        server.draining = False
        async with AsyncExitStack() as stack:
            if self._closes:
                # First in, last out: what is still to be noted is written down when all has ended.
                stack.push_async_callback(server.onefold.aclose)
            if server.settings.push:
                from onefold.push.courier import Courier, PushSettings

                settings = PushSettings(
                    concurrency=server.settings.push_concurrency,
                    grace=server.settings.grace,
                    allow=server.settings.push_allow,
                )
                server.courier = await stack.enter_async_context(Courier(server.onefold, settings))
            stack.enter_context(draining_at_signals(server.drain))
            try:
                yield
            finally:
                server.drain()
        server.courier = None

    async def _nowhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        """No route has this path."""
        del receive
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        known = Known(request_id_of(headers_of(scope["headers"])))
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
