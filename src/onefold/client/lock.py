"""`lock` over HTTP: a lease on a name with a fencing token, renewed until it is released.

The server's clock ends the lease. The holder counts on its own monotonic clock, from before the
request and with a margin, so that it stops before another holder can start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from onefold.effects.lock import MARGIN
from onefold.errors import LeaseLost, OnefoldError, UsageError

if TYPE_CHECKING:
    from datetime import timedelta
    from types import TracebackType
    from typing import Self

    from onefold.client.claims import HttpClaims
    from onefold.model.claim import Claim
    from onefold.runtime import Procedure, Runtime

log: logging.Logger = logging.getLogger("onefold.client")

RENEWALS: Final = 3
"""Renewals in the time of a lease: one may fail."""


class _Lock:
    """A lock, without its renewal."""

    def __init__(
        self,
        runtime: Runtime,
        claims: HttpClaims,
        name: str,
        ttl: timedelta,
        wait: timedelta | None,
    ) -> None:
        """Made by a client."""
        self._runtime = runtime
        self._claims = claims
        self._name = name
        self._ttl = ttl
        self._wait = wait
        self._claim: Claim | None = None
        self._trusted_until = 0.0

    @property
    def is_held(self) -> bool:
        """True between `acquire` and `release`, also if the lease has ended: see `lost`."""
        return self._claim is not None

    @property
    def fence(self) -> int:
        """Greater than every earlier one of this name: pass it to the system that you write to."""
        return self._held().fence

    @property
    def lost(self) -> bool:
        """True if another holder may have the lease."""
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

    def _acquire(self) -> Procedure[None]:
        if self._claim is not None:
            raise UsageError(
                f"This lock({self._name!r}) is in use: it was acquired and is not released."
                " Create a lock() for each use."
            )
        asked = time.monotonic()
        self._claim = yield from self._claims.lock(self._name, self._ttl, self._wait)
        if time.monotonic() - asked < self._ttl.total_seconds() * MARGIN:
            self._trust(asked)
        else:
            # Most of that time may have been the wait for the lock, before the lease began.
            yield from self._renew()

    def _renew(self) -> Procedure[None]:
        asked = time.monotonic()
        try:
            yield from self._claims.renew_lock(self._held(), self._ttl)
        except LeaseLost:
            self._trusted_until = 0.0
            raise
        self._trust(asked)

    def _release(self) -> Procedure[bool]:
        claim, self._claim = self._claim, None
        if claim is None:
            return False
        return (yield from self._claims.release_lock(claim))

    def _trust(self, asked: float) -> None:
        self._trusted_until = asked + self._ttl.total_seconds() * (1 - MARGIN)

    @property
    def _interval(self) -> float:
        return self._ttl.total_seconds() / RENEWALS

    def _missed(self, error: OnefoldError) -> None:
        log.warning("The lock %r could not be renewed: %s", self._name, error)


class RemoteLock(_Lock):
    """A lock for `with`; a thread renews it until it is released."""

    _over: threading.Event | None = None

    def acquire(self) -> Self:
        """Acquire it, or raise `Busy`, after `wait` if given."""
        self._runtime.run(self._acquire())
        self._over = threading.Event()
        threading.Thread(
            target=self._keep, args=(self._over,), name=f"lock {self._name}", daemon=True
        ).start()
        return self

    def renew(self) -> None:
        """Extend it by its ttl, with the same fence; `LeaseLost` if it has ended."""
        self._runtime.run(self._renew())

    def release(self) -> bool:
        """Release it; False if another holder has it."""
        if self._over is not None:
            self._over.set()
        return self._runtime.run(self._release())

    def _keep(self, over: threading.Event) -> None:
        while not over.wait(self._interval):
            try:
                self.renew()
            except LeaseLost:
                return
            except OnefoldError as error:
                self._missed(error)

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class AsyncRemoteLock(_Lock):
    """A lock for `async with`; a task renews it until it is released."""

    _keeper: asyncio.Task[None] | None = None

    async def acquire(self) -> Self:
        """Acquire it, or raise `Busy`, after `wait` if given."""
        await self._runtime.arun(self._acquire())
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def renew(self) -> None:
        """Extend it by its ttl, with the same fence; `LeaseLost` if it has ended."""
        await self._runtime.arun(self._renew())

    async def release(self) -> bool:
        """Release it; False if another holder has it."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper
        return await self._runtime.arun(self._release())

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.renew()
            except LeaseLost:
                return
            except OnefoldError as error:
                self._missed(error)

    async def __aenter__(self) -> Self:
        return await self.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.release()
