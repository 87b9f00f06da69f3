"""Two tables, orders and mails, and functions that use the caller's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from sqlalchemy import Column, Integer, MetaData, String, Table, insert, select, update

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

tables: Final = MetaData()

order: Final = Table(
    "shop_order",
    tables,
    Column("id", String, primary_key=True),
    Column("customer", String, nullable=False),
    Column("product", String, nullable=False),
    Column("quantity", Integer, nullable=False),
    Column("state", String, nullable=False, server_default="placed"),
)
mail: Final = Table(
    "shop_mail",
    tables,
    Column("number", Integer, primary_key=True),
    Column("order_id", String, nullable=False),
    Column("subject", String, nullable=False),
)


async def place(connection: AsyncConnection, customer: str, product: str, quantity: int) -> str:
    """Store an order and return its id."""
    order_id = str(uuid4())
    await connection.execute(
        insert(order).values(id=order_id, customer=customer, product=product, quantity=quantity)
    )
    return order_id


async def mark_paid(connection: AsyncConnection, order_id: str) -> None:
    """Mark an order as paid."""
    await connection.execute(update(order).where(order.c.id == order_id).values(state="paid"))


async def send_mail(connection: AsyncConnection, order_id: str, subject: str) -> None:
    """Replaces a mail server: mails in this table count as sent."""
    await connection.execute(insert(mail).values(order_id=order_id, subject=subject))


async def get(connection: AsyncConnection, order_id: str) -> dict[str, object] | None:
    """Return an order and its mails, without the customer, which is a secret here."""
    shown = select(order.c.id, order.c.product, order.c.quantity, order.c.state)
    found = (await connection.execute(shown.where(order.c.id == order_id))).mappings()
    row = found.one_or_none()
    if row is None:
        return None
    mails = await connection.execute(select(mail.c.subject).where(mail.c.order_id == order_id))
    return {**row, "mails": [subject for (subject,) in mails]}
