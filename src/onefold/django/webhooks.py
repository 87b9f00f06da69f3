"""Webhooks in Django: a view that is made from a handler, exempt from the CSRF check.

The transaction begins on `transaction=`, such as `django.db.connection`. The view is exempt from
ATOMIC_REQUESTS, too.
"""

from __future__ import annotations

import inspect
from functools import partial, wraps
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from onefold.databases.handler_transaction import refuse_thread_bound
from onefold.web.webhooks import endpoint, responses

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.web.http import HttpRequest as Request
    from onefold.web.http import HttpResponse as Answer
    from onefold.web.webhooks.webhook import Webhook


def receives(webhook: Webhook) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a view from a handler, which receives the event, the request and the URL arguments.

    @receives(payments)
    def paid(event: Received, request: HttpRequest) -> None: ...

    urlpatterns = [path("hooks/stripe", paid)]

    A coroutine function makes an async view. Its transaction cannot be Django's, which has none for
    those.
    """

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        view = _async_view(webhook, handler) if _awaits(handler) else _view(webhook, handler)
        for alias in connections:
            view = transaction.non_atomic_requests(using=alias)(view)
        return csrf_exempt(view)

    return decorate


def _awaits(handler: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(handler)


def _view(webhook: Webhook, handler: Callable[..., Any]) -> Callable[..., HttpResponse]:
    @wraps(handler)
    def view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        http_request, answer = _read(webhook, request)
        if isinstance(answer, bytes):
            called = partial(handler, **kwargs)
            answer = webhook.receive(http_request, answer, called, (request, *args))
        return _response(answer)

    return view


def _async_view(webhook: Webhook, handler: Callable[..., Any]) -> Callable[..., Any]:
    # If a function returns it, this is checked with the first request.
    refuse_thread_bound(webhook.settings.transaction)

    @wraps(handler)
    async def view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        http_request, answer = _read(webhook, request)
        if isinstance(answer, bytes):
            called = partial(handler, **kwargs)
            answer = await webhook.areceive(http_request, answer, called, (request, *args))
        return _response(answer)

    return view


def _read(webhook: Webhook, request: HttpRequest) -> tuple[Request, bytes | Answer]:
    """The request and its body, whichever kind of server it came through."""
    limit = webhook.max_body
    http_request = endpoint.wsgi_request_of(request.META, _path(request))
    if (http_request.content_length or 0) > limit:
        return http_request, responses.too_large(limit)
    body: bytes = request.read(limit + 1)
    return http_request, (responses.too_large(limit) if len(body) > limit else body)


def _path(request: HttpRequest) -> str:
    """The path as it was sent, if the server provides it. PATH_INFO is decoded."""
    raw: bytes | None = getattr(request, "scope", {}).get("raw_path")
    if raw is not None:
        return raw.partition(b"?")[0].decode("latin-1")
    return endpoint.raw_path(request.META) or quote(request.path)


def _response(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status)
    del response["Content-Type"]
    for name, value in answer.headers:
        response[name] = value
    return response
