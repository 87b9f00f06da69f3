"""`Within`: the calls that join a transaction of the caller's."""

from __future__ import annotations

from onefold.calls.claims import ClaimCalls
from onefold.calls.jobs import JobCalls
from onefold.calls.lock import AsyncLock, Lock
from onefold.calls.natural import NaturalCalls
from onefold.calls.once import OnceClaim
from onefold.calls.procedure import Conductor, Procedure, Transaction
from onefold.calls.schedules import ScheduleCalls
from onefold.errors import InvalidInput, LeaseLost
from onefold.model.claim import Claim
from onefold.operations import claims


class Within(JobCalls, ClaimCalls, NaturalCalls, ScheduleCalls):
    """Onefold on your connection, inside your transaction. You commit."""

    def __init__(self, conductor: Conductor, tenant: str) -> None:
        """Made by `within`."""
        self._conductor = conductor
        self._tenant = tenant

    def guard(self, holder: Lock | AsyncLock | OnceClaim | Claim) -> None:
        """Raise `LeaseLost` unless `holder` still holds, and keep it so until you commit.

        The check is made against the row that issued the fence, in your transaction: unlike a
        resource that remembers the highest fence it has seen, it also refuses a stale holder that
        writes before its successor does.
        """
        claim = _claim_of(holder)
        self._conductor.run(_guard(claim))

    async def aguard(self, holder: Lock | AsyncLock | OnceClaim | Claim) -> None:
        """`guard`, awaited."""
        claim = _claim_of(holder)
        await self._conductor.arun(_guard(claim))


def _claim_of(holder: Lock | AsyncLock | OnceClaim | Claim) -> Claim:
    if isinstance(holder, Claim):
        return holder
    if not isinstance(holder, Lock | AsyncLock | OnceClaim):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput("holder", f"must be a lock or a claim, got {holder!r}")
    if holder.claim is None:
        raise LeaseLost("a replayed claim", fence=0)
    return holder.claim


def _guard(claim: Claim) -> Procedure[None]:
    yield Transaction(lambda sql: claims.guard(sql, claim))
