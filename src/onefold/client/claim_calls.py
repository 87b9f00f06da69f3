"""The calls about keys, in both colours."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from onefold.calls.claims import LEASE, SURFACE, ClaimOptions
from onefold.client.flows import claims
from onefold.client.lock import AsyncRemoteLock, RemoteLock
from onefold.client.once import AsyncRemoteOnce, OnceWish, RemoteOnce
from onefold.client.steps import AsyncRemoteSteps, RemoteSteps
from onefold.model import checks

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from typing import Unpack

    from onefold.calls.once import BusyPolicy
    from onefold.client.async_driver import AsyncDriver
    from onefold.client.connection import Connection
    from onefold.client.flow import Ask
    from onefold.client.sync_driver import SyncDriver
    from onefold.model.claim import Claim, ClaimAnswer

TTL: Final = timedelta(seconds=30)


class WaitOptions(TypedDict, total=False):
    """What is done where somebody else is at work."""

    busy: BusyPolicy
    """`raise` (the default), or `skip`: None instead of a claim."""
    wait: timedelta | None
    """How long to wait."""


class OnceOptions(ClaimOptions, WaitOptions, total=False):
    """How `once` runs something. What needs a look at the ledger itself is for in-process code."""


class ClaimCalls:
    """Keys outside of jobs."""

    _connection: Connection
    _driver: SyncDriver

    def claim(
        self, scope: str, key: str, *, surface: str = SURFACE, **options: Unpack[ClaimOptions]
    ) -> ClaimAnswer:
        """Take a key: Won, Replay, Busy, Mismatch or Unknown.

        The work follows under a lease, and `takeover` says what happens when it vanishes.
        """
        return self._driver.run(claims.claim(self._connection.ask, scope, key, surface, options))

    def settle(self, claim: Claim, result: Any = None) -> None:
        """Store the outcome under the fence; `LeaseLost` where it is no longer yours."""
        self._driver.run(claims.settle(self._connection.ask, claim, result))

    def release(self, claim: Claim) -> bool:
        """Give a key back unsettled; False where it is no longer yours."""
        return self._driver.run(claims.release(self._connection.ask, claim))

    def renew(self, claim: Claim, *, lease: timedelta = LEASE) -> datetime | None:
        """Extend a lease that has not ended, under the same fence; None where it has."""
        return self._driver.run(claims.renew(self._connection.ask, claim, lease))

    def once(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        **options: Unpack[OnceOptions],
    ) -> RemoteOnce:
        """Run something once per key, and remember its result: for `with`, or as a decorator.

        A failure releases the key. For a decorator, `key` may compute it from the arguments;
        without one, it is digested from them.
        """
        return RemoteOnce(self._driver, _wish(self._connection.ask, name, key, options))

    def lock(self, name: str, *, ttl: timedelta = TTL, wait: timedelta | None = None) -> RemoteLock:
        """A lease on a name, with a fencing token, renewed by a thread until it is released.

        It is an efficiency lock: a holder that is paused past its `ttl` may overlap with the next.
        Where that must not matter, give `lock.fence` to what you write to.
        """
        return RemoteLock(self._driver, self._connection.ask, name, ttl, wait)

    def steps(self, job_id: str, *, fence: int) -> RemoteSteps:
        """The steps of a delivery that was given to you: `client.steps(…).step("charge", …)`."""
        return RemoteSteps(self._driver, self._connection.ask, job_id, fence)


class AsyncClaimCalls:
    """`ClaimCalls`, awaited."""

    _connection: Connection
    _driver: AsyncDriver

    async def claim(
        self, scope: str, key: str, *, surface: str = SURFACE, **options: Unpack[ClaimOptions]
    ) -> ClaimAnswer:
        """Take a key: Won, Replay, Busy, Mismatch or Unknown.

        The work follows under a lease, and `takeover` says what happens when it vanishes.
        """
        flow = claims.claim(self._connection.ask, scope, key, surface, options)
        return await self._driver.run(flow)

    async def settle(self, claim: Claim, result: Any = None) -> None:
        """Store the outcome under the fence; `LeaseLost` where it is no longer yours."""
        await self._driver.run(claims.settle(self._connection.ask, claim, result))

    async def release(self, claim: Claim) -> bool:
        """Give a key back unsettled; False where it is no longer yours."""
        return await self._driver.run(claims.release(self._connection.ask, claim))

    async def renew(self, claim: Claim, *, lease: timedelta = LEASE) -> datetime | None:
        """Extend a lease that has not ended, under the same fence; None where it has."""
        return await self._driver.run(claims.renew(self._connection.ask, claim, lease))

    def once(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        **options: Unpack[OnceOptions],
    ) -> AsyncRemoteOnce:
        """Run something once per key, and remember its result: for `async with`, or a decorator.

        A failure releases the key. For a decorator, `key` may compute it from the arguments;
        without one, it is digested from them.
        """
        return AsyncRemoteOnce(self._driver, _wish(self._connection.ask, name, key, options))

    def lock(
        self, name: str, *, ttl: timedelta = TTL, wait: timedelta | None = None
    ) -> AsyncRemoteLock:
        """A lease on a name, with a fencing token, renewed by a task until it is released.

        It is an efficiency lock: a holder that is paused past its `ttl` may overlap with the next.
        Where that must not matter, give `lock.fence` to what you write to.
        """
        return AsyncRemoteLock(self._driver, self._connection.ask, name, ttl, wait)

    def steps(self, job_id: str, *, fence: int) -> AsyncRemoteSteps:
        """The steps of a delivery that was given to you: `client.steps(…).step("charge", …)`."""
        return AsyncRemoteSteps(self._driver, self._connection.ask, job_id, fence)


def _wish(
    ask: Ask, name: str, key: str | Callable[..., str] | None, options: OnceOptions
) -> OnceWish:
    checks.options(options, OnceOptions.__optional_keys__)
    rest: dict[str, Any] = dict(options)
    busy, wait = rest.pop("busy", "raise"), rest.pop("wait", None)
    return OnceWish(ask, name, key, cast("ClaimOptions", rest), busy, wait)
