"""The public API: the key is in a header and belongs to one account. A repeated key is a retry."""

from __future__ import annotations

import json
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, cast

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from examples.django_shop import orders
from onefold.django import Idempotency

if TYPE_CHECKING:
    from collections.abc import Callable

idempotency = Idempotency()


ACCOUNTS: Final = {"token-of-ann": "ann", "token-of-bob": "bob"}
"""The accounts by token. A real shop has a table, with digests of the tokens."""


def account_id(request: HttpRequest) -> str | None:
    """Return the owner of the keys: an id, because tokens are secret and are renewed."""
    return ACCOUNTS.get(request.headers.get("Authorization", "").removeprefix("Bearer "))


def for_clients(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Reject unknown callers before the key is looked up."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if account_id(request) is None:
            problem = {"detail": "Authenticate with the header Authorization: Bearer token-of-ann"}
            return JsonResponse(problem, status=401)
        return view(request, *args, **kwargs)

    return wrapper


@csrf_exempt
@require_POST
@for_clients
@idempotency(principal=account_id, guarantee="exactly once")
def place(request: HttpRequest) -> HttpResponse:
    """`POST /api/orders`."""
    form = orders.OrderForm(_json(request))
    if not form.is_valid():
        return JsonResponse({"errors": form.errors}, status=422)
    order = orders.place(account_id(request) or "", form)
    return JsonResponse({"id": str(order.id)}, status=201)


def _json(request: HttpRequest) -> dict[str, Any]:
    try:
        found: Any = json.loads(request.body)
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
