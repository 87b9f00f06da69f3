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
from django.views.decorators.csrf import csrf_exempt

from onefold.databases.handler_transaction import refuse_thread_bound
from onefold.django.views import response_of
from onefold.web.webhooks.endpoint import EndpointDelivery, raw_path, wsgi_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

    from onefold.web.http import HttpResponse as Answer
    from onefold.web.webhooks.webhook import Webhook


def receives(webhook: Webhook) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a view from a handler, which receives the event, the request and the URL arguments.

    @receives(payments)
    def paid(event: Received, request: HttpRequest) -> None: ...

    urlpatterns = [path("hooks/stripe", paid)]

    A coroutine function makes an async view. Its transaction cannot be Django's: Django has no
    transactions in async views.
    """

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        is_async = inspect.iscoroutinefunction(handler)
        view = _async_view(webhook, handler) if is_async else _view(webhook, handler)
        for alias in connections:
            view = transaction.non_atomic_requests(using=alias)(view)
        return csrf_exempt(view)

    return decorate


def _view(webhook: Webhook, handler: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(handler)
    def view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        accepted = _accept(webhook, request, partial(handler, **kwargs), args)
        return response_of(accepted.run() if isinstance(accepted, EndpointDelivery) else accepted)

    return view


def _async_view(webhook: Webhook, handler: Callable[..., Any]) -> Callable[..., Any]:
    # If a function returns it, this is checked with the first request.
    refuse_thread_bound(webhook.settings.transaction)

    @wraps(handler)
    async def view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        accepted = _accept(webhook, request, partial(handler, **kwargs), args)
        return response_of(
            await accepted.arun() if isinstance(accepted, EndpointDelivery) else accepted
        )

    return view


def _accept(
    webhook: Webhook, request: HttpRequest, handler: Callable[..., Any], args: tuple[Any, ...]
) -> Answer | EndpointDelivery:
    """Check a request, of WSGI or ASGI; a body that is too long is not read to its end."""
    raw: bytes = getattr(request, "scope", {}).get("raw_path") or b""
    path = raw.partition(b"?")[0].decode("latin-1") or raw_path(request.META)
    http_request = wsgi_request(request.META, path or quote(request.path))
    rejected = webhook.rejected_unread(http_request)
    if rejected is not None:
        return rejected
    body: bytes = request.read(webhook.max_body + 1)
    return webhook.accept(http_request, body, handler, (request, *args))
