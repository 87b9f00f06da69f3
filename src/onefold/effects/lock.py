"""`lock`: a lease on a name with a fencing token.

The store's clock grants and ends the lease. The holder counts on its own monotonic clock from
*before* it asked, less a margin, so that it stops before anybody else can start.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onefold.errors import Busy, LeaseLost, UsageError
from onefold.model import checks
from onefold.model.claim import Claim, ClaimAnswer, ClaimKey, Won, want
from onefold.model.timestamps import span
from onefold.model.unique import fingerprint
from onefold.operations import claims
from onefold.runtime import Pause, Procedure, Transact, waits

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from onefold.app.context import Context

MARGIN: Final = 0.1
"""The part of a lease in which the holder no longer trusts it."""

_held: ContextVar[tuple[tuple[_Mine, weakref.ref[Lock]], ...]] = ContextVar(
    "onefold_locks", default=()
)
"""Locks taken in this context, and by which task or thread: a context is also inherited by tasks
that are started here, and those may well wait for a lock that we hold. A lock that is left to its
ttl is kept alive by nothing here."""

_Mine: TypeAlias = tuple[int, str, ClaimKey]
"""Whose lock it is, of which database, on what."""


def _whoami() -> int:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident() if task is None else id(task)


class Lock:
    """A lock for `with` and for `async with`."""

    def __init__(
        self, context: Context, key: ClaimKey, ttl: timedelta, wait: timedelta | None
    ) -> None:
        """Nothing is asked of the database yet."""
        span(ttl, "ttl", least=timedelta(milliseconds=1))
        if wait is not None:
            span(wait, "wait")
        if context.borrowed is not None:
            raise UsageError(
                "A lock is leased, and a lease cannot be part of your transaction. Take the lock"
                " from the Onefold object, and check it in the transaction:"
                " within(connection).guard(lock)."
            )
        self._context = context
        self._key = key
        self._ttl = ttl
        self._wait = wait
        self._claim: Claim | None = None
        self._in_use = False
        self._mutex = threading.Lock()
        """Held for a moment, to change the two above together."""
        self._trusted_until = 0.0

    @property
    def is_held(self) -> bool:
        """True from the acquiring to the releasing, though the lease may be over: see `lost`."""
        return self._claim is not None

    @property
    def claim(self) -> Claim:
        """The claim behind the lock; `LeaseLost` where it is not held."""
        if self._claim is None:
            raise LeaseLost(f"the lock {self._key.key!r}", fence=0)
        return self._claim

    @property
    def fence(self) -> int:
        """Strictly greater than every earlier one of this name: give it to what you write to."""
        return self.claim.fence

    @property
    def lost(self) -> bool:
        """True where the lease may be somebody else's by now."""
        return self._claim is None or time.monotonic() >= self._trusted_until

    def check(self) -> None:
        """Raise `LeaseLost` before an effect that must not overlap."""
        if self.lost:
            fence = 0 if self._claim is None else self._claim.fence
            raise LeaseLost(f"the lock {self._key.key!r}", fence=fence)

    def derived(self, name: str) -> str:
        """A key for a third party that knows no fences. Best effort: as good as its memory."""
        return self._key.derived(f"{self.fence}:{name}")

    def acquire(self) -> Self:
        """Take it, or raise `Busy` (after `wait`, if given)."""
        self._context.runtime.run(self._acquire())
        return self

    async def aacquire(self) -> Self:
        """`acquire`, awaited."""
        await self._context.runtime.arun(self._acquire())
        return self

    def release(self) -> bool:
        """Give it back; False if it was no longer yours."""
        return self._context.runtime.run(self._release())

    async def arelease(self) -> bool:
        """`release`, awaited."""
        return await self._context.runtime.arun(self._release())

    def renew(self) -> None:
        """Extend it by its ttl, under the same fence; `LeaseLost` if it has ended."""
        self._context.runtime.run(self._renew())

    async def arenew(self) -> None:
        """`renew`, awaited."""
        await self._context.runtime.arun(self._renew())

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

    async def __aenter__(self) -> Self:
        """Acquire."""
        return await self.aacquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release, whatever happened."""
        await self.arelease()

    def _acquire(self) -> Procedure[None]:
        """One holder an object: its release could not tell two of them apart."""
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
        if any(whose == mine for whose, _ in _still_held()):
            raise UsageError(
                f"The lock {self._key.key!r} is already held here; asking again would wait for"
                " itself."
            )
        pauses = waits(self._wait)
        while True:
            wanted = want(self._key, lease=self._ttl, takeover="rerun")
            asked = time.monotonic()
            answer: ClaimAnswer = yield Transact(partial(claims.claim, wanted=wanted))
            if isinstance(answer, Won):
                self._claim = answer.claim
                self._trust(asked)
                return
            assert isinstance(answer, Busy)
            pause = next(pauses, None)
            if pause is None:
                raise answer
            yield Pause(min(pause, max(answer.retry_after.total_seconds(), 0.001)))

    def _mine(self) -> _Mine:
        database = self._context.database
        return (_whoami(), f"{database.label} {database.sql.schema}", self._key)

    def _trust(self, asked: float) -> None:
        self._trusted_until = asked + self._ttl.total_seconds() * (1 - MARGIN)
        others = (entry for entry in _still_held() if entry[1]() is not self)
        _held.set((*others, (self._mine(), weakref.ref(self))))

    def _release(self) -> Procedure[bool]:
        with self._mutex:
            claim, self._claim = self._claim, None
            if claim is None:
                return False
            self._in_use = False
        _held.set(_still_held())
        released: set[str] = yield Transact(lambda sql: claims.release(sql, [claim], strict=True))
        return bool(released)

    def _renew(self) -> Procedure[None]:
        claim, asked = self.claim, time.monotonic()
        micros = span(self._ttl, "ttl")
        until: Any = yield Transact(lambda sql: claims.renew(sql, claim, lease=micros))
        if until is None:
            self._trusted_until = 0.0
            raise LeaseLost(f"the lock {self._key.key!r}", fence=claim.fence)
        self._trust(asked)


def _still_held() -> tuple[tuple[_Mine, weakref.ref[Lock]], ...]:
    """What this context has taken, less what was released, forgotten, or left to its ttl."""
    return tuple(
        entry for entry in _held.get() if (lock := entry[1]()) is not None and not lock.lost
    )


def lock_key(name: object) -> str:
    """Any text may name a lock; one too long for a key is digested."""
    if isinstance(name, str) and len(name.encode("utf-8", "replace")) > checks.KEY_BYTES:
        return f"digest:{fingerprint(name)}"
    return checks.key(name, "name")
