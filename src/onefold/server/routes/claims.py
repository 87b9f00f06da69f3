"""Claims over HTTP (take, settle, release and renew a key), and locks with a fencing token."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from onefold.databases import Transact
from onefold.effects.claims import LEASE, SURFACE
from onefold.effects.lock import lock_key
from onefold.errors import Busy, KeyReused, LeaseLost
from onefold.model.claim import (
    Claim,
    ClaimReply,
    Holding,
    Mismatch,
    Renewed,
    Replay,
    Takeover,
    Unknown,
    Wanted,
    Won,
    claim_key,
    decode_result,
    want,
)
from onefold.model.claim import ClaimAnswer as Claimed
from onefold.model.timestamps import Duration, as_duration, span
from onefold.model.wire import Answer, Body, Fence
from onefold.operations import claims
from onefold.runtime import Pause, Procedure, waits
from onefold.server.claim_id import attempt_of, claim_of, claimable, handle_of
from onefold.server.problems import BUSY
from onefold.server.request_context import Reply, Route
from onefold.web.problems import KEY_REUSED, OUTCOME_UNKNOWN, Refused, make

if TYPE_CHECKING:
    from onefold.databases import Build
    from onefold.operations.statement import Operation, Sql
    from onefold.server.request_context import RequestContext


LEAST: Final = timedelta(milliseconds=1)


class ClaimBody(Body):
    """A key to claim."""

    scope: str
    """What the key is for: `import`, `mail`. The same key in two scopes is two keys."""
    key: str
    surface: str = SURFACE
    """The surface of the key; `once` unless you have your own surfaces."""
    fingerprint: str | None = None
    """Digest of the request: the same key with another digest is rejected."""
    lease: Duration = msgspec.field(default_factory=lambda: as_duration(LEASE))
    """How long the work may take before others take over, unless a heartbeat extends it."""
    takeover: Takeover = "refuse"
    """What happens when the worker vanishes: others `rerun`, `resume` or `refuse` the work."""
    retention: Duration | None = None
    """How long the result is kept after the settle; by default for good."""


class SettleBody(Body):
    """The work is done."""

    result: Any = None
    """What later attempts with this key receive."""
    fence: Fence | None = None
    """The fence of the claim, optional; also in the header Onefold-Fence."""


class ClaimFenceBody(Body):
    """The fence of the attempt."""

    fence: Fence | None = None


class RenewBody(Body):
    """The work goes on."""

    lease: Duration = msgspec.field(default_factory=lambda: as_duration(LEASE))
    """From now."""
    fence: Fence | None = None


class Settled(Answer):
    """The result is stored, and every later attempt receives it."""

    settled: bool = True


class Released(Answer):
    """Whether the claim was still yours."""

    released: bool


async def claim(asking: RequestContext) -> Reply:
    """Take a key, or return its current state."""
    body: ClaimBody = asking.body
    key = claim_key(asking.tenant, claimable(body.surface), body.scope, body.key)
    span(body.lease, "lease", least=LEAST)
    wanted = want(
        key,
        fingerprint=body.fingerprint,
        lease=body.lease,
        takeover=body.takeover,
        retention=body.retention,
    )
    wanted = msgspec.structs.replace(wanted, id=attempt_of(asking))
    answer = await asking.server.context.store.atransact(
        _claiming(wanted, may_be_resent=asking.key is not None)
    )
    if isinstance(answer, Won):
        return Reply(201, _won(answer.claim))
    asking.server.context.duplicate_log.note(key, asking.request_id)
    if isinstance(answer, Replay):
        told = ClaimReply(
            outcome="replay",
            surface=key.surface,
            scope=key.scope,
            key=key.key,
            result=answer.result,
        )
        return Reply(200, told)
    raise refusal(answer)


def _claiming(wanted: Wanted, *, may_be_resent: bool) -> Build[Claimed]:
    def build(sql: Sql) -> Operation[Claimed]:
        if may_be_resent:
            found = yield from claims.find(sql, wanted.key)
            if found is not None and (found.owner, found.state) == (wanted.id, Holding.SETTLED):
                # This attempt has settled the key since, so it must not begin again.
                return Replay(decode_result(found.result), found.id)
        return (yield from claims.claim(sql, wanted))

    return build


def _won(held: Claim) -> ClaimReply:
    key = held.key
    return ClaimReply(
        outcome="won",
        id=handle_of(held),
        surface=key.surface,
        scope=key.scope,
        key=key.key,
        fence=held.fence,
        lease_until=held.lease_until,
        guarantee=held.guarantee,
        resumed=held.resumed,
    )


def refusal(answer: Busy | Mismatch | Unknown) -> Refused:
    """The problem that says why the work must not begin now."""
    told: dict[str, Any] = {"key": answer.key}
    if isinstance(answer, Busy):
        told["outcome"] = "busy"
        return Refused(make(BUSY, str(answer), retry_after=answer.retry_after, extra=told))
    if isinstance(answer, Mismatch):
        told["outcome"] = "mismatch"
        return Refused(make(KEY_REUSED, str(KeyReused(key=answer.key)), extra=told))
    told |= {"outcome": "unknown", "since": answer.since}
    detail = (
        f"The attempt at {answer.key!r} ended without a known outcome, so its effect may or may not"
        " have happened. Find out, then settle or release the key:"
        " POST /v1/keys/{surface}/{key}/settle."
    )
    return Refused(make(OUTCOME_UNKNOWN, detail, extra=told))


async def settle(asking: RequestContext) -> Reply:
    """Store the result, under the fence."""
    body: SettleBody = asking.body
    await asking.calls.keys.asettle(claim_of(asking, body.fence), body.result)
    return Reply(200, Settled())


async def release(asking: RequestContext) -> Reply:
    """Release the key without a result: the next attempt runs."""
    body: ClaimFenceBody = asking.body
    released = await asking.calls.keys.arelease(claim_of(asking, body.fence))
    return Reply(200, Released(released=released))


async def renew(asking: RequestContext) -> Reply:
    """Extend the lease."""
    body: RenewBody = asking.body
    held = claim_of(asking, body.fence)
    span(body.lease, "lease", least=LEAST)
    until = await asking.calls.keys.arenew(held, lease=body.lease)
    if until is None:
        raise LeaseLost(f"the key {held.key.key!r}", fence=held.fence)
    return Reply(200, Renewed(lease_until=until))


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
        answers={201: ClaimReply, 200: ClaimReply},
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


TTL: Final = 30.0
LONGEST_WAIT: Final = 20.0
"""Seconds; shorter than the timeout of a request."""

Wait: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT)]


class LockBody(Body):
    """A name to lock."""

    name: str
    ttl: Duration = msgspec.field(default_factory=lambda: Duration(seconds=TTL))
    """How long you hold the lock unless a heartbeat extends it."""
    wait: Wait = 0.0
    """How long to wait while another caller holds the lock."""


class RenewLockBody(Body):
    """The lock is still needed."""

    ttl: Duration = msgspec.field(default_factory=lambda: Duration(seconds=TTL))
    """From now."""
    fence: Fence | None = None


async def lock(asking: RequestContext) -> Reply:
    """Take a lock; wait for it if the body says so."""
    body: LockBody = asking.body
    key = claim_key(asking.tenant, "lock", "", lock_key(body.name))
    span(body.ttl, "ttl", least=LEAST)
    wanted = want(key, lease=body.ttl, takeover="rerun")
    wanted = msgspec.structs.replace(wanted, id=attempt_of(asking))
    held = await asking.server.context.runtime.arun(_acquired(wanted, timedelta(seconds=body.wait)))
    return Reply(201, _won(held))


def _acquired(wanted: Wanted, wait: timedelta) -> Procedure[Claim]:
    pauses = waits(wait)
    while True:
        answer: Claimed = yield Transact(partial(claims.claim, wanted=wanted))
        if isinstance(answer, Won):
            return answer.claim
        assert isinstance(answer, Busy)
        pause = next(pauses, None)
        if pause is None:
            raise answer
        yield Pause(min(pause, max(answer.retry_after.total_seconds(), 0.001)))


async def release_lock(asking: RequestContext) -> Reply:
    """Release a lock."""
    fence = None if asking.body is None else asking.body.fence
    held = claim_of(asking, fence, of_locks=True)
    released: set[str] = await asking.server.context.store.atransact(
        lambda sql: claims.release(sql, [held], strict=True)
    )
    return Reply(200, Released(released=bool(released)))


async def renew_lock(asking: RequestContext) -> Reply:
    """Extend a lock, under the same fence."""
    body: RenewLockBody = asking.body
    held = claim_of(asking, body.fence, of_locks=True)
    span(body.ttl, "ttl", least=LEAST)
    until = await asking.calls.keys.arenew(held, lease=body.ttl)
    if until is None:
        raise LeaseLost(f"the lock {held.key.key!r}", fence=held.fence)
    return Reply(200, Renewed(lease_until=until))


LOCK_ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/locks",
        name="lock",
        summary="Take a lock",
        description=(
            "An efficiency lock: a holder that is paused past its lease may overlap with the next."
            " Where that must not matter, let what you write to refuse a smaller fence. 409"
            f" `busy`: another has it. `wait` is at most {LONGEST_WAIT:g} seconds."
        ),
        scope="work",
        endpoint=lock,
        body=LockBody,
        answers={201: ClaimReply},
        problems=(409,),
    ),
    Route(
        method="POST",
        path="/v1/locks/{id}/release",
        name="releaseLock",
        summary="Give a lock back",
        description=(
            "`released` is false where the lock was no longer yours. The same by POST and by"
            " DELETE."
        ),
        scope="work",
        endpoint=release_lock,
        body=ClaimFenceBody,
        body_optional=True,
        answers={200: Released},
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/locks/{id}/heartbeat",
        name="renewLock",
        summary="Extend a lock",
        description="409 `lease_lost`: it has ended. Stop working.",
        scope="work",
        endpoint=renew_lock,
        body=RenewLockBody,
        body_optional=True,
        answers={200: Renewed},
        problems=(404, 409),
    ),
    Route(
        method="DELETE",
        path="/v1/locks/{id}",
        name="deleteLock",
        summary="Give a lock back",
        description=(
            "`released` is false where the lock was no longer yours. The same by POST and by"
            " DELETE."
        ),
        scope="work",
        endpoint=release_lock,
        answers={200: Released},
        problems=(404,),
    ),
)
