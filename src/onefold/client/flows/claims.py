"""Keys over HTTP: claim, settle, release, renew; and locks, which are leases on names."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.calls.claims import LEASE, ClaimOptions
from onefold.client import wire
from onefold.client.flow import Pause, place, post
from onefold.errors import Busy, InvalidInput, KeyReused, LeaseLost, OutcomeUnknown
from onefold.model import checks
from onefold.model.claim import (
    Claim,
    ClaimAnswer,
    ClaimKey,
    Guarantee,
    Mismatch,
    Replay,
    Unknown,
    Won,
    checked_claim,
)
from onefold.model.json_text import encode_payload
from onefold.model.timestamps import span

if TYPE_CHECKING:
    from onefold.client.flow import Ask, Flow

MOMENT: Final = timedelta(milliseconds=1)
LONGEST_WAIT: Final = 20.0
"""Seconds that the server waits for a lock; who wants to wait longer asks again."""
_WON: Final = 201


class ToldWon(wire.Said, frozen=True, kw_only=True):
    """The key is ours."""

    id: str
    fence: int
    surface: str = "lock"
    scope: str = ""
    key: str = ""
    name: str = ""
    lease_until: datetime | None = None
    guarantee: Guarantee = "at least once"
    resumed: bool = False

    def claim(self) -> Claim:
        """As an in-process claim; the server knows it by its id, which stands for the owner too."""
        return Claim(
            key=ClaimKey("", self.surface, self.scope, self.key or self.name),
            id=self.id,
            owner=self.id,
            fence=self.fence,
            lease_until=self.lease_until,
            guarantee=self.guarantee,
            resumed=self.resumed,
        )


class ToldReplay(wire.Said, frozen=True, kw_only=True):
    """It was done before."""

    result: Any = None


class ToldReleased(wire.Said, frozen=True, kw_only=True):
    """Whether it was ours to give back."""

    released: bool = False


class ToldRenewed(wire.Said, frozen=True, kw_only=True):
    """Until when it is ours."""

    lease_until: datetime


def claim(ask: Ask, scope: str, key: str, surface: str, options: ClaimOptions) -> Flow[ClaimAnswer]:
    """Take a key."""
    checks.options(options, ClaimOptions.__optional_keys__)
    body = wire.said(
        {
            "scope": checks.text(scope, "scope"),
            "key": checks.key(key, "key"),
            "surface": checks.name(surface, "surface"),
            "fingerprint": options.get("fingerprint"),
            "lease": wire.seconds(options.get("lease"), "lease"),
            "takeover": options.get("takeover"),
            "retention": wire.seconds(options.get("retention"), "retention"),
        }
    )
    try:
        reply = yield from ask(post(place("claims"), body))
    except Busy as busy:
        return busy
    except KeyReused:
        return Mismatch(key)
    except OutcomeUnknown as unknown:
        return Unknown(key, 0, unknown.since)
    if reply.status == _WON:
        return Won(wire.read(reply, ToldWon).claim())
    return Replay(wire.read(reply, ToldReplay).result, "")


def settle(ask: Ask, claim: Claim, result: Any) -> Flow[None]:
    """Store the outcome."""
    try:
        text = encode_payload(result)
    except InvalidInput as error:
        raise InvalidInput("result", error.reason) from error
    body = {"result": msgspec.Raw(text.encode()), "fence": checked_claim(claim).fence}
    yield from ask(post(place("claims", claim.id, "settle"), body))


def release(ask: Ask, claim: Claim, *, of: str = "claims") -> Flow[bool]:
    """Give it back."""
    body = {"fence": checked_claim(claim).fence}
    reply = yield from ask(post(place(of, claim.id, "release"), body))
    return wire.read(reply, ToldReleased).released


def renew(ask: Ask, claim: Claim, lease: timedelta = LEASE) -> Flow[datetime | None]:
    """Extend its lease; None where it has ended."""
    body = {"fence": checked_claim(claim).fence, "lease": wire.seconds(lease, "lease")}
    try:
        reply = yield from ask(post(place("claims", claim.id, "heartbeat"), body))
    except LeaseLost:
        return None
    return wire.read(reply, ToldRenewed).lease_until


def lock(ask: Ask, name: str, ttl: timedelta, wait: timedelta | None) -> Flow[Claim]:
    """Take a lock, waiting for as long as is said; raises `Busy`."""
    span(ttl, "ttl", least=MOMENT)
    patience = 0.0 if wait is None else span(wait, "wait") / 1_000_000
    until = time.monotonic() + patience
    while True:
        left = max(until - time.monotonic(), 0.0)
        body = {
            "name": checks.text(name, "name", longest=checks.REASON_BYTES),
            "ttl": ttl.total_seconds(),
            "wait": min(left, LONGEST_WAIT),
        }
        try:
            reply = yield from ask(post(place("locks"), body))
        except Busy as busy:
            if time.monotonic() >= until:
                raise
            yield Pause(min(busy.retry_after.total_seconds(), 0.25))
        else:
            return wire.read(reply, ToldWon).claim()


def renew_lock(ask: Ask, held: Claim, ttl: timedelta) -> Flow[None]:
    """Extend a lock; raises `LeaseLost` where it has ended."""
    body = {"fence": held.fence, "ttl": ttl.total_seconds()}
    yield from ask(post(place("locks", held.id, "heartbeat"), body))
