"""Claims over HTTP: the backend of `once`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.client.connection import Connection, decode
from onefold.client.requests import ChangeReply, path, wire_body
from onefold.effects.claims import LEASE, ClaimBackend, ClaimOptions, want_with
from onefold.errors import (
    Busy,
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
)
from onefold.model.claim import (
    Claim,
    ClaimAnswer,
    ClaimReply,
    Mismatch,
    Renewed,
    Replay,
    Unknown,
    Wanted,
    Won,
    checked_claim,
    claim_key,
)

if TYPE_CHECKING:
    from onefold.effects.once import BusyPolicy
    from onefold.runtime import Procedure, Runtime

_WON: Final = 201


class RemoteAttemptOptions(ClaimOptions, total=False):
    """How `once` runs something over HTTP. `verify`, `not_done` and `issued_at` need a database."""

    wait: timedelta | None
    """How long to wait while another caller holds the key."""


class RemoteOnceOptions(RemoteAttemptOptions, total=False):
    """The same, and what happens while another caller holds the key."""

    busy: BusyPolicy
    """`raise` (the default), or `skip`: None instead of a claim."""


class HttpClaims(ClaimBackend):
    """Claims keys of a server. Every exception releases a key."""

    def __init__(self, connection: Connection, runtime: Runtime) -> None:
        self._connection = connection
        self.runtime = runtime

    def want(self, surface: str, scope: str, key: str, options: ClaimOptions) -> Wanted:
        """Check the options of a claim."""
        return want_with(claim_key("", surface, scope, key), options)

    def claim(self, wanted: Wanted) -> Procedure[ClaimAnswer]:
        """Take the key, or return why not."""
        key = wanted.key
        members = {
            "scope": key.scope,
            "key": key.key,
            "surface": key.surface,
            "fingerprint": wanted.fingerprint,
            "lease": _duration(wanted.lease),
            "takeover": wanted.takeover,
            "retention": _duration(wanted.keep),
        }
        try:
            response = yield from self._connection.post(path("claims"), wire_body(members))
        except Busy as busy:
            return busy
        except KeyReused:
            return Mismatch(key.key)
        except OutcomeUnknown as unknown:
            return Unknown(key.key, 0, unknown.since)
        reply = decode(response, ClaimReply)
        return Won(reply.claim) if response.status == _WON else Replay(reply.result, "")

    def settle(self, claim: Claim, result: str) -> Procedure[None]:
        """Store the result, which is JSON text; `LeaseLost` if another attempt holds the key."""
        body = {"result": msgspec.Raw(result.encode()), "fence": checked_claim(claim).fence}
        yield from self._connection.post(path("claims", claim.id, "settle"), body)

    def release(self, claim: Claim) -> Procedure[bool]:
        """Release the key unsettled; False if another attempt holds it."""
        body = {"fence": checked_claim(claim).fence}
        response = yield from self._connection.post(path("claims", claim.id, "release"), body)
        return decode(response, ChangeReply).released

    def renew(self, claim: Claim, lease: timedelta = LEASE) -> Procedure[datetime | None]:
        """Extend a lease; None if it has ended."""
        body = wire_body({"fence": checked_claim(claim).fence, "lease": lease})
        try:
            response = yield from self._connection.post(path("claims", claim.id, "heartbeat"), body)
        except LeaseLost:
            return None
        return decode(response, Renewed).lease_until


def _duration(micros: int | None) -> timedelta | None:
    return None if micros is None else timedelta(microseconds=micros)
