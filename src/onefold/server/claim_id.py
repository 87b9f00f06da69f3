"""Handles: the ids of claims over HTTP.

A handle contains the address and the proof of a claim: surface, scope, key, owner and fence. The
tenant comes from the caller, so a handle never reaches another tenant's claim.
"""

from __future__ import annotations

import base64
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import msgspec

from onefold.effects.claims import open_surface
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.claim import Claim, claim_key
from onefold.model.ids import length_prefixed, new_id, parse_id
from onefold.server.problems import NOT_FOUND, refused

if TYPE_CHECKING:
    from onefold.server.request_context import RequestContext

ANSWERING: Final = frozenset({"form", "http", "webhook"})
"""Surfaces whose rows hold HTTP responses, also those of this server. A claim there could read or
replace the responses of other requests.
"""
LONGEST: Final = 4_096


class _Handle(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    surface: str
    scope: str
    key: str
    owner: str
    fence: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


# Not JSON, which needs six bytes for some characters: a long key must fit into a URL.
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Handle).decode


def claimable(surface: str) -> str:
    """Check that a surface may be claimed over HTTP."""
    if open_surface(surface) in ANSWERING:
        raise InvalidInput("surface", f"{surface!r} is for HTTP responses; choose another surface")
    return surface


def handle_of(claim: Claim) -> str:
    """The id of a won claim."""
    key = claim.key
    packed = _encode(_Handle(key.surface, key.scope, key.key, claim.owner, claim.fence))
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def claim_of(request: RequestContext, fence: int | None, *, of_locks: bool = False) -> Claim:
    """The claim that the path names; 404 if it is not a handle, or a handle of another kind."""
    try:
        handle = _read(request.path["id"], of_locks=of_locks)
        surface = handle.surface if of_locks else claimable(handle.surface)
        key = claim_key(request.tenant, surface, handle.scope, handle.key)
        owner = parse_id(handle.owner)
    except (InvalidInput, ValueError, msgspec.MsgspecError):
        kind = "lock" if of_locks else "claim"
        detail = f"There is no {kind} with this id. Send the id from the response to the {kind}."
        raise refused(NOT_FOUND, detail) from None
    given = request.fence(fence)
    if given is not None and given != handle.fence:
        raise ConflictingOptions("fence", "differs from the fence of the claim with this id")
    return Claim(key, owner, owner, handle.fence, None, "at least once")


def _read(text: str, *, of_locks: bool) -> _Handle:
    """The handle; raises an error of the decoders, or `ValueError`."""
    if len(text) > LONGEST:
        raise ValueError(text)
    packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    handle = _decode(packed)
    if of_locks and handle.surface != "lock":
        raise ValueError(handle.surface)
    return handle


def attempt_of(request: RequestContext) -> str:
    """The id of the attempt. It is the same for all requests with one Idempotency-Key."""
    if request.key is None:
        return new_id()
    parts = length_prefixed("attempt", request.tenant, request.key)
    return str(UUID(bytes=blake2b(parts, digest_size=16).digest(), version=5))
