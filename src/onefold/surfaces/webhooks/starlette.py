"""Webhooks and pushed jobs in Starlette: an endpoint made of a handler."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from onefold.errors.extra import Needs

with Needs("onefold[starlette]"):
    from starlette.background import BackgroundTask
    from starlette.responses import Response


from onefold.surfaces.http.answer import asgi_headers
from onefold.surfaces.webhooks.asgi import read_body, request_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from onefold.surfaces.http.answer import Answer
    from onefold.surfaces.webhooks.asgi import Receives

    Endpoint = Callable[[Request], Awaitable[Response]]


def receives(webhook: Receives) -> Callable[[Callable[..., Any]], Endpoint]:
    """Make an endpoint of a handler, which is given the event or job and Starlette's request.

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
    webhook: Receives, request: Request, handler: Callable[..., Any], arguments: tuple[Any, ...]
) -> Response:
    """Receive what came in; a body that is too long is not read to its end."""
    asked = request_of(request.scope)
    body = await read_body(asked, request.receive, webhook.max_body)
    if body is None:
        # Nobody is there any more to read it.
        return Response(status_code=400)
    if not isinstance(body, bytes):
        return response_of(body)
    answer, afterwards = await webhook.respond(asked, body, handler, arguments)
    response = response_of(answer)
    response.background = None if afterwards is None else BackgroundTask(afterwards)
    return response


def response_of(answer: Answer) -> Response:
    """An answer, as Starlette has it."""
    response = Response(answer.body, status_code=answer.status)
    response.raw_headers = asgi_headers(answer.headers)
    return response
