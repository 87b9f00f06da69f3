"""The public API: the key is in a header and belongs to one account. A repeated key is a retry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel, Field

from examples.shop import orders
from onefold.web.fastapi import Once  # noqa: TC001 - FastAPI reads it

if TYPE_CHECKING:
    from examples.shop.shop import Shop


class NewOrder(BaseModel):
    """The body of a request."""

    product: str = Field(min_length=1)
    quantity: int = Field(gt=0, le=100)


class Placed(BaseModel):
    """The body of a response."""

    id: str


ACCOUNTS: Final = {"token-of-ann": "ann", "token-of-bob": "bob"}
"""The accounts by token. A real shop has a table, with digests of the tokens."""


def account_id(authorization: Annotated[str, Header()] = "") -> str:
    """Return the owner of the keys: an id, because tokens are secret and are renewed."""
    found = ACCOUNTS.get(authorization.removeprefix("Bearer "))
    if found is None:
        raise HTTPException(401, "Authenticate with the header Authorization: Bearer token-of-ann")
    return found


def add_api(app: FastAPI, shop: Shop) -> None:
    """`POST /api/orders`."""

    @app.post("/api/orders", status_code=201)
    @shop.idempotency(principal=account_id, guarantee="exactly once")
    async def place(new: NewOrder, once: Once, who: Annotated[str, Depends(account_id)]) -> Placed:
        order_id = await orders.place(once.connection, who, new.product, new.quantity)
        await shop.mail.within(once.connection).aenqueue(order_id, "Thank you for your order")
        return Placed(id=order_id)
