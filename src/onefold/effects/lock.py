"""`lock`: a lease on a name with a fencing token.

The store's clock grants and ends the lease. The holder counts on its own monotonic clock from
*before* the request, less a margin, so that it stops before another holder can start.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from onefold.errors import Busy, LeaseLost, UsageError
from onefold.model import checks
from onefold.model.claim import Claim, ClaimAnswer, ClaimKey, Won, want
from onefold.model.timestamps import span
from onefold.model.unique import fingerprint
from onefold.operations import claims
from onefold.runtime import Calls, Pause, Procedure, awaited, call, transact, waits

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from onefold.app.context import Context
    from onefold.runtime import Runtime

MARGIN: Final = 0.1
"""The part of a lease in which the holder no longer trusts it."""

_held: ContextVar[tuple[tuple[_Mine, weakref.ref[Lock]], ...]] = ContextVar(
    "onefold_locks", default=()
)
"""Locks taken in this context, and by which task or thread. Tasks that are started here inherit
the context, and may wait for a lock that we hold. A lock that is left to its ttl is not kept
alive here.
"""

_Mine: TypeAlias = tuple[int, str, ClaimKey]
"""The holder of a lock, its database and its name."""


def _whoami() -> int:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident() if task is None else id(task)


class LockBackend(Protocol):
    """Where a lock is held: on the database, or on a server."""

    @property
    def runtime(self) -> Runtime:
        """Carries out the procedures below."""
        ...

    @property
    def label(self) -> str | None:
        """Identifies the store. None if the same holder may acquire a held lock again."""
        ...

    def acquire(self, key: ClaimKey, ttl: timedelta, wait: float) -> Procedure[ClaimAnswer]:
        """Try to take a lock: Won or Busy. A backend may use up to `wait` seconds."""
        ...

    def renew(self, claim: Claim, ttl: timedelta) -> Procedure[bool]:
        """Extend a lock; False if it has ended."""
        ...

    def release(self, claim: Claim) -> Procedure[bool]:
        """Release a lock; False if another holder has it."""
        ...


class DatabaseLocks:
    """Locks on the database. It is a `LockBackend`."""

    def __init__(self, context: Context) -> None:
        """On the own connections of `context`."""
        if context.borrowed is not None:
            raise UsageError(
                "A lock is leased, and a lease cannot be part of your transaction. Take the lock"
                " from the Onefold object, and check it in the transaction:"
                " within(connection).guard(lock)."
            )
        self._context = context

    @property
    def runtime(self) -> Runtime:
        """The runtime of the context."""
        return self._context.runtime

    @property
    def label(self) -> str:
        """Identifies the database and the schema."""
        database = self._context.database
        return f"{database.label} {database.sql.schema}"

    def acquire(self, key: ClaimKey, ttl: timedelta, wait: float) -> Procedure[ClaimAnswer]:
        """Try to take a lock, without waiting."""
        del wait
        wanted = want(key, lease=ttl, takeover="rerun")
        return transact(partial(claims.claim, wanted=wanted))

    def renew(self, claim: Claim, ttl: timedelta) -> Procedure[bool]:
        """Extend a lock; False if it has ended."""
        micros = span(ttl, "ttl")
        until = yield from transact(lambda sql: claims.renew(sql, claim, lease=micros))
        return until is not None

    def release(self, claim: Claim) -> Procedure[bool]:
        """Release a lock; False if another holder has it."""
        released = yield from transact(lambda sql: claims.release(sql, [claim], strict=True))
        return bool(released)


class Lock(Calls):
    """A lock for `with` and for `async with`."""

    def __init__(
        self,
        locks: LockBackend,
        key: ClaimKey,
        ttl: timedelta,
        wait: timedelta | None,
        *,
        is_lost: Callable[[], bool] | None = None,
    ) -> None:
        """`is_lost` returns whether the work that needs the lock is lost."""
        span(ttl, "ttl", least=timedelta(milliseconds=1))
        if wait is not None:
            span(wait, "wait")
        self._locks = locks
        self._runtime = locks.runtime
        self._key = key
        self._ttl = ttl
        self._wait = wait
        self._is_lost = is_lost
        self._claim: Claim | None = None
        self._in_use = False
        self._mutex = threading.Lock()
        """Held for a moment, to change the two above together."""
        self._trusted_until = 0.0

    @property
    def is_held(self) -> bool:
        """True from acquire to release, even if the lease has ended: see `lost`."""
        return self._claim is not None

    @property
    def claim(self) -> Claim:
        """The claim behind the lock; `LeaseLost` if it is not held."""
        if self._claim is None:
            raise LeaseLost(f"the lock {self._key.key!r}", fence=0)
        return self._claim

    @property
    def fence(self) -> int:
        """Strictly greater than each earlier fence of this name. Send it to what you write to."""
        return self.claim.fence

    @property
    def lost(self) -> bool:
        """True if another holder may have the lock by now."""
        if self._is_lost is not None and self._is_lost():
            return True
        return self._claim is None or time.monotonic() >= self._trusted_until

    def check(self) -> None:
        """Raise `LeaseLost` before an effect that must not overlap."""
        if self.lost:
            fence = 0 if self._claim is None else self._claim.fence
            raise LeaseLost(f"the lock {self._key.key!r}", fence=fence)

    def derived(self, name: str) -> str:
        """A key for a third party that knows no fences. Best effort: that party may forget it."""
        return self._key.derived(f"{self.fence}:{name}")

    def acquire(self) -> Self:
        """Acquire the lock, or raise `Busy` (after `wait`, if given)."""
        self._runtime.run(self._acquire())
        return self

    async def aacquire(self) -> Self:
        """`acquire`, awaited."""
        await self._runtime.arun(self._acquire())
        return self

    def release(self) -> bool:
        """Release the lock; False if it was no longer held."""
        return self._runtime.run(self._release())

    async def arelease(self) -> bool:
        """`release`, awaited."""
        return await self._runtime.arun(self._release())

    @call
    def renew(self) -> Procedure[None]:
        """Extend the lock by its ttl, with the same fence; `LeaseLost` if it has ended."""
        return self._renew()

    arenew: Final = awaited(renew)

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    async def __aenter__(self) -> Self:
        return await self.aacquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.arelease()

    def _acquire(self) -> Procedure[None]:
        """An object has one holder at a time: a release could not tell two of them apart."""
        with self._mutex:
            if self._in_use:
                raise UsageError(
                    f"This lock({self._key.key!r}) is in use: it was acquired and has not been"
                    " released. Make a new lock() for each use."
                )
            self._in_use = True
        try:
            yield from self._ask()
        except BaseException:
            self._in_use = False
            raise

    def _ask(self) -> Procedure[None]:
        mine = self._mine()
        if mine is not None and any(whose == mine for whose, _ in _still_held()):
            raise UsageError(
                f"The lock {self._key.key!r} is already held here; asking again would wait for"
                " itself."
            )
        pauses = waits(self._wait)
        until = time.monotonic() + (0.0 if self._wait is None else self._wait.total_seconds())
        while True:
            started = time.monotonic()
            answer = yield from self._locks.acquire(self._key, self._ttl, max(until - started, 0.0))
            if isinstance(answer, Won):
                self._claim = answer.claim
                self._trust(started)
                return
            assert isinstance(answer, Busy)
            pause = next(pauses, None)
            if pause is None:
                raise answer
            yield Pause(min(pause, max(answer.retry_after.total_seconds(), 0.001)))

    def _mine(self) -> _Mine | None:
        label = self._locks.label
        return None if label is None else (_whoami(), label, self._key)

    def _trust(self, started: float) -> None:
        self._trusted_until = started + self._ttl.total_seconds() * (1 - MARGIN)
        if (mine := self._mine()) is not None:
            others = (entry for entry in _still_held() if entry[1]() is not self)
            _held.set((*others, (mine, weakref.ref(self))))

    def _release(self) -> Procedure[bool]:
        with self._mutex:
            claim, self._claim = self._claim, None
            if claim is None:
                return False
            self._in_use = False
        _held.set(_still_held())
        return (yield from self._locks.release(claim))

    def _renew(self) -> Procedure[None]:
        claim, started = self.claim, time.monotonic()
        if not (yield from self._locks.renew(claim, self._ttl)):
            self._trusted_until = 0.0
            raise LeaseLost(f"the lock {self._key.key!r}", fence=claim.fence)
        self._trust(started)


def _still_held() -> tuple[tuple[_Mine, weakref.ref[Lock]], ...]:
    """The locks of this context, without those that were released or left to their ttl."""
    return tuple(
        entry for entry in _held.get() if (lock := entry[1]()) is not None and not lock.lost
    )


def lock_key(name: object) -> str:
    """Any text may name a lock; one too long for a key is digested."""
    if isinstance(name, str) and len(name.encode("utf-8", "replace")) > checks.KEY_BYTES:
        return f"digest:{fingerprint(name)}"
    return checks.key(name, "name")
