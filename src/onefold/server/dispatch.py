"""From a request to its response: authentication, body, endpoint; every error as a problem.

One path has one `PathApp`, which knows the methods of that path. Each request is one line of the
access log and is counted.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import DatabaseError
from onefold.model import wire
from onefold.model.wire import BadBody
from onefold.server import problems
from onefold.server.asgi_io import (
    Disconnected,
    Response,
    as_request,
    check_media_type,
    path_values,
    problem_response,
    query_of,
    read_body,
    request_id_of,
    response_to,
    send_response,
    send_stream,
)
from onefold.server.keyed import run_keyed
from onefold.server.request_context import Reply, RequestContext
from onefold.server.unread_responses import NotRead
from onefold.web.idempotency.key import KeyRules, read_key
from onefold.web.problems import incomplete

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onefold.server.app import Server
    from onefold.server.asgi_io import Receive, Scope, Send
    from onefold.server.auth import Authority
    from onefold.server.deadlines import Deadline
    from onefold.server.metrics import HttpMetrics
    from onefold.server.request_context import Route
    from onefold.web.problems import Problem


access: logging.Logger = logging.getLogger("onefold.access")


class AccessRecord(msgspec.Struct):
    """The fields of a request for the access log."""

    request_id: str
    principal: str = "-"
    is_coming: bool = False
    """Whether the server waits for the client to send the body."""


class AccessLog:
    """Logs and counts requests. Never a query, a key or a body: they may be secrets."""

    def __init__(self, metrics: HttpMetrics | None, *, wanted: bool) -> None:
        """Lines are written if `wanted`; requests are always counted."""
        self._metrics = metrics
        self._wanted = wanted

    def note(
        self, scope: Scope, template: str, status: int, *, started: float, known: AccessRecord
    ) -> None:
        """Log and count a request that has ended; 499 is one whose client has disconnected."""
        seconds = time.perf_counter() - started
        if self._metrics is not None:
            self._metrics.note(scope["method"], template, status, seconds)
        if self._wanted and access.isEnabledFor(logging.INFO):
            client = scope.get("client")
            access.info(
                "%s %s %s %d %.1f ms %s %s",
                "-" if client is None else client[0],
                scope["method"],
                _shown(scope["path"]),
                status,
                seconds * 1000,
                known.principal,
                known.request_id,
            )


def _shown(path: str) -> str:
    """A path on one line; only visible ASCII characters are not escaped."""
    return path if path.isascii() and path.isprintable() else ascii(path)[1:-1]


KEY: Final = "idempotency-key"
GONE_AWAY: Final = 499
"""The status in the log if the client did not wait for the response."""
RULES: Final = KeyRules()

log: logging.Logger = logging.getLogger("onefold.server")


class PathApp:
    """One path of the API, as an ASGI application."""

    def __init__(
        self, server: Server, authority: Authority, routes: Mapping[str, Route], access: AccessLog
    ) -> None:
        """`routes` are by method."""
        self._server = server
        self._authority = authority
        self._routes = dict(routes)
        # A stream has no length that a HEAD could return.
        if "GET" in routes and not routes["GET"].streams:
            self._routes.setdefault("HEAD", routes["GET"])
        self._allowed = ", ".join(sorted({*self._routes, "OPTIONS"}))
        self._access = access
        self._limit = server.settings.request_timeout.total_seconds()
        self._body_limit = server.settings.body_timeout.total_seconds()
        self.template: str = next(iter(routes.values())).path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        started = time.perf_counter()
        headers = wire.headers_of(scope["headers"])
        known = AccessRecord(request_id_of(headers))
        status = GONE_AWAY
        if scope["http_version"] == "2":
            send = self._server.unread.paced(scope, send)
        try:
            answer = await self._answer(scope, receive, headers, known)
            status = answer.status
            if isinstance(answer, Reply):
                await send_stream(receive, send, answer, request_id=known.request_id)
            else:
                head = scope["method"] == "HEAD"
                await send_response(send, answer, request_id=known.request_id, head=head)
        except Disconnected:
            # Maybe only the body was cut off, and the client still reads.
            with suppress(OSError):
                await send_response(send, _broken_off(scope, known), request_id=known.request_id)
        except NotRead:
            status = GONE_AWAY
        self._access.note(scope, self.template, status, started=started, known=known)

    async def _answer(
        self, scope: Scope, receive: Receive, headers: Mapping[str, str], known: AccessRecord
    ) -> Response | Reply:
        """The response; every error becomes a problem."""
        deadline = self._server.deadlines.within(self._limit)
        try:
            with deadline:
                return await self._carry_out(scope, receive, headers, known, deadline)
        except Disconnected:
            raise
        except TimeoutError as late:
            error = self._late(deadline, known, late)
        except Exception as failed:  # noqa: BLE001 - the client receives a response to any error
            error = failed
        keyed = "authorization" in headers
        problem = problems.problem_of(error, url=_url(scope, headers), keyed=keyed)
        _log(error, problem, known.request_id)
        return problem_response(
            problem,
            instance=_instance(scope),
            request_id=known.request_id,
            more=self._more(problem.status),
        )

    def _late(self, deadline: Deadline, known: AccessRecord, late: Exception) -> Exception:
        if not deadline.is_over:
            return late  # another deadline: an internal error
        return problems.arrived_too_slowly() if known.is_coming else problems.took_too_long()

    def _more(self, status: int) -> tuple[tuple[str, str], ...]:
        """The headers that HTTP requires with some statuses."""
        if status == problems.METHOD_NOT_ALLOWED.status:
            return (("allow", self._allowed),)
        if status == problems.UNAUTHENTICATED.status:
            return (("www-authenticate", 'Bearer realm="onefold"'),)
        return ()

    async def _carry_out(
        self,
        scope: Scope,
        receive: Receive,
        headers: Mapping[str, str],
        known: AccessRecord,
        deadline: Deadline,
    ) -> Response | Reply:
        route = self._routes.get(scope["method"])
        if route is None:
            if scope["method"] == "OPTIONS":
                return Response(204, (("allow", self._allowed),))
            raise problems.method_not_allowed(scope["method"], self._allowed)
        caller = await self._authority.admit(route.scope, headers, scope)
        known.principal = caller.principal or known.principal
        known.is_coming = True
        deadline.put_off(min(self._limit, self._body_limit))
        text = await self._body_of(route, receive, headers)
        known.is_coming = False
        deadline.put_off(self._limit)
        query: bytes = scope["query_string"]
        asking = RequestContext(
            server=self._server,
            calls=self._server.calls_of(caller.tenant),
            tenant=caller.tenant,
            principal=caller.principal,
            path=path_values(scope["path_params"]),
            body=wire.decode(text, route.body)
            if text and route.body is not None
            else _without_body(route, text),
            query=query_of(query, route.query) if query or route.query is not None else None,
            key=_key_of(scope) if KEY in headers and scope["method"] == "POST" else None,
            request_id=known.request_id,
            headers=headers,
            root=scope.get("root_path", ""),
        )
        if route.streams:
            return await route.endpoint(asking)
        if asking.key is None or route.keyed == "native":
            return response_to(await route.endpoint(asking))
        request = as_request(scope, route.path)
        return await run_keyed(asking, request, text, lambda: _respond(route, asking))

    async def _body_of(self, route: Route, receive: Receive, headers: Mapping[str, str]) -> bytes:
        if route.body is None and route.method in {"GET", "DELETE"}:
            return b""
        settings = self._server.settings
        text = await read_body(receive, headers=headers, limit=settings.max_body)
        is_json = headers.get("content-type") == "application/json"
        if not is_json and text and (route.body is not None or text.strip() != b"{}"):
            check_media_type(headers)
        return text


def _log(error: Exception, problem: Problem, request_id: str) -> None:
    """Log the errors that an operator has to fix."""
    if problem.status == problems.INTERNAL.status:
        log.error("Request %s failed.", request_id, exc_info=error)
    elif isinstance(error, DatabaseError):
        log.warning("Request %s: %s", request_id, error)


def _key_of(scope: Scope) -> str | None:
    """The key of a POST. Requests with other methods may be repeated without one."""
    return read_key(as_request(scope), RULES)


async def _respond(route: Route, asking: RequestContext) -> Response:
    return response_to(await route.endpoint(asking))


def _without_body(route: Route, text: bytes) -> Any:
    """The default body of a route, if none was sent; None if the route has no body."""
    if route.body is None:
        if text and text.strip() != b"{}":
            raise BadBody("$", "must be empty: this route takes no body")
        return None
    if not route.body_optional:
        raise BadBody("$", "is missing: send JSON")
    return wire.decode(b"{}", route.body)


def _broken_off(scope: Scope, known: AccessRecord) -> Response:
    return problem_response(incomplete(), instance=_instance(scope), request_id=known.request_id)


def _url(scope: Scope, headers: Mapping[str, str]) -> str:
    """The URL of this server, as the client has it."""
    host = headers.get("host") or ":".join(map(str, scope.get("server") or ("localhost",)))
    return f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '')}"


def _instance(scope: Scope) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    return raw.decode("latin-1").partition("?")[0]
