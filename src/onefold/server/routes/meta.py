"""The server itself: `/healthz`, `/readyz`, metrics, and the OpenAPI document.

`/healthz`: the process runs. `/readyz`: it can work, or the response says why not.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from onefold import __version__
from onefold.errors import OnefoldError
from onefold.model import wire
from onefold.server.openapi import document, page, servers
from onefold.server.request_context import Reply, Route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.server.metrics import HttpMetrics
    from onefold.server.request_context import RequestContext


PATIENCE: Final = 2.0
"""Seconds that the database may take to respond."""


class Health(wire.Answer):
    """The health of the process."""

    status: str
    """`ok`, `draining` or `unavailable`."""
    reason: str | None = None


async def healthz(asking: RequestContext) -> Reply:
    """Return 200: the process runs."""
    del asking
    return Reply(200, Health(status="ok"))


async def readyz(asking: RequestContext) -> Reply:
    """Whether the database responds with our tables, and the process is not stopping."""
    if asking.server.draining:
        return Reply(503, Health(status="draining", reason="This process is stopping."))
    try:
        async with asyncio.timeout(PATIENCE):
            await asking.onefold.deliveries.alook(["default"])
    except TimeoutError:
        return Reply(503, Health(status="unavailable", reason="The database does not answer."))
    except OnefoldError as error:
        return Reply(503, Health(status="unavailable", reason=str(error)))
    return Reply(200, Health(status="ok"))


HTML: Final = "text/html; charset=utf-8"


def about_routes(routes: Sequence[Route], metrics: HttpMetrics | None) -> tuple[Route, ...]:
    """The routes that every server has."""

    @cache  # The first request makes the document, to keep the start of a process fast.
    def described() -> dict[str, Any]:
        return document(routes, version=__version__)

    @cache
    def text() -> bytes:
        return wire.encode(described())

    @cache
    def html() -> bytes:
        return page(described()).encode()

    async def openapi(asking: RequestContext) -> Reply:
        root = asking.root
        body = wire.encode(described() | {"servers": servers(root)}) if root else text()
        return Reply(200, body, (("content-type", "application/json"),))

    async def reference(asking: RequestContext) -> Reply:
        del asking
        headers = (
            ("content-type", HTML),
            ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'"),
        )
        return Reply(200, html(), headers)

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
