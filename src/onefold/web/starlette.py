"""Idempotency-Key, webhooks and pushed jobs for Starlette."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, wraps
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, TypeAlias

from onefold.errors import Needs

with Needs("onefold[starlette]"):
    from starlette.background import BackgroundTask
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Host, Match, Mount


from onefold.errors import InvalidInput, UsageError
from onefold.model.checks import options_of
from onefold.web.asgi import ANYWHERE, IdempotencyMiddleware, asgi_exchange_of
from onefold.web.http import asgi_headers
from onefold.web.idempotency import keyed_routes
from onefold.web.idempotency.keyed_routes import MARK, SAFE, F, IdempotencyBase, undecorated
from onefold.web.idempotency.once_parameter import Once, check_target, once_parameters
from onefold.web.idempotency.policy import RouteOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from starlette.applications import Starlette

    from onefold.web.asgi import AsgiExchange, Scope
    from onefold.web.http import HttpResponse
    from onefold.web.idempotency.keyed_routes import KeyedRoute
    from onefold.web.webhooks.endpoint import WebhookEndpoint


__all__ = ["Idempotency", "Once", "once_of"]

Routes: TypeAlias = "Sequence[Any]"


class Idempotency(IdempotencyBase):
    """The keys of a Starlette application."""

    @cached_property
    def finder(self) -> RouteFinder:
        """Finds the routes of the application."""
        return RouteFinder()

    def install(self, app: Starlette) -> None:
        """Add the middleware. Before the application starts, it checks and reports its routes."""
        classes: list[object] = [middleware.cls for middleware in app.user_middleware]
        if IdempotencyMiddleware in classes:
            raise UsageError(
                "This application has an Idempotency already. One object has the policies of all"
                " routes: give the options of a route to its decorator."
            )
        app.add_middleware(IdempotencyMiddleware, registry=self.registry, finder=self.finder)

    @options_of(RouteOptions[Callable[[Request], Any]])
    def __call__(self, *bare: object, **options: Any) -> Callable[[F], F]:
        """Accept idempotency keys on an endpoint: under the route, on the function.

        `principal` returns the id of the caller, `tenant` the owner of the keys; both may be
        coroutine functions. A parameter annotated `Once` receives the attempt.
        """
        return self._decorator(bare, options, _wrapped)


def once_of(request: Request) -> Once:
    """The attempt that an endpoint, or something it calls, is part of."""
    once = asgi_exchange_of(request.scope).once
    if once is not None:
        return once
    if hasattr(_handler(request.scope.get("endpoint"), request.method), MARK):
        raise UsageError(
            "The attempt has not begun: the key of this request is claimed when its endpoint is"
            " called, and dependencies and middleware come before that. Call once_of(request) in"
            " the endpoint. A dependency that needs the session of the attempt takes it from"
            " get_session, if the route has transaction=Depends(get_session)."
        )
    raise UsageError("This endpoint has no policy: decorate it with @idempotency(…).")


def response_of(answer: HttpResponse) -> Response:
    """A response for Starlette, with no other headers."""
    response = Response(answer.body, answer.status)
    response.raw_headers = asgi_headers(answer.headers)
    return response


async def called(
    endpoint: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call an endpoint, sync ones in a thread."""
    if inspect.iscoroutinefunction(endpoint):
        return await endpoint(*args, **kwargs)
    return await run_in_threadpool(endpoint, *args, **kwargs)


async def attempted(exchange: AsgiExchange, run: Callable[[Once], Awaitable[Any]]) -> Any:
    """Run a handler; if it raises, roll back before the application responds."""
    assert exchange.once is not None
    try:
        return await run(exchange.once)
    except BaseException as error:
        await exchange.undo(error)
        raise


def _wrapped(endpoint: Callable[..., Any], route: KeyedRoute) -> Callable[..., Any]:
    if inspect.isclass(endpoint) or not callable(endpoint):  # pyright: ignore[reportUnnecessaryComparison]
        raise InvalidInput(
            "endpoint", f"must be a function, or a method of an HTTPEndpoint, got {endpoint!r}"
        )
    route.is_plain = not inspect.iscoroutinefunction(endpoint)
    check_target(route.target, blocks=route.is_plain)
    takes_once = once_parameters(endpoint)

    @wraps(endpoint)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        request = _request_of((*args, *kwargs.values()))
        exchange = asgi_exchange_of(request.scope)
        answer = await exchange.begin(route, **await route.acaller(request))
        if answer is not None:
            return response_of(answer)

        async def run(once: Once) -> Any:
            return await called(endpoint, args, {**kwargs, **dict.fromkeys(takes_once, once)})

        return await attempted(exchange, run)

    return wrapper


def _request_of(given: tuple[Any, ...]) -> Request:
    found: Any
    for found in given:
        if isinstance(found, Request):
            return found  # pyright: ignore[reportUnknownVariableType] # of whatever state
    raise UsageError("This endpoint was called without a Starlette request.")


class RouteFinder:
    """Finds routes in the route table of the application."""

    def find(self, scope: Scope) -> keyed_routes.Match | None:
        """The endpoint that the application will call, and its policy."""
        app: Any = scope.get("app")
        return self._find(app.router.routes, scope, "")

    def collect(self, scope: Scope) -> None:
        """Name the routes by their methods and paths."""
        app: Any = scope.get("app")
        named: dict[KeyedRoute, list[str]] = {}
        for route, methods, path in self.routes(app):
            if unsafe := methods & SAFE - {"HEAD", "OPTIONS"}:
                raise InvalidInput(
                    "idempotency", f"is not for {', '.join(sorted(unsafe))}: {path} has no effect"
                )
            name = f"{'|'.join(sorted(methods)) or 'POST'} {path}"
            named.setdefault(route, []).append(name)
        for endpoint, _, path in self._endpoints(app.router.routes, ""):
            swapped = undecorated(endpoint)
            if swapped is not None and swapped not in named:
                swapped.refuse_swapped(path)
        for route, names in named.items():
            route.name = ", ".join(names)

    def routes(self, app: Any) -> Iterator[tuple[KeyedRoute, frozenset[str], str]]:
        """Every route with a policy: its methods and its path."""
        for endpoint, methods, path in self._endpoints(app.router.routes, ""):
            route: KeyedRoute | None = getattr(endpoint, MARK, None)
            if route is not None:
                yield route, methods, path

    def prefixes(self, scope: Scope, wanted: set[KeyedRoute]) -> tuple[str, ...]:
        """What the paths of requests to these routes begin with; or `ANYWHERE`.

        Other code may change a path before it is matched: middleware inside ours, a mounted
        application, or a route of another class.
        """
        app: Any = scope.get("app")
        known = dropwhile(
            _is_known, (middleware.cls for middleware in reversed(app.user_middleware))
        )
        if next(known, None) is not IdempotencyMiddleware:
            return ANYWHERE
        prefixes: list[str] = []
        left = set(wanted)
        for route in self.flattened(app.router.routes):
            marked = {getattr(one, MARK, None) for one, *_ in self._endpoints([route], "")} & wanted
            if marked:
                left -= marked
                is_direct = _mounted(route) is None and _is_known(_original(route).matches)
                prefixes.append(route.path.partition("{")[0] if is_direct else "")
        return ANYWHERE if left else tuple(prefixes)

    def flattened(self, routes: Routes) -> Routes:
        """Routes with those of included routers in their places."""
        return routes

    def _find(self, routes: Routes, scope: Scope, prefix: str) -> keyed_routes.Match | None:
        for route in self.flattened(routes):
            match, child = route.matches(scope)
            if match is not Match.FULL:
                continue
            path = prefix + str(getattr(route, "path", ""))
            if (mounted := _mounted(route)) is not None:
                inner = self._find(mounted, {**scope, **child}, path)
                # The routes of another kind of application are unknown.
                return inner if inner is not None or mounted else keyed_routes.Match()
            endpoint = child.get("endpoint") or getattr(route, "endpoint", None)
            handler = _handler(endpoint, scope["method"])
            return keyed_routes.Match(getattr(handler, MARK, None), path)
        return None

    def _endpoints(self, routes: Routes, prefix: str) -> Iterator[tuple[Any, frozenset[str], str]]:
        for route in self.flattened(routes):
            path = prefix + str(getattr(route, "path", ""))
            endpoint: Any = getattr(route, "endpoint", None)
            if (mounted := _mounted(route)) is not None:
                yield from self._endpoints(mounted, path)
            elif inspect.isclass(endpoint):
                for name in ("post", "put", "patch", "delete"):
                    yield getattr(endpoint, name, None), frozenset({name.upper()}), path
            else:
                yield endpoint, frozenset(getattr(route, "methods", None) or ()), path


def _handler(endpoint: Any, method: str) -> Any:
    """The function for a method: an attribute if the view is a class."""
    return getattr(endpoint, method.lower(), None) if inspect.isclass(endpoint) else endpoint


def _is_known(code: Any) -> bool:
    """True for code that does not change the path of a request."""
    is_theirs = code.__module__.startswith(("starlette.", "fastapi."))
    return is_theirs and code is not BaseHTTPMiddleware  # which calls a function of the application


def _original(route: Any) -> Any:
    """The route that FastAPI has expanded."""
    return getattr(route, "original_route", route)


def _mounted(route: Any) -> Routes | None:
    """The routes of a mounted application; None if this is not a mount."""
    found = _original(route)
    return found.routes if isinstance(found, Mount | Host) else None


if TYPE_CHECKING:
    Endpoint = Callable[[Request], Awaitable[Response]]


def receives(webhook: WebhookEndpoint) -> Callable[[Callable[..., Any]], Endpoint]:
    """Make an endpoint from a handler, which receives the event or job and the request.

    @receives(payments)
    async def paid(event: Received, request: Request) -> None: ...

    app = Starlette(routes=[Route("/hooks/stripe", paid, methods=["POST"])])
    """

    def decorate(handler: Callable[..., Any]) -> Endpoint:
        @wraps(handler)
        async def endpoint(request: Request) -> Response:
            return await respond(webhook, request, handler, (request,))

        return endpoint

    return decorate


async def respond(
    webhook: WebhookEndpoint,
    request: Request,
    handler: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> Response:
    """Receive a request."""
    answer, afterwards = await webhook.respond(request.scope, request.receive, handler, arguments)
    if answer is None:
        # The client has disconnected.
        return Response(status_code=400)
    response = response_of(answer)
    response.background = None if afterwards is None else BackgroundTask(afterwards)
    return response
