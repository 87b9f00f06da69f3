"""Locks over HTTP: a lease on a name, with a fencing token."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from onefold.calls.claims import lock_key
from onefold.calls.procedure import Pause, Procedure, Transaction, once_through, waits
from onefold.errors import Busy, LeaseLost
from onefold.model.claim import Answer as Claimed
from onefold.model.claim import Claim, Wanted, Won, claim_key, want
from onefold.model.moment import Iso
from onefold.operations import claims
from onefold.server.api.bounds import Fence, Seconds
from onefold.server.api.claims import LEAST, ClaimFenceBody, Released, Renewed
from onefold.server.api.handles import attempt_of, claim_of, handle_of
from onefold.server.asking import Said
from onefold.server.route import Route
from onefold.server.seconds import duration
from onefold.server.wire import Answer, Body, iso

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.server.asking import Asking

TTL: Final = 30.0
LONGEST_WAIT: Final = 20.0
"""Seconds; shorter than any request may take."""

Wait: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT)]


class LockBody(Body):
    """A name that only one may work under at a time."""

    name: str
    ttl: Seconds = TTL
    """How long it is yours unless a heartbeat extends it."""
    wait: Wait = 0.0
    """How long to wait for it, where another has it."""


class LockAnswer(Answer):
    """It is yours, until its lease ends."""

    id: str
    """To release and renew it by."""
    name: str
    fence: int
    """Strictly greater than every earlier one of this name: give it to what you write to."""
    lease_until: Iso


class RenewLockBody(Body):
    """Still needed."""

    ttl: Seconds = TTL
    """From now."""
    fence: Fence | None = None


async def lock(asking: Asking) -> Said:
    """Take a lock, waiting for it where that is wanted."""
    body: LockBody = asking.body
    key = claim_key(asking.tenant, "lock", "", lock_key(body.name))
    wanted = want(key, lease=duration(body.ttl, "ttl", least=LEAST), takeover="rerun")
    wanted = msgspec.structs.replace(wanted, id=attempt_of(asking))
    wait = duration(body.wait, "wait")
    held = await asking.server.conductor.arun(_acquired(wanted, wait))
    assert held.lease_until is not None
    told = LockAnswer(
        id=handle_of(held), name=body.name, fence=held.fence, lease_until=iso(held.lease_until)
    )
    return Said(201, told)


def _acquired(wanted: Wanted, wait: timedelta) -> Procedure[Claim]:
    pauses = waits(wait)
    while True:
        answer: Claimed = yield Transaction(partial(claims.claim, wanted=wanted))
        if isinstance(answer, Won):
            return answer.claim
        assert isinstance(answer, Busy)
        pause = next(pauses, None)
        if pause is None:
            raise answer
        yield Pause(min(pause, max(answer.retry_after.total_seconds(), 0.001)))


async def release(asking: Asking) -> Said:
    """Give a lock back."""
    fence = None if asking.body is None else asking.body.fence
    held = claim_of(asking, fence, of_locks=True)
    released: set[str] = await asking.server.conductor.arun(
        once_through(lambda sql: claims.release(sql, [held], strict=True))
    )
    return Said(200, Released(released=bool(released)))


async def renew(asking: Asking) -> Said:
    """Extend a lock, under the same fence."""
    body: RenewLockBody = asking.body
    held = claim_of(asking, body.fence, of_locks=True)
    until = await asking.calls.arenew(held, lease=duration(body.ttl, "ttl", least=LEAST))
    if until is None:
        raise LeaseLost(f"the lock {held.key.key!r}", fence=held.fence)
    return Said(200, Renewed(lease_until=iso(until)))


ROUTES: Final = (
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
        answers={201: LockAnswer},
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
        endpoint=release,
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
        endpoint=renew,
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
        endpoint=release,
        answers={200: Released},
        problems=(404,),
    ),
)
