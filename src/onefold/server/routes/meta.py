"""The server itself: `/healthz`, `/readyz`, metrics, and the OpenAPI document.

`/healthz`: the process runs. `/readyz`: it can work, or the response says why not.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from onefold import __version__
from onefold.errors import OnefoldError
from onefold.model import wire
from onefold.server.openapi import document, servers
from onefold.server.problems import AWAY
from onefold.server.reference_page import reference, reference_file
from onefold.server.request_context import Reply
from onefold.server.routing import RouteTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.server.metrics import HttpMetrics
    from onefold.server.request_context import RequestContext
from onefold.server.routing import Route

PATIENCE: Final = 2.0
"""Seconds that the database may take to respond."""

log: logging.Logger = logging.getLogger("onefold.server")


class Health(wire.Answer):
    """The health of the process."""

    status: str
    """`ok`, `draining` or `unavailable`."""
    reason: str | None = None


async def health(request: RequestContext) -> Reply:
    """Does the process run?"""
    del request
    return Reply(200, Health(status="ok"))


async def readiness(request: RequestContext) -> Reply:
    """Does the database respond, and does the process accept work?"""
    if request.server.draining:
        return Reply(503, Health(status="draining", reason="This process is stopping."))
    try:
        async with asyncio.timeout(PATIENCE):
            await request.onefold.deliveries.alook(["default"])
    except TimeoutError:
        return Reply(503, Health(status="unavailable", reason="The database does not answer."))
    except OnefoldError as error:
        log.warning("The server is not ready: %s", error)
        return Reply(503, Health(status="unavailable", reason=f"{AWAY}. The log has the details."))
    return Reply(200, Health(status="ok"))


def about_routes(routes: Sequence[Route], metrics: HttpMetrics | None) -> Sequence[Route]:
    """The routes that every server has. `routes` are all others."""

    @cache  # The first request makes the document, to keep the start of a process fast.
    def described() -> dict[str, Any]:
        return document(routes, version=__version__)

    @cache
    def text() -> bytes:
        return wire.encode(described())

    async def openapi(request: RequestContext) -> Reply:
        """This document."""
        root = request.root
        body = wire.encode(described() | {"servers": servers(root)}) if root else text()
        return Reply(200, body, (("content-type", "application/json"),))

    own = RouteTable()
    own.add("GET", "/healthz", scope=None, answers={200: Health})(health)
    own.add("GET", "/readyz", scope=None, answers={200: Health, 503: Health})(readiness)
    own.add("GET", "/v1/openapi.json", scope=None, answers={200: "application/json"})(openapi)
    own.add("GET", "/v1/docs", scope=None, answers={200: "text/html"})(reference)
    own.add("GET", "/v1/docs/{file}", scope=None, answers={200: "text/css"})(reference_file)
    if metrics is not None:
        own.add("GET", "/metrics", scope="admin", answers={200: "text/plain"})(metrics.metrics)
    return own
