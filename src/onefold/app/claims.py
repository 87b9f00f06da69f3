"""The calls on claims: claim, once, lock."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from onefold.effects.claims import SURFACE, ClaimOptions, DatabaseClaims
from onefold.effects.lock import DatabaseLocks, Lock, lock_key
from onefold.effects.once import OnceContext, OnceOptions
from onefold.model import checks
from onefold.runtime import Calls, Procedure, awaited, call

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from onefold.app.context import Context
    from onefold.effects.once import AttemptOptions, OnceClaim
    from onefold.model.claim import ClaimAnswer


class ClaimCalls(Calls):
    """Keys outside of jobs. `keys` settles and releases the claims that `claim` has won."""

    context: Context

    @call
    def claim(
        self, scope: str, key: str, *, surface: str = SURFACE, **options: Unpack[ClaimOptions]
    ) -> Procedure[ClaimAnswer]:
        """Take a key. Returns Won, Replay, Busy, Mismatch or Unknown.

        Within a caller's transaction the claim, the work and the result commit together. Otherwise
        the claim commits now and the work follows under a lease; `takeover` decides what happens
        if the worker vanishes.
        """
        checks.options(options, ClaimOptions.__optional_keys__)
        claims = DatabaseClaims(self.context)
        return claims.claim(claims.want(surface, scope, key, options))

    aclaim: Final = awaited(claim)

    @overload
    def once(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        *,
        busy: Literal["raise"] = "raise",
        **options: Unpack[AttemptOptions],
    ) -> OnceContext[OnceClaim]: ...
    @overload
    def once(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        *,
        busy: Literal["skip"],
        **options: Unpack[AttemptOptions],
    ) -> OnceContext[OnceClaim | None]: ...
    def once(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        **options: Unpack[OnceOptions],
    ) -> OnceContext[Any]:
        """Run a block or a function once per key, and store its result.

        For `with`, for `async with`, and as a decorator of plain and of coroutine functions. A
        failure releases the key; with `not_done=`, only the failures that it names do. For a
        decorator, `key` may be a function of the arguments; without `key`, the digest of the
        arguments is the key.
        """
        return OnceContext(DatabaseClaims(self.context), name, key, options)

    def lock(
        self, name: str, *, ttl: timedelta = timedelta(seconds=30), wait: timedelta | None = None
    ) -> Lock:
        """A lease on a name, with a fencing token, for `with` and for `async with`.

        It prevents that work is done twice *at once*. It is an efficiency lock: a holder that is
        paused past its `ttl` may overlap with the next holder. If that must not happen, check the
        lock inside of the transaction that writes: `within(connection).guard(lock)`.
        """
        key = DatabaseClaims(self.context).key("", lock_key(name), "lock")
        return Lock(DatabaseLocks(self.context), key, ttl, wait)
