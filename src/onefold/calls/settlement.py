"""Settling a claim, as `settle` and the end of a `once` both do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.calls.procedure import Gather
from onefold.databases.batching import Item
from onefold.operations import claims

if TYPE_CHECKING:
    from onefold.model.claim import Claim


def settle(claim: Claim, result: str | None) -> Gather[None]:
    """In one commit with what others settle now."""
    return Gather(Item(claims.settle, claims.Settlement(claim, result), "settle", claim.key))
