"""`lock` over HTTP: the lock of the library on a server, renewed until it is released."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from onefold.client.connection import Connection, decode
from onefold.client.requests import ChangeReply, path, wire_body
from onefold.effects.lock import MARGIN, Lock, lock_key
from onefold.errors import Busy, LeaseLost, OnefoldError
from onefold.model.claim import Claim, ClaimAnswer, ClaimKey, ClaimReply, Won, claim_key

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Self

    from onefold.runtime import Procedure, Runtime

log: logging.Logger = logging.getLogger("onefold.client")

LONGEST_WAIT: Final = 20.0
"""Seconds that the server waits for a lock. The client repeats the request for a longer wait."""
RENEWALS: Final = 3
"""Renewals in the time of a lease: one may fail."""


class HttpLocks:
    """Locks of a server. It is a `LockBackend`."""

    label: None = None

    def __init__(self, connection: Connection, runtime: Runtime) -> None:
        self._connection = connection
        self.runtime: Runtime = runtime

    def acquire(self, key: ClaimKey, ttl: timedelta, wait: float) -> Procedure[ClaimAnswer]:
        """Try to take a lock; the server waits for it."""
        body = wire_body({"name": key.key, "ttl": ttl, "wait": min(wait, LONGEST_WAIT)})
        try:
            response = yield from self._connection.post(path("locks"), body)
        except Busy as busy:
            return busy
        return Won(decode(response, ClaimReply).claim)

    def renew(self, claim: Claim, ttl: timedelta) -> Procedure[bool]:
        """Extend a lock; False if it has ended."""
        body = wire_body({"fence": claim.fence, "ttl": ttl})
        try:
            yield from self._connection.post(path("locks", claim.id, "heartbeat"), body)
        except LeaseLost:
            return False
        return True

    def release(self, claim: Claim) -> Procedure[bool]:
        """Release a lock; False if another holder has it."""
        body = {"fence": claim.fence}
        response = yield from self._connection.post(path("locks", claim.id, "release"), body)
        return decode(response, ChangeReply).released


class RemoteLock(Lock):
    """A lock of a server. A thread, or a task of an `AsyncClient`, renews it."""

    def __init__(self, locks: HttpLocks, name: str, ttl: timedelta, wait: timedelta | None) -> None:
        super().__init__(locks, claim_key("", "lock", "", lock_key(name)), ttl, wait)
        self._released = threading.Event()
        self._renewal: asyncio.Task[None] | None = None

    def acquire(self) -> Self:
        """Acquire it, or raise `Busy`, after `wait` if given."""
        super().acquire()
        self._released = threading.Event()
        threading.Thread(
            target=self._keep, args=(self._released,), name=f"lock {self._key.key}", daemon=True
        ).start()
        return self

    async def aacquire(self) -> Self:
        """`acquire`, awaited."""
        await super().aacquire()
        self._renewal = asyncio.create_task(self._akeep())
        return self

    def release(self) -> bool:
        """Release it; False if another holder has it."""
        self._released.set()
        return super().release()

    async def arelease(self) -> bool:
        """`release`, awaited."""
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewal
        return await super().arelease()

    def _ask(self) -> Procedure[None]:
        yield from super()._ask()
        ttl = self._ttl.total_seconds()
        if self._trusted_until - time.monotonic() < ttl * (1 - 2 * MARGIN):
            # Most of that time may have been the wait for the lock, before the lease began.
            yield from self._renew()

    @property
    def _interval(self) -> float:
        return self._ttl.total_seconds() / RENEWALS

    def _keep(self, released: threading.Event) -> None:
        while not released.wait(self._interval):
            try:
                self.renew()
            except LeaseLost:
                return
            except OnefoldError as error:
                self._log(error)

    async def _akeep(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.arenew()
            except LeaseLost:
                return
            except OnefoldError as error:
                self._log(error)

    def _log(self, error: OnefoldError) -> None:
        log.warning("The lock %r could not be renewed: %s", self._key.key, error)
