"""The Idempotency-Key of a POST: the exchange of `onefold.web` around an endpoint of the server.

The endpoints can safely run again, so the claim of a dead process is taken over. A request that is
cancelled at its deadline releases its key: its client may send it again.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from onefold.runtime import kept_task
from onefold.server.asgi_io import response_to
from onefold.server.request_context import FENCE
from onefold.web.http import HttpResponse
from onefold.web.idempotency.body import digested
from onefold.web.idempotency.exchange import Exchange
from onefold.web.idempotency.keyed_routes import KeyedRoute, RouteRegistry
from onefold.web.problems import Refused

if TYPE_CHECKING:
    from onefold.app.onefold import Onefold
    from onefold.runtime import Procedure
    from onefold.server.request_context import RequestContext
    from onefold.server.routing import Route
    from onefold.web.http import HttpRequest

T = TypeVar("T")

MARGIN: Final = timedelta(seconds=30)
"""How much longer a claim lasts than a request may take."""
SCOPE: Final = "v1"
PATIENCE: Final = 2.0
"""Seconds that a cancelled request waits for the release of its key."""


def keyed_route(onefold: Onefold, request_timeout: timedelta) -> KeyedRoute:
    """The route of all POSTs. A response that is an error leaves the key free."""
    return RouteRegistry(onefold).route(
        {
            "takeover": "rerun",
            "lease": request_timeout + MARGIN,
            "on_4xx": "release",
            "on_5xx": "release",
            # The fence is part of the request: it names a delivery.
            "fingerprint_headers": (FENCE,),
        }
    )


async def run_keyed(
    route: Route, context: RequestContext, request: HttpRequest, body: bytes
) -> HttpResponse:
    """Run an endpoint once per key, or replay its response; `Refused` if it cannot run."""
    exchange = Exchange(
        context.server.keyed_route,
        request,
        digested(body),
        principal=SCOPE,
        tenant=context.tenant,
    )
    stored = await exchange.abegin()
    if stored is not None:
        return _replayed(exchange, stored)
    try:
        response = response_to(await route.endpoint(context))
    except BaseException:
        await _to_end(exchange, exchange.give_back())
        raise
    stored = await _to_end(exchange, exchange.finish(response))
    return response if stored is response else _replayed(exchange, stored)


def _replayed(exchange: Exchange, stored: HttpResponse) -> HttpResponse:
    if exchange.problem is not None:
        raise Refused(exchange.problem)
    headers = tuple(header for header in stored.headers if header[0].lower() != "content-length")
    return HttpResponse(stored.status, headers, stored.body)


async def _to_end(exchange: Exchange, procedure: Procedure[T]) -> T:
    """Run a procedure to its end. A cancelled caller waits for it, but not for long."""
    task = kept_task(exchange.runtime.arun(procedure))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=PATIENCE)
        raise
