"""`lock` over HTTP: a lease on a name with a fencing token, kept up by a heartbeat.

The server's clock grants and ends the lease. The holder counts on its own monotonic clock from
*before* it asked, less a margin, so that it stops before anybody else can start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from onefold.calls.lock import MARGIN
from onefold.client.flows import claims
from onefold.errors import LeaseLost, OnefoldError, UsageError

if TYPE_CHECKING:
    from datetime import timedelta
    from types import TracebackType
    from typing import Self

    from onefold.client.async_driver import AsyncDriver
    from onefold.client.flow import Ask, Flow
    from onefold.client.sync_driver import SyncDriver
    from onefold.model.claim import Claim

log: logging.Logger = logging.getLogger("onefold.client")

BEATS: Final = 3
"""Heartbeats in the time of a lease: one may be lost."""


class _Lock:
    """What the two colours share."""

    def __init__(self, ask: Ask, name: str, ttl: timedelta, wait: timedelta | None) -> None:
        self._ask = ask
        self._name = name
        self._ttl = ttl
        self._wait = wait
        self._claim: Claim | None = None
        self._trusted_until = 0.0

    @property
    def is_held(self) -> bool:
        """True from the acquiring to the releasing, though the lease may be over: see `lost`."""
        return self._claim is not None

    @property
    def fence(self) -> int:
        """Strictly greater than every earlier one of this name: give it to what you write to."""
        return self._held().fence

    @property
    def lost(self) -> bool:
        """True where the lease may be somebody else's by now."""
        return self._claim is None or time.monotonic() >= self._trusted_until

    def check(self) -> None:
        """Raise `LeaseLost` before an effect that must not overlap."""
        if self.lost:
            raise LeaseLost(
                f"the lock {self._name!r}", fence=0 if self._claim is None else self._claim.fence
            )

    def _held(self) -> Claim:
        if self._claim is None:
            raise LeaseLost(f"the lock {self._name!r}", fence=0)
        return self._claim

    def _acquire(self) -> Flow[None]:
        if self._claim is not None:
            raise UsageError(
                f"This lock({self._name!r}) is in use: it was acquired and has not been released."
                " Make a new lock() for each use."
            )
        # The wait for it is in front of the lease; what is trusted begins with the last request.
        asked = time.monotonic()
        claim = yield from claims.lock(self._ask, self._name, self._ttl, self._wait)
        if time.monotonic() - asked < self._ttl.total_seconds() * MARGIN:
            self._claim = claim
            self._trust(asked)
            return
        self._claim = claim
        yield from self._renew()

    def _renew(self) -> Flow[None]:
        asked = time.monotonic()
        try:
            yield from claims.renew_lock(self._ask, self._held(), self._ttl)
        except LeaseLost:
            self._trusted_until = 0.0
            raise
        self._trust(asked)

    def _release(self) -> Flow[bool]:
        claim, self._claim = self._claim, None
        if claim is None:
            return False
        return (yield from claims.release(self._ask, claim, of="locks"))

    def _trust(self, asked: float) -> None:
        self._trusted_until = asked + self._ttl.total_seconds() * (1 - MARGIN)

    @property
    def _beat(self) -> float:
        return self._ttl.total_seconds() / BEATS

    def _missed(self, error: OnefoldError) -> None:
        log.warning("The lock %r could not be renewed: %s", self._name, error)


class RemoteLock(_Lock):
    """A lock for `with`; a thread renews it until it is released."""

    def __init__(
        self, driver: SyncDriver, ask: Ask, name: str, ttl: timedelta, wait: timedelta | None
    ) -> None:
        """Made by `Client.lock`."""
        super().__init__(ask, name, ttl, wait)
        self._driver = driver
        self._over = threading.Event()

    def acquire(self) -> Self:
        """Take it, or raise `Busy` (after `wait`, if given): never silently go on without it."""
        self._driver.run(self._acquire())
        self._over = threading.Event()
        threading.Thread(
            target=self._keep, args=(self._over,), name=f"lock {self._name}", daemon=True
        ).start()
        return self

    def renew(self) -> None:
        """Extend it by its ttl, under the same fence; `LeaseLost` where it has ended."""
        self._driver.run(self._renew())

    def release(self) -> bool:
        """Give it back; False where it was no longer yours."""
        self._over.set()
        return self._driver.run(self._release())

    def _keep(self, over: threading.Event) -> None:
        while not over.wait(self._beat):
            try:
                self.renew()
            except LeaseLost:
                return
            except OnefoldError as error:
                self._missed(error)

    def __enter__(self) -> Self:
        """Acquire."""
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release, whatever happened."""
        self.release()


class AsyncRemoteLock(_Lock):
    """A lock for `async with`; a task renews it until it is released."""

    def __init__(
        self, driver: AsyncDriver, ask: Ask, name: str, ttl: timedelta, wait: timedelta | None
    ) -> None:
        """Made by `AsyncClient.lock`."""
        super().__init__(ask, name, ttl, wait)
        self._driver = driver
        self._keeper: asyncio.Task[None] | None = None

    async def acquire(self) -> Self:
        """Take it, or raise `Busy` (after `wait`, if given): never silently go on without it."""
        await self._driver.run(self._acquire())
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def renew(self) -> None:
        """Extend it by its ttl, under the same fence; `LeaseLost` where it has ended."""
        await self._driver.run(self._renew())

    async def release(self) -> bool:
        """Give it back; False where it was no longer yours."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper
        return await self._driver.run(self._release())

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._beat)
            try:
                await self.renew()
            except LeaseLost:
                return
            except OnefoldError as error:
                self._missed(error)

    async def __aenter__(self) -> Self:
        """Acquire."""
        return await self.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release, whatever happened."""
        await self.release()
