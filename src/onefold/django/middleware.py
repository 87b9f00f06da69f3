"""The middleware for keyed views, and the report of them.

It rejects requests before their bodies are read, keeps the bodies, and sees the response to an
exception. Put it into MIDDLEWARE before CsrfViewMiddleware, and after compression and caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.urls import URLPattern, get_resolver, get_urlconf
from django.utils.deprecation import MiddlewareMixin

from onefold.django.instance import read_settings
from onefold.django.views import (
    IS_WATCHED,
    PENDING,
    add_headers,
    answer_of,
    close_with,
    is_keyed,
    keep_body,
    request_of,
    response_of,
)
from onefold.web.forms.no_store import NO_STORE, open_page
from onefold.web.idempotency.key import read_key
from onefold.web.idempotency.keyed_routes import KEYED, MARK, SAFE, report
from onefold.web.idempotency.policy import SERVER_ERRORS
from onefold.web.problems import NOT_CONFIGURED, Refused, make

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase

    from onefold.web.http import HttpRequest as Request
    from onefold.web.idempotency.keyed_routes import KeyedRoute, Unconfigured


def collect() -> list[KeyedRoute]:
    """Every view with a policy, named by its path."""
    found: list[KeyedRoute] = []
    for view, path in _views(get_resolver(get_urlconf()).url_patterns, "/"):
        route: KeyedRoute | None = getattr(view, MARK, None)
        if route is not None:
            route.name = path
            found.append(route)
    return found


def _views(patterns: Any, prefix: str) -> Iterator[tuple[Any, str]]:
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield pattern.callback, path
        else:
            yield from _views(pattern.url_patterns, path)


PAGE: Final = "_onefold_page"


class IdempotencyMiddleware(MiddlewareMixin):
    """For `MIDDLEWARE`: `onefold.django.IdempotencyMiddleware`."""

    def __init__(self, get_response: Callable[..., Any]) -> None:
        super().__init__(get_response)
        self._unconfigured: Unconfigured = read_settings().unconfigured
        self._names: frozenset[str] | None = None

    def process_request(self, request: HttpRequest) -> None:
        """Note whether the page gets a form key: then it must not be cached."""
        setattr(request, PAGE, open_page())

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponse | None:
        """Reject a request before its view runs, or read its body."""
        del args, kwargs
        if request.method in SAFE:
            return None
        names = self._checked()
        setattr(request, IS_WATCHED, True)
        route: KeyedRoute | None = getattr(view, MARK, None)
        http_request = request_of(request)
        try:
            if route is None:
                self._refuse_unconfigured(http_request, names)
            elif is_keyed(http_request, route.policy):
                read_key(http_request, route.policy.key)
                keep_body(request, http_request, route.policy)
        except Refused as refused:
            link = None if route is None else route.policy.link
            return response_of(refused.problem.described_by(link).answer(http_request))
        return None

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Store the response of the project to an exception of the view."""
        close_with(response, request)
        if getattr(request, PAGE).has_key:
            response["Cache-Control"] = NO_STORE
        pending = getattr(request, PENDING, None)
        if pending is None:
            return response
        setattr(request, PENDING, None)
        exchange, error, run = pending
        found: Any = response
        if response.status_code >= SERVER_ERRORS or response.streaming:
            instead = run(exchange.fail(error))
            return response if instead is None else response_of(instead)
        add_headers(found, exchange.added)
        answer = answer_of(found, found.content)
        final = run(exchange.finish(answer))
        return response if final is answer else response_of(final)

    def _refuse_unconfigured(self, http_request: Request, names: frozenset[str]) -> None:
        has_key = any(http_request.values(name) for name in names)
        if has_key and http_request.method in KEYED and self._unconfigured == "refuse":
            raise Refused(make(NOT_CONFIGURED))

    def _checked(self) -> frozenset[str]:
        """The headers of keys. With the first request, also log the report."""
        if self._names is None:
            routes = collect()
            report(routes, self._unconfigured)
            names = {name for route in routes for name in route.policy.key.headers}
            self._names = frozenset(names | {"Idempotency-Key"})
        return self._names
