"""The dashboard at `/` of the server, and its stream of events."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import DatabaseError, InvalidInput
from onefold.server.asgi_io import read_body, request_of
from onefold.server.dashboard.page import Incoming
from onefold.server.deadlines import Deadline
from onefold.server.dispatch import PathApp
from onefold.server.request_context import Reply
from onefold.server.routes.events import HEADERS, farewell, stream
from onefold.web.http import HttpResponse
from onefold.web.problems import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive, Scope

    from onefold.server.app import ServerApp
    from onefold.server.dashboard.dashboard import Dashboard
    from onefold.server.dispatch import AccessRecord

EVENTS: Final = "/events"
LARGEST_FORM: Final = 1024 * 1024
"""Bytes."""


def dashboard_paths(server: ServerApp, dashboard: Dashboard) -> dict[str, PathApp]:
    """The paths of the dashboard."""
    return {path: DashboardPath(server, dashboard, path) for path in (*dashboard.paths, EVENTS)}


class DashboardPath(PathApp):
    """One path of the dashboard. Pages run in threads: they call the database blocking."""

    def __init__(self, server: ServerApp, dashboard: Dashboard, path: str) -> None:
        """`path` is its template."""
        super().__init__(server, {}, template=path)
        self._dashboard = dashboard
        self._path = path

    async def _response(
        self, scope: Scope, receive: Receive, headers: Mapping[str, str], record: AccessRecord
    ) -> HttpResponse | Reply:
        body = b""
        if scope["method"] == "POST":
            try:
                async with asyncio.timeout(self._body_limit):
                    body = await read_body(receive, headers=headers, limit=LARGEST_FORM)
            except (Refused, TimeoutError):
                return HttpResponse(
                    413, (("content-type", "text/plain"),), b"The form is too long."
                )
        root = scope.get("root_path", "")
        request = request_of(scope, self._path, record.request_id)
        below = request.path.partition("?")[0].removeprefix(root) or "/"
        incoming = Incoming(
            http=msgspec.structs.replace(request, path=below),
            body=body,
            root=root,
            # A proxy that ends TLS says so. A visitor who says it changes only their own cookie.
            secure="https" in {scope.get("scheme"), headers.get("x-forwarded-proto")},
            client=scope.get("client"),
            version=scope["http_version"],
        )
        if self._path == EVENTS:
            return await self._events(incoming, headers)
        if scope["method"] == "POST":
            return await asyncio.to_thread(self._dashboard.respond, incoming)
        try:
            with Deadline(self._server.deadlines, self._limit):
                return await asyncio.to_thread(self._dashboard.respond, incoming)
        except TimeoutError:
            return self._dashboard.too_late(incoming)

    async def _events(self, incoming: Incoming, headers: Mapping[str, str]) -> HttpResponse | Reply:
        sessions, server = self._dashboard.sessions, self._server
        try:
            session = await asyncio.to_thread(sessions.find, incoming)
        except DatabaseError:
            # A browser reconnects after the end of a stream, but not after an error.
            return HttpResponse(200, HEADERS, farewell("unavailable"))
        except (Refused, InvalidInput):
            session = None
        pieces = None
        if session is not None:
            calls, after = server.tenants[session.tenant], headers.get("last-event-id") or None
            counts = partial(asyncio.to_thread, partial(sessions.is_valid, session))
            pieces = await stream(server, calls, counts, after=after)
        # A browser does not reconnect after 204.
        return HttpResponse(204) if pieces is None else Reply(200, pieces, HEADERS)
