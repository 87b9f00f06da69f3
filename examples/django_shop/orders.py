"""Orders, handled in the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django import forms
from django.db import connection

from examples.django_shop.jobs import mail
from examples.django_shop.models import Mail, Order

if TYPE_CHECKING:
    from uuid import UUID


class OrderForm(forms.Form):
    """The fields of an order, in the form and in the API."""

    product = forms.CharField(max_length=200, initial="tea")
    quantity = forms.IntegerField(min_value=1, max_value=100, initial=1)


def place(customer: str, form: OrderForm) -> Order:
    """Store an order and enqueue its mail: both or neither."""
    order = Order.objects.create(customer=customer, **form.cleaned_data)
    mail.within(connection).enqueue(str(order.id), "Thank you for your order")
    return order


def mark_paid(order_id: str) -> None:
    """Mark an order as paid."""
    Order.objects.filter(id=order_id).update(state="paid")
    mail.within(connection).enqueue(order_id, "We have your payment")


def get(order_id: UUID) -> dict[str, object] | None:
    """Return an order and its mails, without the customer, which is a secret here."""
    shown = ("id", "product", "quantity", "state")
    found = Order.objects.filter(id=order_id).values(*shown).first()
    if found is None:
        return None
    mails = Mail.objects.filter(order_id=order_id)
    return {**found, "mails": [one.subject for one in mails]}
