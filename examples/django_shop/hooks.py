"""The webhook: the signature proves the sender, and the id identifies repeated deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import connection

from examples.django_shop import orders
from onefold.surfaces.django import get_onefold
from onefold.surfaces.webhooks import StandardWebhooks, Webhook
from onefold.surfaces.webhooks.django import receives

if TYPE_CHECKING:
    from django.http import HttpRequest

    from onefold.surfaces.webhooks import Received

payments = Webhook(
    get_onefold(),
    StandardWebhooks(settings.WEBHOOK_SECRET),
    name="payments",
    transaction=connection,
)


@receives(payments)
def paid(event: Received, request: HttpRequest) -> None:
    """`POST /hooks/payments`: `{"order": "…"}` marks an order as paid."""
    del request
    orders.mark_paid(event.json()["order"])
