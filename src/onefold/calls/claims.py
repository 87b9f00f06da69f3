"""The calls about keys: claim, settle, release; `once` and `lock` are made of them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, overload

import msgspec

from onefold.calls.lock import AsyncLock, Lock
from onefold.calls.once import AsyncOnce, Once, OnceSettings
from onefold.calls.procedure import Conductor, Procedure, Transaction
from onefold.calls.settlement import settle
from onefold.errors import Busy, ConflictingOptions, DatabaseBusy, InvalidInput
from onefold.model import checks
from onefold.model.claim import (
    JOINED_RETRY,
    Claim,
    ClaimAnswer,
    ClaimKey,
    Holding,
    Takeover,
    Wanted,
    checked_claim,
    claim_key,
    encode_result,
    refuse_leased_within,
    want,
)
from onefold.model.ids import hash_of, parse_id
from onefold.model.outcome import checked_rules
from onefold.model.timestamps import span
from onefold.model.unique import fingerprint
from onefold.operations import claims, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from typing import Unpack

    from onefold.calls.once import BusyPolicy, OnceClaim
    from onefold.model.outcome import ErrorRule
    from onefold.model.verify import Verify
    from onefold.operations.statement import Operation, Sql

LEASE: Final = timedelta(seconds=60)
SURFACE: Final = "once"

KEEPERS: Final = {
    "publish": "enqueue()",
    "lock": "lock()",
    "cron": "schedules",
    "step": "run.step()",
}
"""Who claims on the surfaces whose rows mean something to us."""


class ClaimOptions(TypedDict, total=False):
    """How a key is claimed."""

    fingerprint: str | None
    """Digest of the request: the same key with another one is a Mismatch."""
    lease: timedelta | None
    """How long the work may take before others may step in; 60 s. Not within a transaction."""
    takeover: Takeover | None
    """What happens when the work vanishes: rerun, resume or refuse (the default)."""
    retention: timedelta | None
    """How long the outcome is remembered; until told, by default."""


class AttemptOptions(ClaimOptions, total=False):
    """How `once` runs something."""

    verify: Verify | None
    """Finds out what became of an attempt whose outcome is unknown."""
    not_done: ErrorRule | Sequence[ErrorRule] | None
    """Exceptions that give the key back: after any other the outcome is unknown.

    None, the default outside of a job: every exception gives it back.
    """
    issued_at: datetime | None
    """When the message was made: refused if older than what the ledger remembers."""
    wait: timedelta | None
    """How long to wait while somebody else is at work."""


class OnceOptions(AttemptOptions, total=False):
    """The same, and what is done where somebody else is at work."""

    busy: BusyPolicy
    """`raise` (the default), or `skip`: None instead of a claim."""


class ClaimCalls:
    """Keys outside of jobs."""

    _conductor: Conductor
    _tenant: str

    def claim(
        self, scope: str, key: str, *, surface: str = SURFACE, **options: Unpack[ClaimOptions]
    ) -> ClaimAnswer:
        """Take a key: Won, Replay, Busy, Mismatch or Unknown.

        Within a caller's transaction the claim, the work and the result commit together. Otherwise
        the claim commits now, the work follows under a lease, and `takeover` says what happens when
        it vanishes.
        """
        checks.options(options, ClaimOptions.__optional_keys__)
        return self._conductor.run(self._claim(self._want(surface, scope, key, options)))

    async def aclaim(
        self, scope: str, key: str, *, surface: str = SURFACE, **options: Unpack[ClaimOptions]
    ) -> ClaimAnswer:
        """`claim`, awaited."""
        checks.options(options, ClaimOptions.__optional_keys__)
        return await self._conductor.arun(self._claim(self._want(surface, scope, key, options)))

    def _want(self, surface: str, scope: str, key: str, options: ClaimOptions) -> Wanted:
        joined = self._conductor.borrowed is not None
        lease, takeover = options.get("lease"), options.get("takeover")
        if joined:
            refuse_leased_within(lease=lease, takeover=takeover)
        return want(
            self._key(scope, key, open_surface(surface)),
            fingerprint=options.get("fingerprint"),
            lease=None if joined else LEASE if lease is None else lease,
            takeover="refuse" if takeover is None else takeover,
            retention=options.get("retention"),
        )

    def _key(self, scope: object, key: object, surface: str = SURFACE) -> ClaimKey:
        return claim_key(self._tenant, surface, scope, key)

    def _claim(self, wanted: Wanted) -> Procedure[ClaimAnswer]:
        try:
            answer: ClaimAnswer = yield Transaction(lambda sql: claims.claim(sql, wanted))
        except DatabaseBusy:
            if not wanted.joined:
                raise
            # SQLite: another transaction has the file, and may be working on this very key.
            return Busy(key=wanted.key.key, retry_after=JOINED_RETRY)
        return answer

    def settle(self, claim: Claim, result: Any = None) -> None:
        """Store the outcome under the fence; `LeaseLost` where it is no longer yours."""
        self._conductor.run(_settle(claim, result))

    async def asettle(self, claim: Claim, result: Any = None) -> None:
        """`settle`, awaited."""
        await self._conductor.arun(_settle(claim, result))

    def release(self, claim: Claim) -> bool:
        """Give a key back unsettled; False where it is no longer yours."""
        return self._conductor.run(_release(claim))

    async def arelease(self, claim: Claim) -> bool:
        """`release`, awaited."""
        return await self._conductor.arun(_release(claim))

    def renew(self, claim: Claim, *, lease: timedelta = LEASE) -> datetime | None:
        """Let a lease that has not ended last `lease` from now; None where it has ended.

        Answers until when. A lease that lasts longer already is not shortened.
        """
        return self._conductor.run(_renew(claim, lease))

    async def arenew(self, claim: Claim, *, lease: timedelta = LEASE) -> datetime | None:
        """`renew`, awaited."""
        return await self._conductor.arun(_renew(claim, lease))

    def force_settle(
        self,
        scope: str,
        key: str,
        result: Any = None,
        *,
        surface: str = SURFACE,
        step: str | None = None,
    ) -> bool:
        """An operator's word: this key is done, with this result. Its holder is fenced off.

        With `step`, the label of one, that step of its last attempt is done: the next attempt goes
        on behind it.
        """
        held = self._key(scope, key, open_surface(surface))
        return self._conductor.run(_force(held, Holding.SETTLED, encode_result(result), step))

    async def aforce_settle(
        self,
        scope: str,
        key: str,
        result: Any = None,
        *,
        surface: str = SURFACE,
        step: str | None = None,
    ) -> bool:
        """`force_settle`, awaited."""
        held = self._key(scope, key, open_surface(surface))
        return await self._conductor.arun(
            _force(held, Holding.SETTLED, encode_result(result), step)
        )

    def force_release(
        self, scope: str, key: str, *, surface: str = SURFACE, step: str | None = None
    ) -> bool:
        """An operator's word: this key is free. Its holder is fenced off.

        With `step`, the label of one, that step of its last attempt was not done, and may run.
        """
        held = self._key(scope, key, surface)
        return self._conductor.run(_force(held, Holding.FREE, None, step))

    async def aforce_release(
        self, scope: str, key: str, *, surface: str = SURFACE, step: str | None = None
    ) -> bool:
        """`force_release`, awaited."""
        held = self._key(scope, key, surface)
        return await self._conductor.arun(_force(held, Holding.FREE, None, step))

    @overload
    def once(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        *,
        busy: Literal["raise"] = "raise",
        **options: Unpack[AttemptOptions],
    ) -> Once[OnceClaim]: ...
    @overload
    def once(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        *,
        busy: Literal["skip"],
        **options: Unpack[AttemptOptions],
    ) -> Once[OnceClaim | None]: ...
    def once(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        **options: Unpack[OnceOptions],
    ) -> Once[Any]:
        """Run something once per key, and remember its result.

        A context manager (`with onefold.once("import", digest) as claim:`) or a decorator. A
        failure releases the key; with `not_done=`, only the failures that it names do. For a
        decorator, `key` may compute it from the arguments; without one, it is digested from them.
        """
        return Once(self._settings(name, key, options))

    @overload
    def aonce(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        *,
        busy: Literal["raise"] = "raise",
        **options: Unpack[AttemptOptions],
    ) -> AsyncOnce[OnceClaim]: ...
    @overload
    def aonce(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        *,
        busy: Literal["skip"],
        **options: Unpack[AttemptOptions],
    ) -> AsyncOnce[OnceClaim | None]: ...
    def aonce(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        **options: Unpack[OnceOptions],
    ) -> AsyncOnce[Any]:
        """`once` for `async with` and for coroutine functions."""
        return AsyncOnce(self._settings(name, key, options))

    def _settings(
        self, name: str, key: str | Callable[..., str] | None, options: OnceOptions
    ) -> OnceSettings:
        checks.options(options, OnceOptions.__optional_keys__)
        busy, wait = options.get("busy", "raise"), options.get("wait")
        if busy not in ("raise", "skip"):  # a tuple: what is unhashable is refused too
            raise InvalidInput("busy", f"must be raise or skip, got {busy!r}")
        if wait is not None:
            span(wait, "wait")
        verify = options.get("verify")
        if verify is not None and not callable(verify):
            raise InvalidInput("verify", f"must be a function, got {verify!r}")
        return OnceSettings(
            conductor=self._conductor,
            claim=self._claim,
            want=lambda found: self._want(SURFACE, name, found, options),
            key=key,
            verify=verify,
            not_done=self._not_done(options.get("not_done"), options.get("takeover")),
            retention=options.get("retention"),
            issued_at=options.get("issued_at"),
            busy=busy,
            wait=wait,
        )

    def _not_done(
        self, not_done: object, takeover: Takeover | None
    ) -> tuple[ErrorRule, ...] | None:
        """The exceptions that give a key back; None where all do."""
        if not_done is None:
            return None
        if self._conductor.borrowed is not None:
            raise ConflictingOptions("not_done", "is for a lease: what you roll back is not done")
        if takeover not in (None, "refuse"):
            raise ConflictingOptions("not_done", f"needs takeover='refuse', got {takeover!r}")
        return checked_rules(not_done, "not_done")

    def lock(
        self, name: str, *, ttl: timedelta = timedelta(seconds=30), wait: timedelta | None = None
    ) -> Lock:
        """A lease on a name, with a fencing token: keeps work from being done twice *at once*.

        It is an efficiency lock: a holder that is paused past its `ttl` may overlap with the next.
        Where that must not matter, check it inside the transaction that writes:
        `within(connection).guard(lock)`.
        """
        return Lock(self._conductor, self._key("", lock_key(name), "lock"), ttl, wait)

    def alock(
        self, name: str, *, ttl: timedelta = timedelta(seconds=30), wait: timedelta | None = None
    ) -> AsyncLock:
        """`lock` for `async with`."""
        return AsyncLock(self._conductor, self._key("", lock_key(name), "lock"), ttl, wait)

    def unlock(self, name: str) -> bool:
        """An operator's word: take a lock from its holder and fence it off."""
        return self.force_release("", lock_key(name), surface="lock")

    async def aunlock(self, name: str) -> bool:
        """`unlock`, awaited."""
        return await self.aforce_release("", lock_key(name), surface="lock")


def lock_key(name: object) -> str:
    """Any text may name a lock; one too long for a key is digested."""
    if isinstance(name, str) and len(name.encode("utf-8", "replace")) > checks.KEY_BYTES:
        return f"digest:{fingerprint(name)}"
    return checks.key(name, "name")


def open_surface(surface: str) -> str:
    """A surface that anybody may claim and settle: not one whose rows mean something to us."""
    keeper = KEEPERS.get(checks.name(surface, "surface"))
    if keeper is not None:
        raise InvalidInput("surface", f"{surface!r} is kept by {keeper}; take another")
    return surface


def _settle(claim: Claim, result: Any) -> Procedure[None]:
    held, text = checked_claim(claim), encode_result(result)
    yield settle(held, text)


def _release(claim: Claim) -> Procedure[bool]:
    held = checked_claim(claim)
    released: set[str] = yield Transaction(lambda sql: claims.release(sql, [held]))
    return bool(released)


def _renew(claim: Claim, lease: timedelta) -> Procedure[datetime | None]:
    held, micros = checked_claim(claim), span(lease, "lease")
    until: datetime | None = yield Transaction(lambda sql: claims.renew(sql, held, lease=micros))
    return until


def _force(key: ClaimKey, state: Holding, result: str | None, step: str | None) -> Procedure[bool]:
    label = None if step is None else checks.key(step, "step")

    def build(sql: Sql) -> Operation[bool]:
        for one in _places(key):
            if label is None:
                done = yield from claims.force(sql, one, state, result=result)
            else:
                done = yield from steps.force_claim_step(
                    sql, one, label=label, state=state, value=result
                )
            if done:
                return True
        return False

    forced: bool = yield Transaction(build)
    return forced


def _places(key: ClaimKey) -> list[ClaimKey]:
    """Where a key may live: by itself, or beside the job whose id is its scope (`run.once`)."""
    try:
        home = hash_of(parse_id(key.scope))
    except InvalidInput:
        return [key]
    return [key, msgspec.structs.replace(key, home=home)]
