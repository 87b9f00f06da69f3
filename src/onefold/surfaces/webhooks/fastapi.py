"""Webhooks and pushed jobs in FastAPI: a path operation made of a handler, dependencies and all.

The transaction must be committed before the answer is sent, and what a dependency does after its
`yield` comes too late for that. So the event is given by a decorator, as an argument.
"""

from __future__ import annotations

import inspect
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final

from onefold.errors.extra import Needs

with Needs("onefold[fastapi]"):
    from starlette.requests import Request
    from starlette.responses import Response


from onefold.errors import InvalidInput
from onefold.surfaces.webhooks.starlette import respond

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from onefold.surfaces.webhooks.asgi import Receives

    Endpoint = Callable[..., Awaitable[Response]]

_REQUEST: Final = "onefold_request"


def receives(webhook: Receives) -> Callable[[Callable[..., Any]], Endpoint]:
    """Make a path operation of a handler. The parameter annotated `Received` is the event.

    Of a `Receiver`, the parameter annotated `PushedJob` is the job.

    @app.post("/hooks/stripe")
    @receives(payments)
    async def paid(event: Received, mailer: Annotated[Mailer, Depends(mailer)]) -> None: ...
    """

    def decorate(handler: Callable[..., Any]) -> Endpoint:
        signature = inspect.signature(handler, eval_str=True)
        event = _event(signature, handler, webhook.event)

        @wraps(handler)
        async def endpoint(**given: Any) -> Response:
            request: Request = given.pop(_REQUEST)

            def handled(received: object) -> Any:
                return handler(**{event: received}, **given)

            async def ahandled(received: object) -> Any:
                return await handler(**{event: received}, **given)

            chosen = ahandled if inspect.iscoroutinefunction(handler) else handled
            return await respond(webhook, request, partial(chosen), ())

        endpoint.__signature__ = _without(signature, event)  # type: ignore[attr-defined]
        return endpoint

    return decorate


def _event(signature: inspect.Signature, handler: object, kind: type[Any]) -> str:
    """The name of the parameter that takes the event."""
    found = [name for name, one in signature.parameters.items() if one.annotation is kind]
    if len(found) != 1:
        raise InvalidInput(
            "handler", f"must have one parameter annotated {kind.__name__}, got {handler}"
        )
    return found[0]


def _without(signature: inspect.Signature, event: str) -> inspect.Signature:
    """What FastAPI is to give: everything but the event, and the request."""
    rest = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in signature.parameters.items()
        if name != event
    ]
    request = inspect.Parameter(_REQUEST, inspect.Parameter.KEYWORD_ONLY, annotation=Request)
    return inspect.Signature([*rest, request], return_annotation=Response)
