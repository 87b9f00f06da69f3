"""The public API: a key in a header, one caller's own. What comes twice is a retry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

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


ACCOUNTS: Final = {"token-of-ann": "ann", "token-of-bob": "bob"}
"""Whose token it is. A real shop has a table of them, with digests of the tokens."""


def account_id(authorization: Annotated[str, Header()] = "") -> str:
    """Whose keys they are: an id, since tokens are secret, and are renewed between tries."""
    found = ACCOUNTS.get(authorization.removeprefix("Bearer "))
    if found is None:
        raise HTTPException(401, "Say who you are: Authorization: Bearer token-of-ann")
    return found


def add_api(app: FastAPI, shop: Shop) -> None:
    """`POST /api/orders`."""

    @app.post("/api/orders", status_code=201)
    @shop.idempotency(principal=account_id, guarantee="exactly once")
    async def place(new: NewOrder, once: Once, who: Annotated[str, Depends(account_id)]) -> Placed:
        order_id = await orders.place(once.connection, who, new.product, new.quantity)
        await shop.mail.within(once.connection).aenqueue(order_id, "Thank you for your order")
        return Placed(id=order_id)
