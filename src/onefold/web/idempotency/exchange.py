"""One keyed request: claim its key, run the handler, store the response or replay it.

Joined: the claim is the first statement of the handler's transaction and the response its last.
Leased: the claim is committed first, and the response is stored while the lease is still held.
A read replays most retries without a write. It decides nothing: a free key is claimed in the
database. ASGI, WSGI and Django run the procedures `begin`, then `finish` or `fail`.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from onefold.calls.settlement import settle
from onefold.databases import Transact
from onefold.errors import Busy, DatabaseError, InvalidInput, LeaseLost, OutcomeUnknown, UsageError
from onefold.model.claim import (
    JOINED_RETRY,
    Claim,
    ClaimKey,
    Holding,
    Mismatch,
    Replay,
    StoredClaim,
    TakeOver,
    Unknown,
    Wanted,
    Won,
    decide,
    want,
)
from onefold.model.claim import ClaimAnswer as Claimed
from onefold.model.verify import Done, NotDone
from onefold.operations import claims
from onefold.runtime import Begin, Call, End, Execute, Pause, kept_task, waits
from onefold.web import problems
from onefold.web.http import HttpRequest, HttpResponse, UnreadableAnswer
from onefold.web.idempotency.body import Digested
from onefold.web.idempotency.fingerprint import again, fingerprint
from onefold.web.idempotency.once_parameter import Once
from onefold.web.idempotency.policy import CLIENT_ERRORS
from onefold.web.idempotency.stored_response import read, replay, written
from onefold.web.problems import Refused
from onefold.web.transient_errors import is_busy, is_passing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from onefold.databases.handler_transaction import HandlerTransaction
    from onefold.operations.statement import Operation, Sql
    from onefold.runtime import Procedure, Runtime
    from onefold.web.http import Header
    from onefold.web.idempotency.keyed_routes import KeyedRoute
    from onefold.web.idempotency.policy import Fate, RoutePolicy
    from onefold.web.problems import Problem

T = TypeVar("T")

UNPROTECTED: Final = "Idempotency-Unprotected"
STORE_PAUSES: Final = (0.05, 0.2, 0.5)
"""Seconds before a response that could not be stored is stored again."""
_MINUTE: Final = 60_000_000

log: logging.Logger = logging.getLogger("onefold.web")


class KeyedRequest(msgspec.Struct, frozen=True):
    """A request, its body, and its key."""

    request: HttpRequest
    body: Digested
    key: ClaimKey | None
    """None if the request has no key and its route does not require one."""

    def refusal(self, problem: Problem, policy: RoutePolicy) -> HttpResponse:
        """The response to a request that does not run."""
        described = problem.described_by(policy.link)
        if policy.form is not None:
            page: HttpResponse | None = policy.form.page(self, described)
            if page is not None:
                return page
        return described.answer(self.request)


class Exchange:
    """One keyed request under the policy of its route."""

    def __init__(
        self,
        route: KeyedRoute,
        request: HttpRequest,
        body: Digested,
        *,
        principal: object,
        tenant: object,
        runtime: Runtime | None = None,
        target: object = None,
    ) -> None:
        """`runtime` and `target` replace the database and the transaction of the route."""
        self.route: KeyedRoute = route
        self.policy: RoutePolicy = route.policy
        self.keyed: KeyedRequest = KeyedRequest(request, body, None)
        self.runtime: Runtime = route.registry.runtime if runtime is None else runtime
        self.transaction: HandlerTransaction | None = None
        """The transaction of the handler while it is open."""
        self.claim: Claim | None = None
        """The claim on the key, after `begin` has returned None."""
        self.outcome: str = "none"
        """The result in one word, for metrics."""
        self.is_open: bool = False
        """True while the handler runs and its response will be stored or committed."""
        self.unprotected: bool = False
        self.has_succeeded: bool = False
        self.has_steps: bool = False
        """True if the attempt has written steps that a resume would find."""
        self.client_left: bool = False
        """True if the client has disconnected: then there is no wait for another attempt."""
        self._target = route.registry.target(route.policy) if target is None else target
        self._principal = principal
        self._tenant = tenant
        self._once: Once | None = None
        self._error: BaseException | None = None
        self._fingerprint: str | None = None
        self._is_identified = False
        self._has_looked = False
        """True if a read has just found the key free."""
        self._running = timedelta()
        """How long the attempt that holds the key has been running, by the last read."""
        self._is_undone = False

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
        if self.policy.mark_first and self.keyed.key is not None:
            more.append((self.policy.marker, "false"))
        if self.unprotected:
            more.append((UNPROTECTED, "true"))
        return tuple(more)

    def is_lost_by(self, error: BaseException | None) -> bool:
        """True if the handler has stopped because it lost its key: this is not a failure."""
        return self.once.is_lost_by(error)

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
        begun = kept_task(self.runtime.arun(self.begin()))
        try:
            if disconnected is not None and self.policy.wait is not None:
                await _first_of(begun, disconnected())
                self.client_left = True
            response = await asyncio.shield(begun)
        except asyncio.CancelledError:
            self.client_left = True
            await asyncio.shield(kept_task(self._give_back_after(begun)))
            raise
        if self.transaction is not None:
            # The task has entered it in a copy of this context.
            self.transaction.enter()
        return response

    async def _give_back_after(self, begun: asyncio.Task[HttpResponse | None]) -> None:
        try:
            if await begun is None:
                await self.runtime.arun(self.give_back())
        except Exception as error:  # noqa: BLE001 - the lease ends by itself
            log.warning("The key of a cancelled request is not free before its lease: %s", error)

    # --- begin ------------------------------------------------------------------------------------

    def look(self) -> Procedure[HttpResponse | None]:
        """The replay for a retry, by a read; None if more is needed."""
        try:
            self._identify()
            response = None if self.keyed.key is None else (yield from self._look())
        except Refused as refused:
            return self._refused(refused)
        if response is not None:
            self.route.registry.ended(self)
        return response

    def begin(self) -> Procedure[HttpResponse | None]:
        """Claim the key. None: the handler runs; otherwise the response to send."""
        response = yield from self.take()
        if response is not None:
            return response
        registry = self.route.registry
        self._once = Once(self, registry.onefold)
        if self.claim is not None and not self.policy.joined:
            self._once.kept_lease = registry.lease_keeper.keep(self.claim, self.policy.lease)
        self.is_open = self.transaction is not None or self.claim is not None or self.unprotected
        return None

    def take(self) -> Procedure[HttpResponse | None]:
        """Claim the key, and do not renew its lease."""
        try:
            self._identify()
            response = yield from self._begin()
        except Refused as refused:
            return self._refused(refused)
        if response is not None:
            self.route.registry.ended(self)
        return response

    def _identify(self) -> None:
        """Read the key and the fingerprint; `Refused` if the request cannot run."""
        if self._is_identified:
            return
        request, body = self.keyed.request, self.keyed.body
        key = self.route.registry.claim_key(
            self.policy, request, body, principal=self._principal, tenant=self._tenant
        )
        if key is not None:
            self.keyed = KeyedRequest(request, body, key)
            self._fingerprint = self._digest()
        self._is_identified = True

    def _refused(self, refused: Refused) -> HttpResponse:
        keyed = msgspec.structs.replace(self.keyed, key=None)
        return keyed.refusal(refused.problem, self.policy)

    def _look(self) -> Procedure[HttpResponse | None]:
        try:
            found = yield from self._find()
        except DatabaseError:
            return None
        self._has_looked = found is None
        if not isinstance(found, Replay):
            return None
        try:
            return (yield from self._response_to(found))
        except (UsageError, Refused):
            raise
        except Exception as error:  # noqa: BLE001 - of a function of the application
            return self._unavailable(error)

    def _begin(self) -> Procedure[HttpResponse | None]:
        claimed: Claimed | None = None
        try:
            if self.keyed.key is not None:
                claimed = yield from self._claim_or_wait()
                return (yield from self._response_to(claimed))
            if self.policy.joined:
                self.transaction = yield Begin(self._target, self.route.is_plain)
        except (UsageError, Refused):
            raise
        except Exception as error:
            # A claim that was answered may mean that the request has run already.
            if not self.policy.fail_open or claimed is not None:
                return self._unavailable(error)
            log.exception("A request runs unprotected: its key could not be claimed.")
            self.outcome, self.unprotected = "unprotected", True
        return None

    def _unavailable(self, error: Exception) -> HttpResponse:
        log.error("A key could not be claimed or replayed: %s", error, exc_info=error)
        self.outcome = "unavailable"
        return self._refusal(problems.unavailable(retry_after=1))

    # --- claim ------------------------------------------------------------------------------------

    def _claim_or_wait(self) -> Procedure[Claimed]:
        """Claim; wait for a running attempt if the policy has a `wait`."""
        pauses, is_waiting = waits(self.policy.wait), False
        try:
            while True:
                claimed = yield from self._claim()
                if not isinstance(claimed, Busy) or self.client_left:
                    return claimed
                if (pause := next(pauses, None)) is None:
                    return claimed
                is_waiting = is_waiting or self.route.waiters.enter()
                if not is_waiting:
                    return claimed
                yield Pause(pause)
        finally:
            if is_waiting:
                self.route.waiters.leave()

    def _claim(self) -> Procedure[Claimed]:
        claimed = yield from self._try_claim()
        if isinstance(claimed, Mismatch) and self._matches_stored(claimed.fingerprint):
            claimed = yield from self._try_claim()
        return claimed

    def _try_claim(self) -> Procedure[Claimed]:
        found = None if self._has_looked else (yield from self._find())
        self._has_looked = False
        if found is not None:
            return found
        wanted = self._wanted()
        if not self.policy.joined:
            claimed: Claimed = yield Transact(partial(claims.claim, wanted=wanted))
            return claimed
        try:
            return (yield from self._join(wanted))
        except Exception as error:
            if not is_busy(error):
                raise
            # SQLite: another transaction has the file, and may be working on this very key.
            return Busy(key=wanted.key.key, retry_after=JOINED_RETRY)

    def _find(self) -> Procedure[Claimed | None]:
        """The answer of the stored claim; None if the key is free."""
        stored: StoredClaim | None = yield self._stored()
        # It has no id: it is only compared.
        compared = Wanted(key=self._key, id="", fingerprint=self._fingerprint)
        found = None if stored is None else decide(stored, compared)
        if stored is None or found is None or isinstance(found, TakeOver):
            return None
        self._running = stored.running
        return found

    def _stored(self) -> Transact[StoredClaim | None]:
        key = self._key
        return Transact(lambda sql: claims.find(sql, key), write=False)

    def _join(self, wanted: Wanted) -> Procedure[Claimed]:
        transaction = self.transaction = yield Begin(self._target, self.route.is_plain)
        try:
            claimed: Claimed = yield Execute(transaction, partial(claims.claim, wanted=wanted))
        except Exception:
            yield from self._roll_back()
            raise
        if not isinstance(claimed, Won):
            yield from self._end(commit=False)
        return claimed

    def _wanted(self) -> Wanted:
        policy = self.policy
        return want(
            self._key,
            fingerprint=self._fingerprint,
            lease=None if policy.joined else policy.lease,
            takeover=policy.takeover or "refuse",
            retention=policy.retention,
        )

    def _digest(self) -> str:
        policy = self.policy
        return fingerprint(
            self.keyed.request,
            self.keyed.body,
            policy.fingerprint,
            headers=policy.fingerprint_headers,
            canonical_query=policy.canonical_query,
            decode=policy.decode,
        )

    def _matches_stored(self, stored: str | None) -> bool:
        """True if the stored fingerprint was made by older options, and this request has it."""
        policy = self.policy
        if stored is None:
            return False
        own = again(
            stored,
            self.keyed.request,
            self.keyed.body,
            policy.fingerprint,
            headers=policy.fingerprint_headers,
            canonical_query=policy.canonical_query,
            decode=policy.decode,
        )
        if own != stored:
            return False
        self._fingerprint = stored
        return True

    # --- from a claim's answer to a response ------------------------------------------------------

    def _response_to(self, claimed: Claimed) -> Procedure[HttpResponse | None]:
        match claimed:
            case Won(claim):
                self.claim = claim
                self.outcome = "resumed" if claim.resumed else "won"
                return None
            case Replay(result):
                self.outcome = "replayed"
                if result is None:
                    # Settled by an operator, without a response.
                    return self._refusal(problems.response_not_kept())
                return (yield from self._replay(result))
            case Busy(retry_after):
                self.outcome = "busy"
                # Not the whole lease: most handlers are done soon, and one that has run for a
                # while may run for as long again. Whole seconds, at least one.
                return self._refusal(problems.in_progress(min(retry_after, self._running)))
            case Mismatch():
                self.outcome = "mismatch"
                return self._refusal(problems.key_reused())
            case Unknown():
                return (yield from self._verify(claimed))

    def _replay(self, result: object) -> Procedure[HttpResponse]:
        policy, request = self.policy, self.keyed.request
        try:
            stored = read(result, policy, self._key)
        except UnreadableAnswer as error:
            log.error("The stored response of a key cannot be read: %s", error)  # noqa: TRY400
            self.outcome = "unknown"
            return self._refusal(problems.outcome_unknown())
        if policy.refresh is not None and stored.answer is not None:
            newer: HttpResponse = yield Call(policy.refresh, (request, stored.answer))
            stored = msgspec.structs.replace(stored, answer=newer)
        return replay(stored, marker=policy.marker, tombstone=policy.tombstone, request=request)

    def _verify(self, unknown: Unknown) -> Procedure[HttpResponse | None]:
        key, policy = self._key, self.policy
        self.outcome = "unknown"
        found: object = None
        if policy.verify is not None:
            found = yield Call(policy.verify, (key.key,))
        match found:
            case None:
                return self._refusal(problems.outcome_unknown())
            case Done(result):
                if not isinstance(result, HttpResponse):
                    raise InvalidInput("verify", f"must return Done(Answer(…)), got {found!r}")
                text = self._text(result)
                yield Transact(
                    lambda sql: claims.force(
                        sql, key, Holding.SETTLED, result=text, fence=unknown.fence
                    )
                )
            case NotDone():
                wanted = self._wanted()
                taken: Claim | None = yield Transact(
                    lambda sql: claims.take_over_unknown(sql, wanted, fence=unknown.fence)
                )
                if taken is not None:
                    return (yield from self._response_to(Won(taken)))
            case _:
                raise InvalidInput("verify", f"must return Done, NotDone or None, got {found!r}")
        claimed = yield from self._claim()
        if isinstance(claimed, Unknown):
            return self._refusal(problems.outcome_unknown())
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
        """The handler has raised: roll back what it has written, whatever the response is."""
        self._error = error
        if self.is_open:
            yield from self._undo()

    def give_back(self) -> Procedure[None]:
        """Free the key of a handler that has not begun."""
        self.is_open = False
        self._stop_renewing()
        yield from self._undo()
        if self.claim is not None and not self.policy.joined:
            yield self._release(self.claim)

    def _finish(self, response: HttpResponse) -> Procedure[HttpResponse]:
        error = self._error
        fate = self.policy.fate(response.status)
        self.has_succeeded = error is None and response.status < CLIENT_ERRORS
        if error is not None and isinstance(error, self.policy.retryable):
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
        failed = self._refusal(problems.outcome_unknown() if unknown else problems.attempt_failed())
        # Stored whole: a tombstone would mean that the request was carried out.
        self.policy = msgspec.structs.replace(self.policy, stream="buffer")
        response = yield from self._finish_leased(self.claim, failed, fate)
        return response if unknown or fate == "store" else None

    def _lose(self) -> Procedure[HttpResponse]:
        """The handler has stopped because another attempt holds the key."""
        yield from self._undo()
        self.outcome = "lost"
        return self._refusal(problems.lease_lost(retry_after=1))

    def _close(self) -> None:
        self.is_open = False
        self._stop_renewing()
        self.route.registry.ended(self)
        self.route.registry.warn_of_unused(self.route, self.once)

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
            if self.claim is not None:
                assert self.transaction is not None
                settlement = claims.Settlement(self.claim, self._text(response))
                yield Execute(self.transaction, lambda sql: claims.settle(sql, [settlement]))
            yield from self._end(commit=True)
        except Exception as error:
            yield from self._roll_back()
            is_settled = yield from self._is_settled()
            if is_settled:
                return response
            if not is_passing(error):
                raise
            log.exception("A request could not be committed.")
            self.outcome = "unavailable"
            undone = problems.conflict_retry if is_settled is False else problems.not_recorded
            return self._refusal(undone(retry_after=1))
        return response

    def _finish_leased(
        self, claim: Claim, response: HttpResponse, fate: Fate
    ) -> Procedure[HttpResponse]:
        for pause in (*STORE_PAUSES, None):
            try:
                yield self._settlement(claim, response, fate)
            except LeaseLost:
                self.outcome = "lost"
                return self._refusal(problems.lease_lost(retry_after=1))
            except DatabaseError:
                if pause is None:
                    log.exception("A response could not be stored.")
                    self.outcome = "unavailable"
                    return self._refusal(problems.not_recorded(retry_after=1))
                yield Pause(pause)
            else:
                break
        return response

    def _settlement(self, claim: Claim, response: HttpResponse, fate: Fate) -> Any:
        match fate:
            case "store":
                return settle(claim, self._text(response))
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
            yield Transact(lambda sql: _claim_and_settle(sql, wanted, text))
        except DatabaseError as error:
            log.warning("A rejection could not be stored; a retry runs again: %s", error)

    def _undo(self) -> Procedure[None]:
        if self.policy.joined and not self._is_undone:
            self._is_undone = True
            yield from self._roll_back()

    def _roll_back(self) -> Procedure[None]:
        try:
            yield from self._end(commit=False)
        except Exception as error:  # noqa: BLE001 - a broken connection rolls back as well
            log.warning("A transaction could not be rolled back: %s", error)

    def _end(self, *, commit: bool) -> Procedure[None]:
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            yield End(transaction, commit)

    def _text(self, response: HttpResponse) -> str:
        return written(response, self.policy, self._key)

    def _refusal(self, problem: Problem) -> HttpResponse:
        return self.keyed.refusal(problem, self.policy)

    @property
    def _key(self) -> ClaimKey:
        assert self.keyed.key is not None
        return self.keyed.key


def _claim_and_settle(sql: Sql, wanted: Wanted, text: str) -> Operation[None]:
    claimed = yield from claims.claim(sql, wanted)
    if isinstance(claimed, Won):
        yield from claims.settle(sql, [claims.Settlement(claimed.claim, text)])


async def _first_of(one: asyncio.Task[Any], other: Awaitable[Any]) -> None:
    """Wait until one of two has ended; the other one is not awaited."""
    two = asyncio.ensure_future(other)
    try:
        await asyncio.wait({one, two}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        two.cancel()
