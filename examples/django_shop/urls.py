"""The routes."""

from __future__ import annotations

from django.urls import path

from examples.django_shop import api, hooks, pages

urlpatterns = [
    path("api/orders", api.place),
    path("orders", pages.order),
    path("orders/<uuid:order_id>", pages.show),
    path("hooks/payments", hooks.paid),
]
