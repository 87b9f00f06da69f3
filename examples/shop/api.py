"""The public API: a key in a header, one caller's own. What comes twice is a retry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel, Field

from examples.shop import orders
from onefold.surfaces.fastapi import Once  # noqa: TC001 - FastAPI reads it

if TYPE_CHECKING:
    from examples.shop.shop import Shop


class NewOrder(BaseModel):
    """What is asked for."""

    product: str = Field(min_length=1)
    quantity: int = Field(gt=0, le=100)


class Placed(BaseModel):
    """What is answered."""

    id: str


def client(authorization: Annotated[str | None, Header()] = None) -> str:
    """Who calls. A real shop would look the token up."""
    if authorization is None or not authorization.startswith("Bearer "):
        raise HTTPException(401, "Say who you are: Authorization: Bearer …")
    return authorization.removeprefix("Bearer ")


def add_api(app: FastAPI, shop: Shop) -> None:
    """`POST /api/orders`."""

    @app.post("/api/orders", status_code=201)
    @shop.idempotency(principal=client, guarantee="exactly once")
    async def place(new: NewOrder, once: Once, who: Annotated[str, Depends(client)]) -> Placed:
        order_id = await orders.place(once.connection, who, new.product, new.quantity)
        await shop.mail.within(once.connection).aenqueue(order_id, "Thank you for your order")
        return Placed(id=order_id)
