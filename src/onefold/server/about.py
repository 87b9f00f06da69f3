"""What the server says about itself: its health, its metrics, its API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold import __version__
from onefold.server import wire
from onefold.server.asking import Said
from onefold.server.health import Health, healthz, readyz
from onefold.server.openapi import document, servers
from onefold.server.reference import page
from onefold.server.route import Route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.server.asking import Asking
    from onefold.server.metrics import HttpMetrics

HTML: Final = "text/html; charset=utf-8"


def about_routes(routes: Sequence[Route], metrics: HttpMetrics | None) -> tuple[Route, ...]:
    """The routes that every server has, whatever else."""
    described = document(routes, version=__version__)
    text, html = wire.encode(described), page(described).encode()

    async def openapi(asking: Asking) -> Said:
        body = wire.encode(described | {"servers": servers(asking.root)}) if asking.root else text
        return Said(200, body, (("content-type", "application/json"),))

    async def reference(asking: Asking) -> Said:
        del asking
        headers = (
            ("content-type", HTML),
            ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'"),
        )
        return Said(200, html, headers)

    found = [
        _open("/healthz", "health", "Does the process live?", healthz, {200: Health}),
        _open("/readyz", "readiness", "Can it work?", readyz, {200: Health, 503: Health}),
        _open("/v1/openapi.json", "openapi", "This document", openapi, {200: "application/json"}),
        _open("/v1/docs", "reference", "The same for people", reference, {200: "text/html"}),
    ]
    if metrics is not None:
        found.append(
            Route(
                method="GET",
                path="/metrics",
                name="metrics",
                summary="What Prometheus reads",
                endpoint=metrics.endpoint,
                scope="admin",
                answers={200: "text/plain"},
            )
        )
    return tuple(found)


def _open(path: str, name: str, summary: str, endpoint: object, answers: object) -> Route:
    return Route(
        method="GET",
        path=path,
        name=name,
        summary=summary,
        endpoint=endpoint,  # type: ignore[arg-type]
        scope=None,
        answers=answers,  # type: ignore[arg-type]
    )
