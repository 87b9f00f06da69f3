"""Claims over HTTP (take, settle, release and renew a key), and locks with a fencing token."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from onefold.effects.claims import LEASE, SURFACE
from onefold.effects.lock import lock_key
from onefold.errors import Busy, KeyReused, LeaseLost
from onefold.model.claim import (
    Claim,
    ClaimAnswer,
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
from onefold.model.timestamps import Duration, as_duration, span
from onefold.model.wire import Answer, Body, Fence
from onefold.operations import claims
from onefold.runtime import Pause, Procedure, transact, waits
from onefold.server.claim_id import attempt_of, claim_of, claimable, handle_of
from onefold.server.problems import BUSY, refused
from onefold.server.request_context import Reply, RequestContext
from onefold.server.routing import RouteTable
from onefold.web.problems import KEY_REUSED, LEASE_LOST, OUTCOME_UNKNOWN

if TYPE_CHECKING:
    from onefold.databases import Build
    from onefold.operations.statement import Operation, Sql
    from onefold.web.problems import Refused

ROUTES: Final = RouteTable("claims")
LOCKS: Final = RouteTable("locks")

SHORTEST: Final = timedelta(milliseconds=1)
TTL: Final = 30.0
LONGEST_WAIT: Final = 20.0
"""Seconds; shorter than the timeout of a request."""


class ClaimBody(Body):
    """A key to claim."""

    scope: str
    """What the key is for: `import`, `mail`. The same key in two scopes is two keys."""
    key: str
    """The key: it names the work that must be done once."""
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


class ClaimFenceBody(Body):
    """The fence of the attempt."""

    fence: Fence | None = None
    """The fence of the claim, optional; also in the header Onefold-Fence."""


class SettleBody(ClaimFenceBody):
    """The work is done."""

    result: Any = None
    """What later attempts with this key receive."""


class RenewBody(ClaimFenceBody):
    """The work goes on."""

    lease: Duration = msgspec.field(default_factory=lambda: as_duration(LEASE))
    """From now."""


class LockBody(Body):
    """A name to lock."""

    name: str
    """The name of the lock."""
    ttl: Duration = msgspec.field(default_factory=lambda: Duration(seconds=TTL))
    """How long you hold the lock unless a heartbeat extends it."""
    wait: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT)] = 0.0
    """How long to wait while another caller holds the lock."""


class RenewLockBody(ClaimFenceBody):
    """The lock is still needed."""

    ttl: Duration = msgspec.field(default_factory=lambda: Duration(seconds=TTL))
    """From now."""


class Settled(Answer):
    """Whether the result is stored, so that every later attempt receives it."""

    settled: bool = True
    """True if the result is stored."""


class Released(Answer):
    """Whether the key was released; false if another caller has it by now."""

    released: bool
    """True if the key is free now."""


@ROUTES.add(
    "POST",
    "/v1/claims",
    scope="work",
    body=ClaimBody,
    answers={201: ClaimReply, 200: ClaimReply},
    problems=(BUSY, OUTCOME_UNKNOWN, KEY_REUSED),
)
async def claim(request: RequestContext) -> Reply:
    """Take a key.

    201: the key is yours. 200: the work was done before, and `result` is its result. 409 `busy`:
    another attempt is running; repeat the request after Retry-After. 422 `key_reused`: the key is
    stored with another fingerprint. 409 `outcome_unknown`: an attempt has vanished, and its
    takeover is `refuse`. `outcome` is one of won, replay, busy, mismatch, unknown.
    """
    body: ClaimBody = request.body
    key = claim_key(request.tenant, claimable(body.surface), body.scope, body.key)
    span(body.lease, "lease", least=SHORTEST)
    wanted = want(
        key,
        fingerprint=body.fingerprint,
        lease=body.lease,
        takeover=body.takeover,
        retention=body.retention,
    )
    wanted = msgspec.structs.replace(wanted, id=attempt_of(request))
    answer = await request.server.context.store.atransact(
        _claiming(wanted, may_be_resent=request.key is not None)
    )
    if isinstance(answer, Won):
        return Reply(201, _won(answer.claim))
    request.server.context.duplicate_log.note(key, request.request_id)
    if isinstance(answer, Replay):
        reply = ClaimReply(
            outcome="replay",
            surface=key.surface,
            scope=key.scope,
            key=key.key,
            result=answer.result,
        )
        return Reply(200, reply)
    raise _refused(answer)


def _claiming(wanted: Wanted, *, may_be_resent: bool) -> Build[ClaimAnswer]:
    def build(sql: Sql) -> Operation[ClaimAnswer]:
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


def _refused(answer: Busy | Mismatch | Unknown) -> Refused:
    """The problem that says why the work must not begin now."""
    extra: dict[str, Any] = {"key": answer.key}
    if isinstance(answer, Busy):
        extra["outcome"] = "busy"
        return refused(BUSY, str(answer), retry_after=answer.retry_after, extra=extra)
    if isinstance(answer, Mismatch):
        extra["outcome"] = "mismatch"
        return refused(KEY_REUSED, str(KeyReused(key=answer.key)), extra=extra)
    extra |= {"outcome": "unknown", "since": answer.since}
    detail = (
        f"The attempt at {answer.key!r} ended without a known outcome, so its effect may or may not"
        " have happened. Find out, then settle or release the key:"
        " POST /v1/keys/{surface}/{key}/settle."
    )
    return refused(OUTCOME_UNKNOWN, detail, extra=extra)


@ROUTES.add(
    "POST",
    "/v1/claims/{id}/settle",
    scope="work",
    body=SettleBody,
    answers={200: Settled},
    problems=(LEASE_LOST,),
)
async def settle_claim(request: RequestContext) -> Reply:
    """Store the result of a claim.

    409 `lease_lost`: another attempt has the key by now, and nothing was stored.
    """
    body: SettleBody = request.body
    await request.calls.keys.asettle(claim_of(request, body.fence), body.result)
    return Reply(200, Settled())


@ROUTES.add(
    "POST", "/v1/claims/{id}/release", scope="work", body=ClaimFenceBody, answers={200: Released}
)
async def release_claim(request: RequestContext) -> Reply:
    """Release a claim without a result.

    The next caller wins the key.
    """
    body: ClaimFenceBody = request.body
    released = await request.calls.keys.arelease(claim_of(request, body.fence))
    return Reply(200, Released(released=released))


@ROUTES.add(
    "POST",
    "/v1/claims/{id}/heartbeat",
    scope="work",
    body=RenewBody,
    answers={200: Renewed},
    problems=(LEASE_LOST,),
)
async def renew_claim(request: RequestContext) -> Reply:
    """Extend the lease of a claim.

    409 `lease_lost`: the lease has ended. Stop working.
    """
    body: RenewBody = request.body
    held = claim_of(request, body.fence)
    return await _renewed(request, held, body.lease, "lease", subject="key")


async def _renewed(
    request: RequestContext, held: Claim, lease: timedelta, field: str, *, subject: str
) -> Reply:
    span(lease, field, least=SHORTEST)
    until = await request.calls.keys.arenew(held, lease=lease)
    if until is None:
        raise LeaseLost(f"the {subject} {held.key.key!r}", fence=held.fence)
    return Reply(200, Renewed(lease_until=until))


@LOCKS.add(
    "POST", "/v1/locks", scope="work", body=LockBody, answers={201: ClaimReply}, problems=(BUSY,)
)
async def lock(request: RequestContext) -> Reply:
    """Take a lock.

    An efficiency lock: a holder that is paused longer than its lease may overlap with the next
    one. If that matters, let the system that you write to reject a smaller fence. 409 `busy`:
    another caller has the lock. `wait` is at most 20 seconds.
    """
    body: LockBody = request.body
    key = claim_key(request.tenant, "lock", "", lock_key(body.name))
    span(body.ttl, "ttl", least=SHORTEST)
    wanted = want(key, lease=body.ttl, takeover="rerun")
    wanted = msgspec.structs.replace(wanted, id=attempt_of(request))
    acquiring = _acquired(wanted, timedelta(seconds=body.wait))
    return Reply(201, _won(await request.server.context.runtime.arun(acquiring)))


def _acquired(wanted: Wanted, wait: timedelta) -> Procedure[Claim]:
    pauses = waits(wait)
    while True:
        answer = yield from transact(partial(claims.claim, wanted=wanted))
        if isinstance(answer, Won):
            return answer.claim
        assert isinstance(answer, Busy)
        pause = next(pauses, None)
        if pause is None:
            raise answer
        yield Pause(min(pause, max(answer.retry_after.total_seconds(), 0.001)))


@LOCKS.add(
    "POST", "/v1/locks/{id}/release", scope="work", body=ClaimFenceBody, answers={200: Released}
)
async def release_lock(request: RequestContext) -> Reply:
    """Release a lock.

    DELETE does the same.
    """
    fence = None if request.body is None else request.body.fence
    held = claim_of(request, fence, of_locks=True)
    released: set[str] = await request.server.context.store.atransact(
        lambda sql: claims.release(sql, [held], strict=True)
    )
    return Reply(200, Released(released=bool(released)))


@LOCKS.add(
    "POST",
    "/v1/locks/{id}/heartbeat",
    scope="work",
    body=RenewLockBody,
    answers={200: Renewed},
    problems=(LEASE_LOST,),
)
async def renew_lock(request: RequestContext) -> Reply:
    """Extend a lock.

    409 `lease_lost`: the lease has ended. Stop working.
    """
    body: RenewLockBody = request.body
    held = claim_of(request, body.fence, of_locks=True)
    return await _renewed(request, held, body.ttl, "ttl", subject="lock")


@LOCKS.add("DELETE", "/v1/locks/{id}", scope="work", answers={200: Released})
async def delete_lock(request: RequestContext) -> Reply:
    """Release a lock.

    POST /v1/locks/{id}/release does the same.
    """
    return await release_lock(request)
