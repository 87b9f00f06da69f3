"""`Once`: one attempt at a request, as its handler sees it."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from types import UnionType
from typing import TYPE_CHECKING, Any, Never, Union, get_args, get_origin

from onefold.databases.handler_transaction import abegin, begin, begun_here, is_blocking, is_target
from onefold.effects.step_log import StepLog
from onefold.effects.step_store import ClaimSteps, DatabaseSteps, UnstoredSteps
from onefold.effects.steps import Stepping, step_key
from onefold.errors import ConflictingOptions, LeaseLost, UsageError
from onefold.model.ids import new_id
from onefold.operations import claims

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from onefold.app.onefold import Tenant, Within
    from onefold.effects.lease_keeper import KeptLease
    from onefold.model.claim import Claim, Guarantee
    from onefold.web.idempotency.exchange import Exchange


class Once(Stepping):
    """One attempt at a request: connection, steps and keys for its handler."""

    def __init__(self, exchange: Exchange, onefold: Tenant) -> None:
        """Made for each request whose handler runs."""
        self._exchange = exchange
        self._onefold = onefold
        self._context = onefold.context
        self._options = {}
        self._lost = False
        self.was_used: bool = False
        """True if the handler has used the connection."""
        self.kept_lease: KeptLease | None = None

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> Never:
        """FastAPI calls this for a parameter that it would read from the request."""
        raise UsageError(
            "A parameter annotated Once is given by @idempotency(…), not read from the request."
            " Write the route on top and @idempotency(…) below it, directly above the function."
            " A dependency cannot have it: the attempt begins after the dependencies."
        )

    @property
    def claim(self) -> Claim | None:
        """The claim on the key; None if the request has no key or runs unprotected."""
        return self._exchange.claim

    @property
    def request_key(self) -> str | None:
        """The key that the client sent."""
        key = self._exchange.key
        return None if key is None else key.key

    @property
    def fence(self) -> int | None:
        """The number of this attempt, strictly growing per key."""
        return None if self.claim is None else self.claim.fence

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee for the effect; None without a key."""
        return None if self.claim is None else self._exchange.policy.promises

    @property
    def resumed(self) -> bool:
        """True if an earlier attempt has died, and its finished steps count."""
        return self.claim is not None and self.claim.resumed

    @property
    def connection(self) -> Any:
        """The connection or session of the transaction that is committed with the response."""
        self.was_used = True
        if self._exchange.transaction is not None:
            return self._exchange.transaction.connection
        if self._exchange.policy.joined:
            raise UsageError(
                "The transaction of this request has ended: its response is committed."
            )
        raise UsageError(
            "This route has a lease and no transaction. Give transaction= to have one that is"
            " committed with the response; or use `with once.transaction():` for rows that"
            " must not be written by an attempt that has lost its lease."
        )

    def within(self) -> Within:
        """Onefold inside the transaction that is open here: `once.within().enqueue(…)`.

        Its writes are committed with the response, or with the block of `transaction()`.
        """
        here = begun_here(self._context.database)
        if self._exchange.transaction is None and here is not None:
            return self._onefold.within(here.connection)
        return self._onefold.within(self.connection)

    @contextmanager
    def transaction(self, on: object = None) -> Generator[Any]:
        """A transaction that is committed only while the key is still ours.

        For a leased route: its rows are committed before the response, so use a step for what must
        not be repeated. `on` is an engine, a pool, a maker of sessions; None is our own database.
        """
        self.check()
        context = self._context
        with begin(on, context.database) as begun:
            yield begun.connection
            if self.claim is not None:
                claim = self.claim
                with self._noting_loss():
                    begun.execute(lambda sql: claims.guard(sql, claim))

    @asynccontextmanager
    async def atransaction(self, on: object = None) -> AsyncGenerator[Any]:
        """`transaction`, awaited."""
        self.check()
        context = self._context
        async with await abegin(on, context.database) as begun:
            yield begun.connection
            if self.claim is not None:
                claim = self.claim
                with self._noting_loss():
                    await begun.aexecute(lambda sql: claims.guard(sql, claim))

    @property
    def lost(self) -> bool:
        """True if another attempt may hold the key: stop, and have no more effects."""
        return self._lost or (self.kept_lease is not None and self.kept_lease.lost)

    def check(self) -> None:
        """Raise `LeaseLost` before an effect that must not be repeated."""
        if self.lost and self.claim is not None:
            key = self.claim.key
            raise LeaseLost(f"{key.surface} {key.key!r}", fence=self.claim.fence)

    @contextmanager
    def _noting_loss(self) -> Generator[None]:
        try:
            yield
        except LeaseLost:
            self._lose()
            raise

    def key(self, name: str | None = None, key: str | None = None) -> str:
        """A key for a third party: the same over every attempt at this request.

        `once.key("charge")` is that of the first step of this name, `once.key("charge", order)` of
        the one with that key. Of a request without a key it is this attempt's alone.
        """
        if name is not None and self.claim is not None and self._exchange.policy.joined:
            return self.claim.key.derived(name if key is None else f"{name}:{key}")
        return step_key(self._step_log, name, key)

    @cached_property
    def _steps(self) -> DatabaseSteps:
        return UnstoredSteps(new_id()) if self.claim is None else ClaimSteps(self.claim)

    @cached_property
    def _step_log(self) -> StepLog:
        return StepLog(self._steps, self._lose)

    @property
    def _log(self) -> StepLog:
        if self.claim is not None:
            self._exchange.has_steps = self._exchange.policy.takeover == "resume"
        return self._step_log

    def _lose(self) -> None:
        self._lost = True


def check_target(target: object, *, blocks: bool = False) -> None:
    """Reject a target that has no transactions, or that a plain handler cannot use."""
    if target is None or (callable(target) and not is_target(target)):
        return
    if not is_blocking(target) and blocks:
        raise ConflictingOptions(
            "transaction",
            "is async, and the handler is a plain function, which cannot await. Make the handler"
            " `async def`, or give a blocking target",
        )


def once_parameters(endpoint: Callable[..., Any]) -> list[str]:
    """The names of the parameters that are annotated `Once`."""
    try:
        hints = inspect.get_annotations(endpoint, eval_str=True)
    except NameError:
        hints = inspect.get_annotations(endpoint)
    return [name for name, hint in hints.items() if _is_once(hint)]


def _is_once(hint: Any) -> bool:
    """True for `Once` and `Once | None`."""
    return hint in (Once, "Once", "Once | None") or (
        get_origin(hint) in (Union, UnionType) and Once in get_args(hint)
    )
