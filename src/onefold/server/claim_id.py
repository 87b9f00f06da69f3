"""Handles: the ids of claims over HTTP.

A handle contains the address and the proof of a claim: surface, scope, key, owner and fence. The
tenant comes from the caller, so a handle never reaches another tenant's claim.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from onefold.effects.claims import open_surface
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.claim import Claim, claim_key
from onefold.model.ids import length_prefixed, new_id, parse_id
from onefold.server.problems import NOT_FOUND
from onefold.server.routes.deliveries import fence_of
from onefold.web.problems import Refused, make

if TYPE_CHECKING:
    from onefold.server.request_context import RequestContext

ANSWERING: Final = frozenset({"form", "http", "webhook"})
"""Surfaces whose rows hold HTTP responses, also those of this server. A claim there could read or
replace the responses of other requests.
"""
LARGEST: Final = 2**63 - 1
LONGEST: Final = 4_096


class _Handle(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    surface: str
    scope: str
    key: str
    owner: str
    fence: int


# Not JSON, which needs six bytes for some characters: a long key must fit into a URL.
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Handle).decode


def claimable(surface: str) -> str:
    """Check that a surface may be claimed over HTTP."""
    if open_surface(surface) in ANSWERING:
        raise InvalidInput(
            "surface", f"{surface!r} is kept by those who answer HTTP requests; take another"
        )
    return surface


def handle_of(claim: Claim) -> str:
    """The id of a won claim."""
    key = claim.key
    told = _encode(_Handle(key.surface, key.scope, key.key, claim.owner, claim.fence))
    return base64.urlsafe_b64encode(told).rstrip(b"=").decode()


def claim_of(asking: RequestContext, fence: int | None, *, of_locks: bool = False) -> Claim:
    """The claim that the path names; 404 if it is not a handle, or a handle of another kind."""
    try:
        handle = _read(asking.path["id"])
        surface = _lock(handle.surface) if of_locks else claimable(handle.surface)
        key = claim_key(asking.tenant, surface, handle.scope, handle.key)
        owner = parse_id(handle.owner)
    except InvalidInput:
        word = "lock" if of_locks else "claim"
        raise Refused(
            make(NOT_FOUND, f"There is no {word} with this id. Send the id that you were given.")
        ) from None
    said = fence_of(asking, fence)
    if said is not None and said != handle.fence:
        raise ConflictingOptions("fence", "is another than that of the claim with this id")
    return Claim(key, owner, owner, handle.fence, None, "at least once")


def _read(text: str) -> _Handle:
    if len(text) > LONGEST or not text.isascii():
        raise InvalidInput("id", "is not a valid id")
    try:
        told = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        handle = _decode(told)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise InvalidInput("id", "is not a valid id") from None
    if not 0 <= handle.fence <= LARGEST:
        raise InvalidInput("id", "is not a valid id")
    return handle


def _lock(surface: str) -> str:
    if surface != "lock":
        raise InvalidInput("id", "is of something else")
    return surface


def attempt_of(asking: RequestContext) -> str:
    """The id of the attempt. It is the same for all requests with one Idempotency-Key."""
    if asking.key is None:
        return new_id()
    parts = length_prefixed("attempt", asking.tenant, asking.key)
    return str(UUID(bytes=blake2b(parts, digest_size=16).digest(), version=5))
