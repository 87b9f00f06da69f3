"""One keyed request: claim its key, run the handler, store the response or replay it.

Joined: the claim is the first statement of the handler's transaction and the response its last.
Leased: the claim is committed first, and the response is stored while the lease is still held.
ASGI, WSGI, Django and the server run the procedures `begin`, then `finish` or `fail`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from onefold.databases import Transact
from onefold.effects.claims import DatabaseClaims, settle_item
from onefold.effects.verify import Done, ask, resolve
from onefold.errors import Busy, DatabaseError, InvalidInput, LeaseLost, OutcomeUnknown, UsageError
from onefold.model.claim import Claim, Holding, Mismatch, Replay, StoredClaim, Unknown, Wanted, Won
from onefold.model.claim import ClaimAnswer as Claimed
from onefold.operations import claims
from onefold.runtime import Batch, Begin, Call, Pause, shielded, transact
from onefold.web import problems
from onefold.web.http import HttpResponse
from onefold.web.idempotency.encryption import UnreadableAnswer
from onefold.web.idempotency.once_parameter import Once
from onefold.web.idempotency.policy import CLIENT_ERRORS
from onefold.web.idempotency.request_claim import RequestClaim
from onefold.web.idempotency.stored_response import read_response, replay, write_response
from onefold.web.problems import Refused
from onefold.web.transient_errors import is_passing, trace_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from onefold.databases import Build
    from onefold.databases.handler_transaction import HandlerTransaction
    from onefold.operations.statement import Operation, Sql
    from onefold.runtime import Procedure
    from onefold.web.http import Header
    from onefold.web.idempotency.policy import Fate, RoutePolicy
    from onefold.web.problems import Problem, ProblemKind

T = TypeVar("T")

UNPROTECTED: Final = "Idempotency-Unprotected"
STORE_PAUSES: Final = (0.05, 0.2, 0.5)
"""Seconds before a response that could not be stored is stored again."""
_MINUTE: Final = 60_000_000

log: logging.Logger = logging.getLogger("onefold.web")


class Exchange(RequestClaim):
    """One keyed request under the policy of its route."""

    is_open: bool = False
    """True while the handler runs and its response will be stored or committed."""
    has_succeeded: bool = False
    has_steps: bool = False
    """True if the attempt has written steps that a resume would find."""
    problem: Problem | None = None
    """Why the request was rejected."""
    _is_unprotected: bool = False
    _once: Once | None = None
    _error: BaseException | None = None
    _is_undone: bool = False

    @property
    def once(self) -> Once:
        """The attempt as the handler sees it."""
        if self._once is None:
            raise UsageError("The handler of this request does not run: it has a response already.")
        return self._once

    @property
    def added(self) -> tuple[Header, ...]:
        """Headers that are added to those of the handler."""
        more: list[Header] = []
        if not self.is_open:
            return ()
        if self.policy.mark_first and self.key is not None:
            more.append((self.policy.marker, "false"))
        if self._is_unprotected:
            more.append((UNPROTECTED, "true"))
        return tuple(more)

    def is_lost_by(self, error: BaseException | None) -> bool:
        """True if the handler has stopped because it lost its key: this is not a failure."""
        return isinstance(error, LeaseLost) and self.once.lost

    # --- run --------------------------------------------------------------------------------------

    def run(self, procedure: Procedure[T]) -> T:
        """Run a procedure of this exchange, blocking."""
        return self.runtime.run(procedure)

    async def arun(self, procedure: Procedure[T]) -> T:
        """`run`, awaited; it runs to its end even if the request is cancelled."""
        return await self.runtime.arun_to_end(procedure)

    async def abegin(
        self, disconnected: Callable[[], Awaitable[object]] | None = None
    ) -> HttpResponse | None:
        """`begin`, awaited; `disconnected` returns when the client has gone.

        A claim is given back if the request is cancelled meanwhile. Otherwise it would hold its
        key for a whole lease.
        """
        # Most retries need no claim, and no task that protects it.
        response = await self.runtime.arun(self.look())
        if response is not None:
            return response
        begun, outcome = shielded(self.runtime.arun(self.begin()))
        try:
            if disconnected is not None and self.policy.wait is not None:
                gone = asyncio.ensure_future(disconnected())
                try:
                    await asyncio.wait({begun, gone}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    gone.cancel()
                self._client_left = True
            response = await outcome
        except asyncio.CancelledError:
            self._client_left = True
            await shielded(self._give_back_after(begun))[1]
            raise
        if self.transaction is not None:
            # The task has entered it in a copy of this context.
            self.transaction.enter()
        return response

    async def _give_back_after(self, begun: asyncio.Task[HttpResponse | None]) -> None:
        with suppress(Exception):  # The request that would receive it is cancelled.
            if await begun is None:
                await self.runtime.arun(self.give_back())

    # --- begin ------------------------------------------------------------------------------------

    def look(self) -> Procedure[HttpResponse | None]:
        """The replay for a retry, by a read; None if more is needed."""
        return (yield from self._answered(self._look))

    def begin(self) -> Procedure[HttpResponse | None]:
        """Claim the key. None: the handler runs; otherwise the response to send."""
        response = yield from self._answered(self._begin)
        if response is not None:
            return response
        registry = self.route.registry
        self._once = Once(self, registry.onefold)
        if self.claim is not None and not self.policy.joined:
            self._once.kept_lease = registry.lease_keeper.keep(self.claim, self.policy.lease)
        is_held = self.transaction is not None or self.claim is not None
        self.is_open = is_held or self._is_unprotected
        return None

    def _answered(
        self, attempt: Callable[[], Procedure[HttpResponse | None]]
    ) -> Procedure[HttpResponse | None]:
        """Read the key, then do `attempt`; a rejection is a response, too."""
        try:
            self._identify()
        except Refused as refused:
            return self._refusal(refused.problem)
        try:
            response = yield from attempt()
        except UsageError:
            raise
        except Exception as error:
            log.error(  # noqa: TRY400
                "A key could not be claimed or replayed: %s", error, exc_info=trace_of(error)
            )
            response = self._rejected("unavailable", problems.UNAVAILABLE, retry_after=1)
        if response is not None:
            self.route.registry.ended(self)
        return response

    def _look(self) -> Procedure[HttpResponse | None]:
        if self.key is None or self._claims_at_once:
            return None
        try:
            found = yield from self._find()
        except DatabaseError:
            return None
        self._has_looked = found is None
        return (yield from self._response_to(found)) if isinstance(found, Replay) else None

    def _begin(self) -> Procedure[HttpResponse | None]:
        claimed: Claimed | None = None
        try:
            if self.key is not None:
                claimed = yield from self._claim_or_wait()
                return (yield from self._response_to(claimed))
            if self.policy.joined:
                self.transaction: HandlerTransaction | None = yield Begin(
                    self._target, self.route.is_plain
                )
        except UsageError:
            raise
        except Exception as error:
            # A claim that was answered may mean that the request has run already.
            if not self.policy.fail_open or claimed is not None:
                raise
            log.error(  # noqa: TRY400
                "A request runs unprotected: %s", error, exc_info=trace_of(error)
            )
            self.outcome, self._is_unprotected = "unprotected", True
        return None

    def _response_to(self, claimed: Claimed) -> Procedure[HttpResponse | None]:
        match claimed:
            case Won(claim):
                self.claim: Claim | None = claim
                self.outcome = "resumed" if claim.resumed else "won"
                return None
            case Replay(result):
                if result is None:
                    # Settled by an operator, without a response.
                    return self._rejected("replayed", problems.RESPONSE_NOT_KEPT)
                self.outcome = "replayed"
                return (yield from self._replay(result))
            case Busy(retry_after):
                # Not the whole lease: most handlers are done soon, and one that has run for a
                # while may run for as long again. Whole seconds, at least one.
                wait = min(retry_after, self._running)
                return self._rejected("busy", problems.IN_PROGRESS, retry_after=wait)
            case Mismatch():
                return self._rejected("mismatch", problems.KEY_REUSED)
            case Unknown():
                return (yield from self._verify(claimed))

    def _replay(self, result: object) -> Procedure[HttpResponse]:
        policy, request = self.policy, self.request
        try:
            stored = read_response(result, policy, self._key)
        except UnreadableAnswer as error:
            log.error("The stored response of a key cannot be read: %s", error)  # noqa: TRY400
            return self._rejected("unknown", problems.OUTCOME_UNKNOWN)
        if policy.refresh is not None and isinstance(stored, HttpResponse):
            stored = yield Call(policy.refresh, (request, stored))
        return replay(stored, policy, request)

    def _verify(self, unknown: Unknown) -> Procedure[HttpResponse | None]:
        verify, key = self.policy.verify, self._key.key
        found = None if verify is None else (yield from ask(verify, key, label=key))
        if found is None:
            return self._rejected("unknown", problems.OUTCOME_UNKNOWN)
        text = ""
        if isinstance(found, Done):
            if not isinstance(found.result, HttpResponse):
                raise InvalidInput("verify", f"must return Done(HttpResponse(…)), got {found!r}")
            text = self._text(found.result)
        stored = DatabaseClaims(self.route.registry.context)
        taken = yield from resolve(stored, self._wanted(), unknown, found, result=text)
        claimed = Won(taken) if taken is not None else (yield from self._claim())
        if isinstance(claimed, Unknown):
            return self._rejected("unknown", problems.OUTCOME_UNKNOWN)
        return (yield from self._response_to(claimed))

    # --- end --------------------------------------------------------------------------------------

    def finish(self, response: HttpResponse) -> Procedure[HttpResponse]:
        """Store the response; returns the one to send, which is most often the same."""
        if not self.is_open:
            return response
        try:
            if self.is_lost_by(self._error):
                return (yield from self._lose())
            return (yield from self._finish(response))
        finally:
            self._close()

    def fail(self, error: BaseException) -> Procedure[HttpResponse | None]:
        """The handler has raised, and the application has no response that could be stored.

        Returns the response to send; None: the application responds. The application logs the
        exception in both cases, unless `is_lost_by` is true of it.
        """
        if not self.is_open:
            return None
        try:
            if self.is_lost_by(error):
                return (yield from self._lose())
            return (yield from self._fail(error))
        finally:
            self._close()

    def undo(self, error: BaseException) -> Procedure[None]:
        """The handler has raised: roll back what it has written."""
        self._error = error
        if self.is_open:
            yield from self._undo()

    def give_back(self) -> Procedure[None]:
        """Free the key of a handler that has not begun, or that may run again."""
        self.is_open = False
        self._stop_renewing()
        yield from self._undo()
        if self.claim is not None and not self.policy.joined:
            try:
                yield self._release(self.claim)
            except DatabaseError as error:
                log.warning("A key is not free before its lease has ended: %s", error)

    def _finish(self, response: HttpResponse) -> Procedure[HttpResponse]:
        error = self._error
        fate = self.policy.fate(response.status)
        self.has_succeeded = error is None and response.status < CLIENT_ERRORS
        is_passing = response.status in self.route.passing
        if is_passing or (error is not None and isinstance(error, self.policy.retryable)):
            fate = "release"
        fate = self._fate_if_unknown(error) or fate
        if self._is_undone:
            yield from self._store_rejection(response, fate)
            return response
        if self.policy.joined:
            return (yield from self._finish_joined(response, fate))
        if self.claim is None:
            return response
        return (yield from self._finish_leased(self.claim, response, fate))

    def _fail(self, error: BaseException) -> Procedure[HttpResponse | None]:
        """A stored failure is also the response to this request: a retry gets the same bytes."""
        yield from self._undo()
        if self.claim is None or self.policy.joined:
            return None
        unknown = self._fate_if_unknown(error)
        fate = unknown or self.policy.fate_of(error)
        kind = problems.OUTCOME_UNKNOWN if unknown else problems.ATTEMPT_FAILED
        failed = self._refusal(problems.make(kind))
        # Stored whole: a tombstone would mean that the request was carried out.
        self.policy: RoutePolicy = msgspec.structs.replace(self.policy, stream="buffer")
        response = yield from self._finish_leased(self.claim, failed, fate)
        return response if unknown or fate == "store" else None

    def _lose(self) -> Procedure[HttpResponse]:
        """The handler has stopped because another attempt holds the key."""
        yield from self._undo()
        return self._rejected("lost", problems.LEASE_LOST, retry_after=1)

    def _close(self) -> None:
        self.is_open = False
        self._stop_renewing()
        self.route.registry.ended(self)
        self.route.registry.warn_of_unused(self)

    def _stop_renewing(self) -> None:
        if self._once is not None and self._once.kept_lease is not None:
            self.route.registry.lease_keeper.let_go(self._once.kept_lease)

    def _fate_if_unknown(self, error: BaseException | None) -> Fate | None:
        """After a step with an unknown outcome, only a resume may run: it verifies the step."""
        if self.policy.joined or not isinstance(error, OutcomeUnknown):
            return None
        return "release" if self.has_steps else "unknown"

    def _finish_joined(self, response: HttpResponse, fate: Fate) -> Procedure[HttpResponse]:
        if fate != "store":
            yield from self._end(commit=False)
            return response
        try:
            last: Build[Any] | None = None
            if self.claim is not None:
                settlement = claims.Settlement(self.claim, self._text(response))
                last = partial(claims.settle, settlements=[settlement])
            yield from self._end(commit=True, last=last)
        except Exception as error:
            yield from self._roll_back()
            is_settled = yield from self._is_settled()
            if is_settled:
                return response
            if not is_passing(error):
                raise
            log.exception("A request could not be committed.")
            kind = problems.CONFLICT_RETRY if is_settled is False else problems.NOT_RECORDED
            return self._rejected("unavailable", kind, retry_after=1)
        return response

    def _finish_leased(
        self, claim: Claim, response: HttpResponse, fate: Fate
    ) -> Procedure[HttpResponse]:
        for pause in (*STORE_PAUSES, None):
            try:
                yield self._settlement(claim, response, fate)
            except LeaseLost:
                return self._rejected("lost", problems.LEASE_LOST, retry_after=1)
            except DatabaseError:
                if pause is None:
                    log.exception("A response could not be stored.")
                    return self._rejected("unavailable", problems.NOT_RECORDED, retry_after=1)
                yield Pause(pause)
            else:
                break
        return response

    def _settlement(self, claim: Claim, response: HttpResponse, fate: Fate) -> Any:
        match fate:
            case "store":
                return Batch(settle_item(claim, self._text(response)))
            case "release":
                return self._release(claim)
            case "unknown":
                return Transact(lambda sql: claims.abandon(sql, claim))

    def _release(self, claim: Claim) -> Transact[Any]:
        if claim.resumed or self.has_steps:
            # Finished steps count for the next attempt, as if this process had died.
            return Transact(partial(claims.lapse, claim=claim))
        return Transact(lambda sql: claims.release(sql, [claim]))

    def _is_settled(self) -> Procedure[bool | None]:
        """True if a commit that failed has succeeded, and only its confirmation was lost.

        None if the database cannot be read.
        """
        if self.claim is None:
            return False
        try:
            found: StoredClaim | None = yield self._stored()
        except DatabaseError:
            return None
        settled = (self.claim.owner, int(Holding.SETTLED))
        return found is not None and (found.owner, found.state) == settled

    def _store_rejection(self, response: HttpResponse, fate: Fate) -> Procedure[None]:
        """Store the response of a handler whose transaction is rolled back."""
        if self.claim is None or fate != "store":
            return
        # If the process dies in between, a retry may run: nothing has happened.
        wanted = msgspec.structs.replace(self._wanted(), lease=_MINUTE, takeover="rerun")
        text = self._text(response)
        try:
            yield from transact(lambda sql: _claim_and_settle(sql, wanted, text))
        except DatabaseError as error:
            log.warning("A rejection could not be stored; a retry runs again: %s", error)

    def _undo(self) -> Procedure[None]:
        if self.policy.joined and not self._is_undone:
            self._is_undone = True
            yield from self._roll_back()

    def _text(self, response: HttpResponse) -> str:
        return write_response(response, self.policy, self._key)

    def _rejected(
        self, outcome: str, kind: ProblemKind, *, retry_after: timedelta | float | None = None
    ) -> HttpResponse:
        self.outcome: str = outcome
        return self._refusal(problems.make(kind, retry_after=retry_after))

    def _refusal(self, problem: Problem) -> HttpResponse:
        self.problem = problem
        return self.route.refusal(problem, self.request, self.body)


def _claim_and_settle(sql: Sql, wanted: Wanted, text: str) -> Operation[None]:
    claimed = yield from claims.claim(sql, wanted)
    if isinstance(claimed, Won):
        yield from claims.settle(sql, [claims.Settlement(claimed.claim, text)])
