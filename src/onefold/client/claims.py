"""Claims, locks and steps over HTTP."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec

from onefold.client.connection import Connection, decode
from onefold.client.remote_values import ChangeReply
from onefold.client.requests import json_value, path, wire_body
from onefold.effects.claims import LEASE, ClaimOptions
from onefold.effects.step_codec import encoded
from onefold.errors import Busy, InvalidInput, KeyReused, LeaseLost, OnefoldError, OutcomeUnknown
from onefold.model import checks
from onefold.model.checks import REASON_BYTES
from onefold.model.claim import (
    Claim,
    ClaimAnswer,
    ClaimReply,
    Mismatch,
    Renewed,
    Replay,
    Unknown,
    Won,
    checked_claim,
)
from onefold.model.failure import printable
from onefold.model.json_text import decode_payload
from onefold.model.step import StepReply
from onefold.model.timestamps import span
from onefold.runtime import Pause

if TYPE_CHECKING:
    from onefold.runtime import Procedure

LONGEST_WAIT: Final = 20.0
"""Seconds that the server waits for a lock. The client repeats the request for a longer wait."""
LONGEST_PAUSE: Final = 0.25
_WON: Final = 201


class HttpClaims:
    """Claims of a server."""

    def __init__(self, connection: Connection) -> None:
        """`connection` is that of a client."""
        self._connection = connection

    def claim(
        self, scope: str, key: str, surface: str, options: ClaimOptions
    ) -> Procedure[ClaimAnswer]:
        """Take a key."""
        checks.options(options, ClaimOptions.__optional_keys__)
        body = wire_body({"scope": scope, "key": key, "surface": surface, **options})
        try:
            response = yield from self._connection.post(path("claims"), body)
        except Busy as busy:
            return busy
        except KeyReused:
            return Mismatch(key)
        except OutcomeUnknown as unknown:
            return Unknown(key, 0, unknown.since)
        reply = decode(response, ClaimReply)
        return Won(reply.claim) if response.status == _WON else Replay(reply.result, "")

    def settle(self, claim: Claim, result: Any) -> Procedure[None]:
        """Store the result; `LeaseLost` if another attempt holds the key."""
        body = {"result": json_value(result, "result"), "fence": checked_claim(claim).fence}
        yield from self._connection.post(path("claims", claim.id, "settle"), body)

    def release(self, claim: Claim) -> Procedure[bool]:
        """Release a key unsettled; False if another attempt holds it."""
        return (yield from self._release("claims", claim))

    def renew(self, claim: Claim, lease: timedelta = LEASE) -> Procedure[datetime | None]:
        """Extend a lease; None if it has ended."""
        body = wire_body({"fence": checked_claim(claim).fence, "lease": lease})
        try:
            response = yield from self._connection.post(path("claims", claim.id, "heartbeat"), body)
        except LeaseLost:
            return None
        return decode(response, Renewed).lease_until

    def lock(self, name: str, ttl: timedelta, wait: timedelta | None) -> Procedure[Claim]:
        """Take a lock; `Busy` after `wait`."""
        span(ttl, "ttl", least=timedelta(milliseconds=1))
        until = time.monotonic() + (0.0 if wait is None else span(wait, "wait") / 1_000_000)
        while True:
            left = max(until - time.monotonic(), 0.0)
            body = wire_body({"name": name, "ttl": ttl, "wait": min(left, LONGEST_WAIT)})
            try:
                response = yield from self._connection.post(path("locks"), body)
            except Busy as busy:
                if time.monotonic() >= until:
                    raise
                yield Pause(min(busy.retry_after.total_seconds(), LONGEST_PAUSE))
            else:
                return decode(response, ClaimReply).claim

    def renew_lock(self, claim: Claim, ttl: timedelta) -> Procedure[None]:
        """Extend a lock; `LeaseLost` if it has ended."""
        body = wire_body({"fence": claim.fence, "ttl": ttl})
        yield from self._connection.post(path("locks", claim.id, "heartbeat"), body)

    def release_lock(self, claim: Claim) -> Procedure[bool]:
        """Release a lock; False if another holder has it."""
        return (yield from self._release("locks", claim))

    def _release(self, kind: str, claim: Claim) -> Procedure[bool]:
        body = {"fence": checked_claim(claim).fence}
        response = yield from self._connection.post(path(kind, claim.id, "release"), body)
        return decode(response, ChangeReply).released


class HttpStep(msgspec.Struct, frozen=True, kw_only=True):
    """One try of one step of a delivery."""

    job_id: str
    fence: int
    name: str
    key: str | None = None
    occurrence: int = 1
    fingerprint: str | None = None
    attempt: str = msgspec.field(default_factory=lambda: str(uuid4()))
    """A repeated begin, whose response was lost, is recognised by it."""


class HttpSteps:
    """Steps of jobs of a server."""

    def __init__(self, connection: Connection) -> None:
        """`connection` is that of a client."""
        self._connection = connection

    def begin(
        self, step: HttpStep, *, unsafe: bool, verified: bool = False
    ) -> Procedure[StepReply]:
        """Begin a step, or read its result. `verified` begins one whose outcome was unknown."""
        response = yield from self._put(
            step, "begin", unsafe=unsafe or None, verified=verified or None
        )
        return decode(response, StepReply)

    def finish(self, step: HttpStep, result: Any, *, unsafe: bool) -> Procedure[Any]:
        """Store the result of a step; returns it as a rerun receives it."""
        try:
            text = encoded(result)
        except InvalidInput as error:
            error.add_note(f"The step {step.name!r} was done, but its result is not stored.")
            yield from self.fail(step, error, unknown=unsafe)
            raise
        yield from self._put(
            step, "finish", result=None if text == "null" else msgspec.Raw(text.encode())
        )
        return decode_payload(text)

    def fail(self, step: HttpStep, error: Exception, *, unknown: bool) -> Procedure[None]:
        """Store that a step failed. The caller raises `error`, also if this fails."""
        failure = {"type": type(error).__qualname__, "message": printable(str(error), REASON_BYTES)}
        try:
            yield from self._put(step, "fail", error=failure, unknown=unknown)
        except OnefoldError as not_stored:
            error.add_note(f"The step {step.name!r} could not be released: {not_stored}")

    def _put(self, step: HttpStep, action: str, **members: Any) -> Procedure[Any]:
        body = {
            "action": action,
            "fence": step.fence,
            "key": step.key,
            "occurrence": step.occurrence if step.key is None else None,
            "attempt": step.attempt,
            "fingerprint": step.fingerprint,
            **members,
        }
        place = path("jobs", step.job_id, "steps", step.name)
        return (yield from self._connection.put(place, wire_body(body)))
