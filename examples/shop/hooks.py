"""The webhook: the signature proves the sender, and the id identifies repeated deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.shop import orders
from onefold.web.fastapi import receives
from onefold.web.webhooks import Received, StandardWebhooks, Webhook

if TYPE_CHECKING:
    from fastapi import FastAPI

    from examples.shop.shop import Shop


def add_hooks(app: FastAPI, shop: Shop) -> None:
    """`POST /hooks/payments`: `{"order": "…"}` marks an order as paid."""
    payments = Webhook(
        shop.onefold,
        StandardWebhooks(shop.settings.webhook_secret),
        name="payments",
        transaction=shop.engine,
    )

    @app.post("/hooks/payments")
    @receives(payments)
    async def paid(event: Received) -> None:
        order_id = event.json()["order"]
        await orders.mark_paid(event.connection, order_id)
        await shop.mail.within(event.connection).aenqueue(order_id, "We have your payment")
