"""Orders, and the mails about them."""

from __future__ import annotations

from uuid import UUID, uuid4

from django.db import models


class Order(models.Model):
    """An order of a customer."""

    id: models.UUIDField[UUID, UUID] = models.UUIDField(
        primary_key=True, default=uuid4, editable=False
    )
    customer: models.CharField[str, str] = models.CharField(max_length=200)
    product: models.CharField[str, str] = models.CharField(max_length=200)
    quantity: models.PositiveIntegerField[int, int] = models.PositiveIntegerField()
    state: models.CharField[str, str] = models.CharField(max_length=20, default="placed")

    def __str__(self) -> str:
        return f"{self.quantity} of {self.product}"


class Mail(models.Model):
    """Replaces a mail server: mails in this table count as sent."""

    order: models.ForeignKey[Order, Order] = models.ForeignKey(
        Order, on_delete=models.CASCADE, related_name="mails"
    )
    subject: models.CharField[str, str] = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.subject
