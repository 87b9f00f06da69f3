"""The views that have a policy, by the paths that a project gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import URLPattern, get_resolver, get_urlconf

from onefold.surfaces.django.idempotency import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onefold.surfaces.http.desk import Route


def collect() -> list[Route]:
    """Every view with a policy, named by its path."""
    found: list[Route] = []
    for view, path in _views(get_resolver(get_urlconf()).url_patterns, "/"):
        route: Route | None = getattr(view, MARK, None)
        if route is not None:
            route.name = path
            found.append(route)
    return found


def report() -> list[str]:
    """What is guaranteed, view by view."""
    return [route.told() for route in collect()]


def _views(patterns: Any, prefix: str) -> Iterator[tuple[Any, str]]:
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield pattern.callback, path
        else:
            yield from _views(pattern.url_patterns, path)
