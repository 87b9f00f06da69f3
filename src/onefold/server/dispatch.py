"""From a request to its response: authentication, body, endpoint; every error as a problem.

One path has one `PathApp`, which knows the methods of that path. Each request is one line of the
access log and is counted.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.databases.reach import waiting
from onefold.errors import DatabaseError
from onefold.model import wire
from onefold.model.wire import BadBody
from onefold.server import problems
from onefold.server.asgi_io import (
    Disconnected,
    check_media_type,
    path_values,
    query_of,
    read_body,
    request_id_of,
    request_of,
    response_to,
    send_response,
    send_stream,
)
from onefold.server.deadlines import Deadline
from onefold.server.keyed import run_keyed
from onefold.server.problems import problem_response
from onefold.server.request_context import Reply, RequestContext
from onefold.server.unread_responses import NotRead
from onefold.web.http import HttpResponse
from onefold.web.idempotency.key import KeyRules, read_key
from onefold.web.problems import INCOMPLETE, make

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import Histogram
    from starlette.types import Receive, Scope, Send

    from onefold.server.app import ServerApp
    from onefold.server.metrics import HttpMetrics
    from onefold.server.routing import Route
    from onefold.web.http import Header
    from onefold.web.problems import Problem

METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
"""The methods that are counted by name. A client can send any other word."""
KEY: Final = "idempotency-key"
KEY_RULES: Final = KeyRules()
CLIENT_LEFT: Final = 499
"""The status in the log if the client did not wait for the response."""
UNKNOWN_PATH: Final = "-"
"""The label of all unknown paths: a label per path would be unbounded."""

access: logging.Logger = logging.getLogger("onefold.access")
log: logging.Logger = logging.getLogger("onefold.server")


class AccessRecord(msgspec.Struct):
    """The fields of a request for the access log."""

    request_id: str
    started: float
    principal: str = "-"
    is_coming: bool = False
    """Whether the server waits for the client to send the body."""
    is_unconfirmed: bool = False
    """Whether the caller's API key is known from an earlier request only."""


class AccessLog:
    """Logs and counts requests by route. Paths, queries and bodies have keys and handles."""

    def __init__(self, metrics: HttpMetrics | None, *, wanted: bool) -> None:
        """Lines are written if `wanted`; requests are always counted."""
        self._metrics = metrics
        self._wanted = wanted
        self._series: dict[tuple[str, str, int], Histogram] = {}

    def note(self, scope: Scope, template: str, status: int, record: AccessRecord) -> None:
        """Log and count a request that has ended."""
        seconds = time.perf_counter() - record.started
        if self._metrics is not None:
            method = scope["method"] if scope["method"] in METHODS else "other"
            series = self._series.get((method, template, status))
            if series is None:
                series = self._metrics.seconds.labels(method, template, str(status))
                self._series[method, template, status] = series
            series.observe(seconds)
        if self._wanted and access.isEnabledFor(logging.INFO):
            client = scope.get("client")
            access.info(
                "%s %s %s %d %.1f ms %s %s",
                "-" if client is None else client[0],
                scope["method"],
                template,
                status,
                seconds * 1000,
                record.principal,
                record.request_id,
            )


class PathApp:
    """One path of the API; without routes, all unknown paths."""

    def __init__(
        self, server: ServerApp, routes: Mapping[str, Route], template: str = UNKNOWN_PATH
    ) -> None:
        """`routes` are by method; `template` is their path."""
        self._server = server
        self._routes = dict(routes)
        # A stream has no length that a HEAD could return.
        if "GET" in routes and not routes["GET"].streams:
            self._routes.setdefault("HEAD", routes["GET"])
        self._allowed = ", ".join(sorted({*self._routes, "OPTIONS"}))
        self._limit = server.settings.request_timeout.total_seconds()
        self._body_limit = server.settings.body_timeout.total_seconds()
        self._template = template

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI; the scope also has the parameters of the path."""
        started = time.perf_counter()
        headers = wire.headers_of(scope["headers"])
        record = AccessRecord(request_id_of(headers), started)
        with waiting(self._server.context.database.database_wait):
            await self._respond(scope, receive, send, headers, record)

    async def _respond(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Mapping[str, str],
        record: AccessRecord,
    ) -> None:
        status = CLIENT_LEFT
        if scope["http_version"] == "2":
            send = self._server.unread.paced(scope, send)
        try:
            response = await self._response(scope, receive, headers, record)
            status = response.status
            if isinstance(response, Reply):
                await send_stream(receive, send, response, request_id=record.request_id)
            else:
                head = scope["method"] == "HEAD"
                await send_response(send, response, request_id=record.request_id, head=head)
        except Disconnected:
            # Maybe only the body was cut off, and the client still reads.
            response = self._problem(make(INCOMPLETE), scope, record)
            with suppress(OSError):
                await send_response(send, response, request_id=record.request_id)
        except NotRead:
            status = CLIENT_LEFT
        self._server.access_log.note(scope, self._template, status, record)

    async def _response(
        self, scope: Scope, receive: Receive, headers: Mapping[str, str], record: AccessRecord
    ) -> HttpResponse | Reply:
        """The response; every error becomes a problem. A stream is still a `Reply`."""
        deadline = Deadline(self._server.deadlines, self._limit)
        try:
            with deadline:
                return await self._carry_out(scope, receive, headers, record, deadline)
        except Disconnected:
            raise
        except Exception as failed:  # noqa: BLE001 - the client receives a response to any error
            error, reads = failed, scope["method"] in {"GET", "HEAD"}
            if isinstance(failed, TimeoutError) and deadline.is_over:
                late = record.is_coming
                error = (
                    problems.arrived_too_slowly() if late else problems.took_too_long(reads=reads)
                )
        if record.is_unconfirmed:
            error = await self._refusal(scope, headers) or error
        has_key = "authorization" in headers
        problem = problems.problem_of(error, url=_url(scope, headers), keyed=has_key, reads=reads)
        if problem.status == problems.INTERNAL.status:
            log.error("Request %s failed.", record.request_id, exc_info=error)
        elif isinstance(error, DatabaseError):
            log.warning("Request %s: %s", record.request_id, error)
        return self._problem(problem, scope, record)

    async def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> Exception | None:
        """The error of a key that is not valid any more: it comes before all others."""
        route = self._routes[scope["method"]]
        try:
            with Deadline(self._server.deadlines, self._limit):
                await self._server.authority.admit(route.scope, headers, scope, secret=route.secret)
        except Exception as error:  # noqa: BLE001 - the client receives a response to any error
            return error
        return None

    def _problem(self, problem: Problem, scope: Scope, record: AccessRecord) -> HttpResponse:
        raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
        more: tuple[Header, ...] = ()
        if problem.status == problems.METHOD_NOT_ALLOWED.status:
            more = (("allow", self._allowed),)
        elif problem.status == problems.UNAUTHENTICATED.status:
            more = (("www-authenticate", 'Bearer realm="onefold"'),)
        instance = raw.decode("latin-1").partition("?")[0]
        return problem_response(problem, instance=instance, request_id=record.request_id, more=more)

    async def _carry_out(
        self,
        scope: Scope,
        receive: Receive,
        headers: Mapping[str, str],
        record: AccessRecord,
        deadline: Deadline,
    ) -> HttpResponse | Reply:
        server, method = self._server, scope["method"]
        route = self._routes.get(method)
        if route is None:
            return self._without_route(method, scope["path"])
        caller = await server.authority.admit(
            route.scope, headers, scope, confirms=route.confirms, secret=route.secret
        )
        record.principal = caller.principal or record.principal
        record.is_unconfirmed = caller.unconfirmed is not None
        body = b""
        if route.body is not None or route.method not in {"GET", "DELETE"}:
            record.is_coming = True
            deadline.put_off(min(self._limit, self._body_limit))
            body = await read_body(receive, headers=headers, limit=server.settings.max_body)
            record.is_coming = False
            deadline.put_off(self._limit)
        key = request = None
        if KEY in headers and method == "POST":  # other methods may be repeated without a key
            request = request_of(scope, route.path, record.request_id)
            key = read_key(request, KEY_RULES)
        path: Mapping[str, str] = scope["path_params"]
        if "%" in scope["path"] or not scope["path"].isascii():
            path = path_values(path)
        query: bytes = scope["query_string"]
        context = RequestContext(
            server=server,
            calls=server.tenants[caller.tenant],
            tenant=caller.tenant,
            principal=caller.principal,
            path=path,
            body=_decoded(route, body, headers),
            query=query_of(query, route.query) if query or route.query is not None else None,
            key=key,
            request_id=record.request_id,
            headers=headers,
            unconfirmed=caller.unconfirmed,
            root=scope.get("root_path", ""),
        )
        if request is not None and key is not None and route.keyed == "claim":
            return await run_keyed(route, context, request, body)
        reply = await route.endpoint(context)
        return reply if route.streams else response_to(reply)

    def _without_route(self, method: str, path: str) -> HttpResponse:
        if not self._routes:
            detail = f"There is nothing at {path[:200]!r}. See /v1/docs."
            raise problems.refused(problems.NOT_FOUND, detail)
        if method != "OPTIONS":
            detail = f"{method} is not possible here; {self._allowed} is."
            raise problems.refused(problems.METHOD_NOT_ALLOWED, detail)
        return HttpResponse(204, (("allow", self._allowed),))


class PathFinder:
    """Finds the `PathApp` of a path by the number of its parts; then the first that matches."""

    def __init__(self, apps: Mapping[str, PathApp], *, default: PathApp) -> None:
        """`apps` are by template: `/v1/queues/{name}/jobs`."""
        self._default = default
        self._by_length: dict[int, list[_PathTemplate]] = {}
        for template, app in apps.items():
            parts = template.split("/")
            self._by_length.setdefault(len(parts), []).append(_PathTemplate(parts, app))

    def find(self, path: str, root: str) -> tuple[PathApp, Mapping[str, str]]:
        """The application of a path below `root`, and the values of its parameters."""
        if root and path.startswith(root) and path[len(root) :][:1] in {"", "/"}:
            path = path[len(root) :]
        parts = path.split("/")
        for each in self._by_length.get(len(parts), ()):
            if each.fixed_of(parts) == each.fixed:
                values = {name: parts[place] for place, name in each.names}
                if all(values.values()):
                    return each.app, values
        return self._default, {}


class _PathTemplate:
    """A template: the parts that are fixed, and the names of the others."""

    def __init__(self, parts: list[str], app: PathApp) -> None:
        self.app = app
        self.names = [(place, part[1:-1]) for place, part in enumerate(parts) if part[:1] == "{"]
        places = [place for place, part in enumerate(parts) if part[:1] != "{"]
        self.fixed_of: Callable[[list[str]], object] = itemgetter(*places)
        self.fixed = self.fixed_of(parts)


def _decoded(route: Route, body: bytes, headers: Mapping[str, str]) -> Any:
    """The body as a value; None if the route has none."""
    if route.body is None:
        if body and body.strip() != b"{}":
            check_media_type(headers)
            raise BadBody("$", "must be empty: this route takes no body")
        return None
    if body and headers.get("content-type") != "application/json":
        check_media_type(headers)
    if not body and not route.body_optional:
        raise BadBody("$", "is missing: send JSON")
    return wire.decode(body or b"{}", route.body)


def _url(scope: Scope, headers: Mapping[str, str]) -> str:
    """The URL of this server, as the client has it."""
    host = headers.get("host") or ":".join(map(str, scope.get("server") or ("localhost",)))
    return f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '')}"
