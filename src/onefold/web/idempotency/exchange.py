"""What a request asks for, and how many may wait for its answer.

Asking for a key: look, claim, and wait while another is at work.

1. A look answers retries without a write. It decides nothing: where it finds the key free, the
   claim is made, and that is the database's decision.
2. A joined claim is the first statement of the handler's transaction.

One keyed request, from its claim to its answer; written once for ASGI and WSGI.

1. Joined: the claim is the first statement of the handler's transaction and the answer its last.
   Whatever goes wrong in between leaves nothing.
2. Leased: the claim is committed first, the handler follows, and its answer is stored under the
   fence. Who has lost the lease has lost the word, and its client is not told what it says.
"""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.calls.procedure import Pause, Transaction, waits
from onefold.calls.settlement import settle
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
from onefold.web import problems
from onefold.web.http import HttpRequest, HttpResponse, UnreadableAnswer
from onefold.web.idempotency.body import Digested
from onefold.web.idempotency.fingerprint import again, fingerprint
from onefold.web.idempotency.policy import CLIENT_ERRORS
from onefold.web.idempotency.stored_response import read, replay, written
from onefold.web.stage import Call, Close, Held, Open
from onefold.web.transient_errors import is_busy, is_passing

if TYPE_CHECKING:
    from onefold.operations.statement import Operation, Sql
    from onefold.web.http import Header
    from onefold.web.idempotency.policy import Fate, RoutePolicy
    from onefold.web.problems import Problem
    from onefold.web.stage import Scene


class KeyedRequest(msgspec.Struct, frozen=True):
    """What is asked, by whom, under which key."""

    request: HttpRequest
    body: Digested
    key: ClaimKey | None
    """None where the request has none, and its route asks for none."""

    def refusal(self, problem: Problem, policy: RoutePolicy) -> HttpResponse:
        """How the client is told that it is not carried out, or not again."""
        described = problem.described_by(policy.link)
        if policy.form is not None:
            page: HttpResponse | None = policy.form.page(self, described)
            if page is not None:
                return page
        return described.answer(self.request)


class Waiters:
    """How many duplicates of a route wait in this process: each keeps a worker from other work."""

    def __init__(self, most: int) -> None:
        """`most` may wait at a time."""
        self._most = most
        self._count = 0
        self._mutex = threading.Lock()

    def enter(self) -> bool:
        """False where too many wait already."""
        with self._mutex:
            if self._count >= self._most:
                return False
            self._count += 1
            return True

    def leave(self) -> None:
        """One waits no more."""
        with self._mutex:
            self._count -= 1


log: logging.Logger = logging.getLogger("onefold.web")


class Claiming:
    """One request that asks for its key."""

    def __init__(self, policy: RoutePolicy, asked: KeyedRequest, waiters: Waiters) -> None:
        """Nothing is asked of the database yet."""
        self.policy: RoutePolicy = policy
        self.asked: KeyedRequest = asked
        self.is_hurried: bool = False
        """Whether nobody waits any more: then it does not wait for others either."""
        self._waiters = waiters
        self._fingerprint: str | None = None
        self._has_looked = False
        """Whether a look has just found the key free."""
        self._running = timedelta()
        """How long the attempt that has the key has been running, as far as a look has told."""

    def _patiently(self) -> Scene[Claimed]:
        """Claim, waiting for whoever is at work where the policy says so."""
        pauses, waits_here = waits(self.policy.wait), False
        try:
            while True:
                claimed = yield from self._claimed()
                if not isinstance(claimed, Busy) or self.is_hurried:
                    return claimed
                if (pause := next(pauses, None)) is None:
                    return claimed
                waits_here = waits_here or self._waiters.enter()
                if not waits_here:
                    return claimed
                yield Pause(pause)
        finally:
            if waits_here:
                self._waiters.leave()

    def _claimed(self) -> Scene[Claimed]:
        claimed = yield from self._ask()
        if isinstance(claimed, Mismatch) and self._is_told_as_before(claimed):
            claimed = yield from self._ask()
        return claimed

    def _ask(self) -> Scene[Claimed]:
        seen = None if self._has_looked else (yield from self._seen())
        self._has_looked = False
        if seen is not None:
            return seen
        wanted = self._wanted()
        if not self.policy.joined:
            claimed: Claimed = yield Transaction(partial(claims.claim, wanted=wanted))
            return claimed
        try:
            return (yield from self._join(wanted))
        except Exception as error:
            if not is_busy(error):
                raise
            # SQLite: another transaction has the file, and may be working on this very key.
            return Busy(key=wanted.key.key, retry_after=JOINED_RETRY)

    def _seen(self) -> Scene[Claimed | None]:
        """What a look says; None where the key is to be had."""
        key = self._key
        known: StoredClaim | None = yield self._look(key)
        # Nobody's wish: it has no id, and takes nothing.
        wish = Wanted(key=key, id="", fingerprint=self._fingerprint)
        seen = None if known is None else decide(known, wish)
        if known is None or seen is None or isinstance(seen, TakeOver):
            return None
        self._running = known.running
        return seen

    def _join(self, wanted: Wanted) -> Scene[Claimed]:
        yield Open()
        try:
            claimed: Claimed = yield Held(partial(claims.claim, wanted=wanted))
        except Exception:
            yield from self._undo()
            raise
        if not isinstance(claimed, Won):
            yield Close(commit=False)
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

    def _look(self, key: ClaimKey) -> Transaction[StoredClaim | None]:
        return Transaction(lambda sql: claims.find(sql, key), write=False)

    def _digest(self, asked: KeyedRequest) -> str:
        policy = self.policy
        return fingerprint(
            asked.request,
            asked.body,
            policy.fingerprint,
            headers=policy.fingerprint_headers,
            canonical_query=policy.canonical_query,
            decode=policy.decode,
        )

    def _is_told_as_before(self, mismatch: Mismatch) -> bool:
        """Whether the stored request was digested in another way, and this is the same one so."""
        policy, stored = self.policy, mismatch.fingerprint
        if stored is None:
            return False
        told = again(
            stored,
            self.asked.request,
            self.asked.body,
            policy.fingerprint,
            headers=policy.fingerprint_headers,
            canonical_query=policy.canonical_query,
            decode=policy.decode,
        )
        if told != stored:
            return False
        self._fingerprint = stored
        return True

    def _undo(self) -> Scene[None]:
        try:
            yield Close(commit=False)
        except Exception as error:  # noqa: BLE001 - a broken connection undoes it as well
            log.warning("A transaction could not be rolled back by hand: %s", error)

    @property
    def _key(self) -> ClaimKey:
        assert self.asked.key is not None
        return self.asked.key


UNPROTECTED: Final = "Idempotency-Unprotected"
AGAIN: Final = (0.05, 0.2, 0.5)
"""Pauses before an answer that could not be stored is stored again."""


class Exchange(Claiming):
    """One keyed request under the policy of its route."""

    def __init__(self, policy: RoutePolicy, asked: KeyedRequest, waiters: Waiters) -> None:
        """Without a key the handler runs, and nothing is claimed."""
        super().__init__(policy, asked, waiters)
        self.claim: Claim | None = None
        """Ours, once `begin` has answered None."""
        self.outcome: str = "none"
        """What became of it, in a word, for those who count."""
        self.unprotected: bool = False
        self.has_succeeded: bool = False
        self.has_steps: bool = False
        """Whether the attempt has written steps that a resume would find."""
        self._is_undone = False

    # --- begin ------------------------------------------------------------------------------------

    def glance(self) -> Scene[HttpResponse | None]:
        """The answer of a retry, by a look; None where more is needed. It may be broken off."""
        if self.asked.key is None:
            return None
        self._fingerprint = self._digest(self.asked)
        try:
            seen = yield from self._seen()
        except DatabaseError:
            return None
        self._has_looked = seen is None
        if not isinstance(seen, Replay):
            return None
        try:
            return (yield from self._translated(seen))
        except (UsageError, problems.Refused):
            raise
        except Exception as error:  # noqa: BLE001 - of a function of the application's
            return self._unavailable(error)

    def begin(self) -> Scene[HttpResponse | None]:
        """Claim the key. None means that the handler is to run; otherwise this is the answer."""
        if self.asked.key is not None and self._fingerprint is None:
            self._fingerprint = self._digest(self.asked)
        claimed: Claimed | None = None
        try:
            if self.asked.key is not None:
                claimed = yield from self._patiently()
                return (yield from self._translated(claimed))
            if self.policy.joined:
                yield Open()
        except (UsageError, problems.Refused):
            raise
        except Exception as error:
            # Once it is known who has had the key, it is known that the request may have run.
            if not self.policy.fail_open or claimed is not None:
                return self._unavailable(error)
            log.exception("A request runs unprotected: its key could not be claimed.")
            self.outcome, self.unprotected = "unprotected", True
        return None

    def _unavailable(self, error: Exception) -> HttpResponse:
        log.error("A key could not be claimed, or not told of: %s", error, exc_info=error)
        self.outcome = "unavailable"
        return self._refusal(problems.unavailable(retry_after=1))

    # --- what a claim's answer means --------------------------------------------------------------

    def _translated(self, claimed: Claimed) -> Scene[HttpResponse | None]:
        match claimed:
            case Won(claim):
                self.claim = claim
                self.outcome = "resumed" if claim.resumed else "won"
                return None
            case Replay(result):
                self.outcome = "replayed"
                if result is None:
                    # Settled by an operator's word that has no answer in it.
                    return self._refusal(problems.response_not_kept())
                return (yield from self._told(result))
            case Busy(retry_after):
                self.outcome = "busy"
                # Not the whole lease: most handlers are done soon, and one that has run for a
                # while may run for as long again. Whole seconds, at least one.
                return self._refusal(problems.in_progress(min(retry_after, self._running)))
            case Mismatch():
                self.outcome = "mismatch"
                return self._refusal(problems.key_reused())
            case Unknown():
                return (yield from self._verified(claimed))

    def _told(self, result: object) -> Scene[HttpResponse]:
        policy, request = self.policy, self.asked.request
        try:
            stored = read(result, policy, self._key)
        except UnreadableAnswer as error:
            log.error("The stored answer of a key cannot be read: %s", error)  # noqa: TRY400
            self.outcome = "unknown"
            return self._refusal(problems.outcome_unknown())
        if policy.refresh is not None and stored.answer is not None:
            newer: HttpResponse = yield Call(policy.refresh, (request, stored.answer))
            stored = msgspec.structs.replace(stored, answer=newer)
        return replay(stored, marker=policy.marker, tombstone=policy.tombstone, request=request)

    def _verified(self, unknown: Unknown) -> Scene[HttpResponse | None]:
        key, policy = self._key, self.policy
        self.outcome = "unknown"
        verdict: object = None
        if policy.verify is not None:
            verdict = yield Call(policy.verify, (key.key,))
        match verdict:
            case None:
                return self._refusal(problems.outcome_unknown())
            case Done(result):
                if not isinstance(result, HttpResponse):
                    raise InvalidInput("verify", f"must answer Done(Answer(…)), got {verdict!r}")
                text = self._text(result)
                yield Transaction(
                    lambda sql: claims.force(
                        sql, key, Holding.SETTLED, result=text, fence=unknown.fence
                    )
                )
            case NotDone():
                wanted = self._wanted()
                taken: Claim | None = yield Transaction(
                    lambda sql: claims.take_over_unknown(sql, wanted, fence=unknown.fence)
                )
                if taken is not None:
                    return (yield from self._translated(Won(taken)))
            case _:
                raise InvalidInput("verify", f"must answer Done, NotDone or None, got {verdict!r}")
        claimed = yield from self._claimed()
        if isinstance(claimed, Unknown):
            return self._refusal(problems.outcome_unknown())
        return (yield from self._translated(claimed))

    @property
    def added(self) -> tuple[Header, ...]:
        """What the handler's answer has on top of its own headers."""
        more: list[Header] = []
        if self.policy.mark_first and self.asked.key is not None:
            more.append((self.policy.marker, "false"))
        if self.unprotected:
            more.append((UNPROTECTED, "true"))
        return tuple(more)

    # --- end --------------------------------------------------------------------------------------

    def finish(
        self, answer: HttpResponse, error: BaseException | None = None
    ) -> Scene[HttpResponse]:
        """Store the answer, and say what to send. `error` is what the handler raised to give it."""
        fate = self.policy.fate(answer.status)
        self.has_succeeded = error is None and answer.status < CLIENT_ERRORS
        if error is not None and isinstance(error, self.policy.retryable):
            fate = "release"
        fate = self._unknown_after(error) or fate
        if self._is_undone:
            yield from self._record(answer, fate)
            return answer
        if self.policy.joined:
            return (yield from self._finish_joined(answer, fate))
        if self.claim is None:
            return answer
        return (yield from self._finish_leased(self.claim, answer, fate))

    def undo(self) -> Scene[None]:
        """The handler has raised: what it has written must not stay, whatever is answered."""
        if self.policy.joined and not self._is_undone:
            self._is_undone = True
            yield from self._undo()

    def fail(self, error: BaseException) -> Scene[HttpResponse | None]:
        """The handler has raised, and nothing came of it that could be stored.

        What is stored in its stead is answered now, too: a retry gets the same bytes. So is an
        unknown outcome. None where nothing is stored.
        """
        yield from self.undo()
        if self.claim is None or self.policy.joined:
            return None
        unknown = self._unknown_after(error)
        fate = unknown or self.policy.fate_of(error)
        failed = self._refusal(problems.outcome_unknown() if unknown else problems.attempt_failed())
        # Stored whole: a tombstone would say that the request was carried out.
        self.policy: RoutePolicy = msgspec.structs.replace(self.policy, stream="buffer")
        told = yield from self._finish_leased(self.claim, failed, fate)
        return told if unknown or fate == "store" else None

    def give_back(self) -> Scene[None]:
        """The handler has not begun, and will not: free the key."""
        yield from self.undo()
        if self.claim is not None and not self.policy.joined:
            yield self._freed(self.claim)

    def lose(self) -> Scene[HttpResponse]:
        """The handler has stopped because the key is lost: leave that to its takeover."""
        yield from self.undo()
        self.outcome = "lost"
        return self._refusal(problems.lease_lost(retry_after=1))

    def _unknown_after(self, error: BaseException | None) -> Fate | None:
        """Whoever resumes asks for the unknown step again; no other attempt may run."""
        if self.policy.joined or not isinstance(error, OutcomeUnknown):
            return None
        return "release" if self.has_steps else "unknown"

    def _finish_joined(self, answer: HttpResponse, fate: Fate) -> Scene[HttpResponse]:
        if fate != "store":
            yield Close(commit=False)
            return answer
        try:
            if self.claim is not None:
                word = claims.Settlement(self.claim, self._text(answer))
                yield Held(lambda sql: claims.settle(sql, [word]))
            yield Close(commit=True)
        except Exception as error:
            yield from self._undo()
            is_settled = yield from self._is_settled()
            if is_settled:
                return answer
            if not is_passing(error):
                raise
            log.exception("A request could not be committed.")
            self.outcome = "unavailable"
            undone = problems.conflict_retry if is_settled is False else problems.not_recorded
            return self._refusal(undone(retry_after=1))
        return answer

    def _finish_leased(self, claim: Claim, answer: HttpResponse, fate: Fate) -> Scene[HttpResponse]:
        for pause in (*AGAIN, None):
            try:
                yield self._word(claim, answer, fate)
            except LeaseLost:
                self.outcome = "lost"
                return self._refusal(problems.lease_lost(retry_after=1))
            except DatabaseError:
                if pause is None:
                    log.exception("An answer could not be stored.")
                    self.outcome = "unavailable"
                    return self._refusal(problems.not_recorded(retry_after=1))
                yield Pause(pause)
            else:
                break
        return answer

    def _word(self, claim: Claim, answer: HttpResponse, fate: Fate) -> Any:
        match fate:
            case "store":
                return settle(claim, self._text(answer))
            case "release":
                return self._freed(claim)
            case "unknown":
                return Transaction(lambda sql: claims.abandon(sql, claim))

    def _freed(self, claim: Claim) -> Transaction[Any]:
        if claim.resumed or self.has_steps:
            # Steps that were finished count for the next attempt, as if this one had vanished.
            return Transaction(partial(claims.lapse, claim=claim))
        return Transaction(lambda sql: claims.release(sql, [claim]))

    def _is_settled(self) -> Scene[bool | None]:
        """Whether a commit that failed has succeeded: its answer may be all that was lost.

        None where nobody can tell.
        """
        if self.claim is None:
            return False
        try:
            found: StoredClaim | None = yield self._look(self._key)
        except DatabaseError:
            return None
        settled = (self.claim.owner, int(Holding.SETTLED))
        return found is not None and (found.owner, found.state) == settled

    def _record(self, answer: HttpResponse, fate: Fate) -> Scene[None]:
        """Remember a refusal whose transaction is undone. Nothing hangs on it: it had no effect."""
        if self.claim is None or fate != "store":
            return
        # Should we vanish in between, it may run: nothing has happened.
        wanted = msgspec.structs.replace(self._wanted(), lease=_MINUTE, takeover="rerun")
        text = self._text(answer)
        try:
            yield Transaction(lambda sql: _recorded(sql, wanted, text))
        except DatabaseError as error:
            log.warning("A refusal could not be remembered; a retry runs again: %s", error)

    def _text(self, answer: HttpResponse) -> str:
        return written(answer, self.policy, self._key)

    def _refusal(self, found: Problem) -> HttpResponse:
        return self.asked.refusal(found, self.policy)


_MINUTE: Final = 60_000_000


def _recorded(sql: Sql, wanted: Wanted, text: str) -> Operation[None]:
    claimed = yield from claims.claim(sql, wanted)
    if isinstance(claimed, Won):
        yield from claims.settle(sql, [claims.Settlement(claimed.claim, text)])
