"""Webhooks in Flask: a view made of a handler."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from onefold.errors.extra import Needs

with Needs("onefold[flask]"):
    import flask


from onefold.surfaces.webhooks.wsgi import read_body, request_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.surfaces.webhooks.receiver import Webhook


def receives(webhook: Webhook) -> Callable[[Callable[..., Any]], Callable[..., flask.Response]]:
    """Make a view of a handler, which is given the event, and what the route has as variables.

    @app.post("/hooks/stripe")
    @receives(payments)
    def paid(event: Received) -> None: ...

    Nothing may read the body before: no `before_request` that looks at `request.form`, say.
    """

    def decorate(handler: Callable[..., Any]) -> Callable[..., flask.Response]:
        @wraps(handler)
        def view(**variables: Any) -> flask.Response:
            environ = flask.request.environ
            request = request_of(environ)
            answer = read_body(request, environ, webhook.settings.max_body)
            if isinstance(answer, bytes):
                answer = webhook.receive(request, answer, partial(handler, **variables))
            return flask.Response(answer.body, answer.status, list(answer.headers))

        return view

    return decorate
