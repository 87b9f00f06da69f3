"""The form: the key is in a hidden field, for one session. A repeated key is a double click."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from examples.django_shop import orders
from examples.django_shop.api import idempotency
from onefold.django import form_keys, session_of
from onefold.web.forms import Form

if TYPE_CHECKING:
    from uuid import UUID


@require_http_methods(["GET", "HEAD", "POST"])
@idempotency(form=Form(form_keys(), "order"), principal=session_of)
def order(request: HttpRequest) -> HttpResponse:
    """`GET` and `POST /orders`: only the latter has a key."""
    form = orders.OrderForm(request.POST if request.method == "POST" else None)
    if not form.is_valid():
        status = 422 if form.is_bound else 200
        return render(request, "order.html", {"form": form}, status=status)
    placed = orders.place(session_of(request), form)
    answer = redirect(f"/orders/{placed.id}")
    answer.status_code = 303
    return answer


@require_GET
def show(request: HttpRequest, order_id: UUID) -> HttpResponse:
    """`GET /orders/<id>`."""
    del request
    found = orders.get(order_id)
    if found is None:
        return JsonResponse({"detail": "There is no such order."}, status=404)
    return JsonResponse(found)
