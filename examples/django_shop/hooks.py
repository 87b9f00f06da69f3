"""The webhook: the signature proves the sender, and the id identifies repeated deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import connection

from examples.django_shop import orders
from onefold.django import get_onefold
from onefold.django.webhooks import receives
from onefold.web.webhooks import StandardWebhooks, Webhook

if TYPE_CHECKING:
    from django.http import HttpRequest

    from onefold.web.webhooks import Received

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
