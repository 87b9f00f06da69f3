"""Claims over HTTP: `once` for every language. Take a key, settle it, give it back, renew it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from onefold.calls.claims import LEASE, SURFACE
from onefold.calls.procedure import Procedure, once_through
from onefold.errors import Busy, KeyReused, LeaseLost
from onefold.model.claim import (
    Answer as Claimed,
)
from onefold.model.claim import (
    Guarantee,
    Holding,
    Mismatch,
    Replay,
    Takeover,
    Unknown,
    Wanted,
    Won,
    claim_key,
    decode_result,
    want,
)
from onefold.model.moment import Iso
from onefold.operations import claims
from onefold.server.api.bounds import Fence, Seconds
from onefold.server.api.handles import attempt_of, claim_of, claimable, handle_of
from onefold.server.asking import Said
from onefold.server.problems import BUSY
from onefold.server.route import Route
from onefold.server.seconds import duration, optional_duration
from onefold.server.wire import Answer, Body, iso, iso_or_none
from onefold.surfaces.http.problem import KEY_REUSED, OUTCOME_UNKNOWN, Refused, make

if TYPE_CHECKING:
    from onefold.model.claim import Claim
    from onefold.operations.statement import Operation, Sql
    from onefold.server.asking import Asking

LEAST: Final = timedelta(milliseconds=1)


class ClaimBody(Body):
    """A key that somebody wants to work under."""

    scope: str
    """What the key is for: `import`, `mail`. Keys of two scopes never meet."""
    key: str
    surface: str = SURFACE
    """Where the attempt comes in; `once` unless you keep surfaces of your own."""
    fingerprint: str | None = None
    """Digest of the request: the same key with another one is refused."""
    lease: Seconds = LEASE.total_seconds()
    """How long the work may take before others may step in, unless a heartbeat says otherwise."""
    takeover: Takeover = "refuse"
    """What happens when the work vanishes: others `rerun` or `resume` it, or `refuse` to."""
    retention: Seconds | None = None
    """How long the outcome is remembered once it is settled; until told, by default."""


class ClaimWon(Answer):
    """The key is yours: do the work, then settle or release it."""

    outcome: Literal["won"]
    id: str
    """To settle, release and renew it by."""
    surface: str
    scope: str
    key: str
    fence: int
    """Grows with every attempt: give it to what you write to."""
    lease_until: Iso | None
    guarantee: Guarantee
    resumed: bool
    """True where an earlier attempt vanished, and what it has finished still counts."""


class ClaimReplay(Answer):
    """It was done before, and this is what it gave."""

    outcome: Literal["replay"]
    surface: str
    scope: str
    key: str
    result: Any


class SettleBody(Body):
    """The work is done."""

    result: Any = None
    """What later attempts with this key are given."""
    fence: Fence | None = None
    """Of the claim, if you like to say it again; also in the header Onefold-Fence."""


class ClaimFenceBody(Body):
    """Which attempt speaks."""

    fence: Fence | None = None


class RenewBody(Body):
    """Still at work."""

    lease: Seconds = LEASE.total_seconds()
    """From now."""
    fence: Fence | None = None


class Settled(Answer):
    """The outcome is stored, and is given to every later attempt."""

    settled: bool = True


class Released(Answer):
    """Whether it was still yours to give back."""

    released: bool


class Renewed(Answer):
    """Until when it is yours."""

    lease_until: Iso


async def claim(asking: Asking) -> Said:
    """Take a key, or hear who has it."""
    body: ClaimBody = asking.body
    key = claim_key(asking.tenant, claimable(body.surface), body.scope, body.key)
    wanted = want(
        key,
        fingerprint=body.fingerprint,
        lease=duration(body.lease, "lease", least=LEAST),
        takeover=body.takeover,
        retention=optional_duration(body.retention, "retention"),
    )
    wanted = msgspec.structs.replace(wanted, id=attempt_of(asking))
    answer = await asking.server.conductor.arun(
        _claim(wanted, may_be_resent=asking.key is not None)
    )
    if isinstance(answer, Won):
        return Said(201, _won(answer.claim))
    asking.server.conductor.suppressing.note(key, asking.request_id)
    if isinstance(answer, Replay):
        told = ClaimReplay(
            outcome="replay",
            surface=key.surface,
            scope=key.scope,
            key=key.key,
            result=answer.result,
        )
        return Said(200, told)
    raise refusal(answer)


def _claim(wanted: Wanted, *, may_be_resent: bool) -> Procedure[Claimed]:
    def build(sql: Sql) -> Operation[Claimed]:
        if may_be_resent:
            found = yield from claims.find(sql, wanted.key)
            if found is not None and (found.owner, found.state) == (wanted.id, Holding.SETTLED):
                # Done since, by this very attempt: it must not be told to begin.
                return Replay(decode_result(found.result), found.id)
        return (yield from claims.claim(sql, wanted))

    return once_through(build)


def _won(held: Claim) -> ClaimWon:
    key = held.key
    return ClaimWon(
        outcome="won",
        id=handle_of(held),
        surface=key.surface,
        scope=key.scope,
        key=key.key,
        fence=held.fence,
        lease_until=iso_or_none(held.lease_until),
        guarantee=held.guarantee,
        resumed=held.resumed,
    )


def refusal(answer: Busy | Mismatch | Unknown) -> Refused:
    """Why the work must not begin now."""
    told: dict[str, Any] = {"key": answer.key}
    if isinstance(answer, Busy):
        told["outcome"] = "busy"
        return Refused(make(BUSY, str(answer), retry_after=answer.retry_after, extra=told))
    if isinstance(answer, Mismatch):
        told["outcome"] = "mismatch"
        return Refused(make(KEY_REUSED, str(KeyReused(key=answer.key)), extra=told))
    told |= {"outcome": "unknown", "since": iso_or_none(answer.since)}
    detail = (
        f"The attempt at {answer.key!r} ended without a known outcome, so its effect may or may not"
        " have happened. Find out, then settle or release the key:"
        " POST /v1/keys/{surface}/{key}/settle."
    )
    return Refused(make(OUTCOME_UNKNOWN, detail, extra=told))


async def settle(asking: Asking) -> Said:
    """Store the outcome, under the fence."""
    body: SettleBody = asking.body
    await asking.calls.asettle(claim_of(asking, body.fence), body.result)
    return Said(200, Settled())


async def release(asking: Asking) -> Said:
    """Give the key back unsettled: the next attempt runs."""
    body: ClaimFenceBody = asking.body
    released = await asking.calls.arelease(claim_of(asking, body.fence))
    return Said(200, Released(released=released))


async def renew(asking: Asking) -> Said:
    """Extend the lease."""
    body: RenewBody = asking.body
    held = claim_of(asking, body.fence)
    until = await asking.calls.arenew(held, lease=duration(body.lease, "lease", least=LEAST))
    if until is None:
        raise LeaseLost(f"the key {held.key.key!r}", fence=held.fence)
    return Said(200, Renewed(lease_until=iso(until)))


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/claims",
        name="claim",
        summary="Take a key",
        description=(
            "201: the key is yours. 200: it was done before, and `result` is what it gave. 409"
            " `busy`: somebody is at work; ask again after Retry-After. 422 `key_reused`: it is"
            " known with another fingerprint. 409 `outcome_unknown`: an attempt has vanished, and"
            " its takeover is `refuse`. `outcome` says which: won, replay, busy, mismatch, unknown."
        ),
        scope="work",
        endpoint=claim,
        body=ClaimBody,
        answers={201: ClaimWon, 200: ClaimReplay},
        problems=(409, 422),
    ),
    Route(
        method="POST",
        path="/v1/claims/{id}/settle",
        name="settleClaim",
        summary="Store the outcome of a claim",
        description="409 `lease_lost`: the key is somebody else's by now, and nothing was stored.",
        scope="work",
        endpoint=settle,
        body=SettleBody,
        body_optional=True,
        answers={200: Settled},
        problems=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/claims/{id}/release",
        name="releaseClaim",
        summary="Give a claim back unsettled",
        description=(
            "The key is free, and the next caller wins it. `released` is false where it was no"
            " longer yours."
        ),
        scope="work",
        endpoint=release,
        body=ClaimFenceBody,
        body_optional=True,
        answers={200: Released},
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/claims/{id}/heartbeat",
        name="renewClaim",
        summary="Extend the lease of a claim",
        description="409 `lease_lost`: it has ended. Stop working.",
        scope="work",
        endpoint=renew,
        body=RenewBody,
        body_optional=True,
        answers={200: Renewed},
        problems=(404, 409),
    ),
)
