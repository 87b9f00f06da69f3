"""One webhook event: claim it, run its handler, settle the claim, in one transaction.

An error rolls back, and the next delivery runs. A duplicate of an event in progress receives 409,
because the event must be delivered again if the first attempt dies. No 2xx is sent before the
commit. The sender does not learn why its signature is wrong.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from onefold.databases import Transact
from onefold.errors import Busy, InvalidInput, UsageError
from onefold.model import checks
from onefold.model.claim import Claim, ClaimKey, Mismatch, Replay, Unknown, Won, want
from onefold.model.claim import ClaimAnswer as Claimed
from onefold.model.event import WebhookAlarm, WebhookDuplicate, WebhookReceived
from onefold.model.retry import whole_seconds
from onefold.model.unique import fingerprint
from onefold.operations import claims
from onefold.runtime import Batch, Begin, Call, End, Execute
from onefold.web.http import HttpResponse, Kept, UnreadableAnswer, from_stored, to_stored
from onefold.web.transient_errors import is_busy, is_passing
from onefold.web.webhooks.webhook_event import Received, Refuse

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from onefold.databases import Build
    from onefold.databases.handler_transaction import HandlerTransaction
    from onefold.model.event import WebhookEvent, WebhookOutcome
    from onefold.operations.statement import Operation, Sql
    from onefold.runtime import Procedure
    from onefold.web.http import Header, HttpRequest
    from onefold.web.webhooks.webhook import WebhookSettings
    from onefold.web.webhooks.webhook_event import Verified


def short_response(status: int, sentence: str = "", *headers: Header) -> HttpResponse:
    """A response with one sentence, for the log of the sender."""
    body = f"{sentence}\n".encode() if sentence else b""
    common: list[Header] = [("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
    if body:
        common.insert(0, ("Content-Type", "text/plain; charset=utf-8"))
    return HttpResponse(status, (*common, *headers), body)


DONE: Final = short_response(200)
REJECTED: Final = short_response(401, "The webhook was not accepted.")
REUSED: Final = short_response(
    422, "An event with this id was received before, and was another one."
)
UNKNOWN: Final = short_response(409, "What became of this event is being looked into.")
FAILED: Final = short_response(500, "The event could not be processed. Send it again later.")
TOO_OLD: Final = short_response(400, "The event is older than what is accepted here.")
NOT_ALLOWED: Final = short_response(405, "Webhooks are sent by POST.", ("Allow", "POST"))


def echoed(challenge: str) -> HttpResponse:
    """The response to a challenge, byte for byte."""
    body = challenge.encode()
    kind, length = ("Content-Type", "text/plain"), ("Content-Length", str(len(body)))
    return HttpResponse(200, (kind, length), body)


def busy(retry_after: timedelta | float = 1) -> HttpResponse:
    """Never a 2xx: if the first delivery dies, this one must come again."""
    return short_response(
        409,
        "An earlier delivery of this event is still being processed. Send it again later.",
        ("Retry-After", str(whole_seconds(retry_after))),
    )


def unavailable() -> HttpResponse:
    """The database is unavailable, so the event is not processed."""
    return short_response(
        503,
        "The event could not be processed at the moment. Send it again later.",
        ("Retry-After", "1"),
    )


def too_large(limit: int) -> HttpResponse:
    """Sent before the whole body is read."""
    return short_response(413, f"The body has more than {limit} bytes.")


def refused(headers: tuple[Header, ...]) -> HttpResponse:
    """The sender must not send the event again."""
    return short_response(410, "The event is not wanted. Do not send it again.", *headers)


log: logging.Logger = logging.getLogger("onefold.web")

SURFACE: Final = "webhook"
LEAST_ERROR: Final = 300
KEPT: Final = Kept()

# What HTTP can send: no control characters, and nothing beyond latin-1.
_HEADER: Final = re.compile(r"[\t -~\x80-\xff]*")


class Reception:
    """One delivery."""

    def __init__(
        self,
        settings: WebhookSettings,
        verified: Verified,
        request: HttpRequest,
        *,
        report: Callable[[WebhookEvent], None],
        note: Callable[[ClaimKey, str | None], None],
    ) -> None:
        """`report` receives the result as an event; `note` logs the key of a duplicate."""
        self._settings = settings
        self._transaction: HandlerTransaction | None = None
        self._verified = verified
        self._request = request
        self._report = report
        self._note = note
        self._in_the_way: ClaimKey | None = None
        self._scope = settings.scope(verified)
        self._claims: list[Claim] = []
        self._suspect = False

    def process(
        self, handler: Callable[..., Any], arguments: tuple[Any, ...], *, blocking: bool = True
    ) -> Procedure[HttpResponse]:
        """Claim, process, settle and commit one event; `blocking`: the handler is plain."""
        try:
            self._transaction = yield Begin(self._settings.transaction, blocking)
            answer = yield from self._claim()
            if answer is not None:
                yield from self._end(commit=bool(self._claims))
                if self._in_the_way is not None:
                    self._note(self._in_the_way, self._request.id)
                return answer
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a driver raises when it cannot
            return (yield from self._away(error))
        return (yield from self._process(handler, arguments))

    # --- claim ------------------------------------------------------------------------------------

    def _claim(self) -> Procedure[HttpResponse | None]:
        """Claim the event, and what else makes it one. None means that the handler is to run."""
        verified, settings = self._verified, self._settings
        key = bounded(verified.key or verified.id)
        claimed = yield from self._ask(self._scope, key, settings.retention, verified.digest)
        if isinstance(claimed, Mismatch):
            self._alarm("id reused")
            if settings.reused_id == "refuse":
                return REUSED
            if settings.reused_id == "ignore":
                return DONE
            key = fingerprint(key, verified.digest)
            claimed = yield from self._ask(self._scope, key, settings.retention, verified.digest)
        answer = self._translated(claimed, by="id")
        if answer is None:
            answer = yield from self._second()
        if answer is None:
            answer = yield from self._guard()
        return answer

    def _second(self) -> Procedure[HttpResponse | None]:
        second = self._settings.second_key
        key = None if second is None else second.of(self._verified)
        if second is None or key is None:
            return None
        claimed = yield from self._ask(f"second:{self._scope}", bounded(key), second.window, None)
        if isinstance(claimed, Replay):
            # This event is done with, too.
            yield self._execute(partial(_settle, held=tuple(self._claims), result=None))
        return self._translated(claimed, by="second key")

    def _guard(self) -> Procedure[HttpResponse | None]:
        """Detect a body that was sent before under another id, if ids are not signed."""
        settings, digest = self._settings, self._verified.guard
        if settings.guard == "off" or digest is None:
            return None
        scope = f"body:{self._scope}"
        claimed = yield from self._ask(scope, digest, settings.guard_window, None)
        if not isinstance(claimed, Replay):
            return self._translated(claimed, by="id")
        self._alarm("body replayed")
        if settings.guard == "flag":
            self._suspect = True
            return None
        yield self._execute(partial(_settle, held=tuple(self._claims), result=None))
        return DONE

    def _ask(
        self, scope: str, key: str, retention: timedelta | None, digest: str | None
    ) -> Procedure[Claimed]:
        claim_key = ClaimKey(self._settings.tenant, SURFACE, scope, key)
        wanted = want(claim_key, fingerprint=digest, lease=None, retention=retention)
        claimed: Claimed = yield self._execute(partial(claims.claim, wanted=wanted))
        if isinstance(claimed, Won):
            self._claims.append(claimed.claim)
        else:
            self._in_the_way = claim_key
        return claimed

    def _translated(
        self, claimed: Claimed, *, by: Literal["id", "second key"]
    ) -> HttpResponse | None:
        match claimed:
            case Won():
                return None
            case Replay(result):
                verified = self._verified
                self._report(
                    WebhookDuplicate(
                        verified.provider,
                        self._settings.name,
                        verified.event_type,
                        by,
                        self._settings.tenant,
                    )
                )
                return _replayed(result)
            case Busy():
                self._claims.clear()
                self._ended("busy")
                return busy(claimed.retry_after)
            case Mismatch() | Unknown():
                self._claims.clear()
                self._alarm("outcome unknown")
                return UNKNOWN

    def _away(self, error: Exception) -> Procedure[HttpResponse]:
        yield from self.roll_back()
        if is_busy(error):
            # SQLite: another transaction has the file, and may be working on this very event.
            self._ended("busy")
            return busy()
        log.error("A webhook of %s could not be claimed: %s", self._scope, error, exc_info=error)
        self._ended("unavailable")
        return unavailable()

    # --- process ----------------------------------------------------------------------------------

    def _process(
        self, handler: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Procedure[HttpResponse]:
        try:
            returned = yield from self._run(handler, arguments)
            answer = _checked(returned)
            undone = answer.status >= LEAST_ERROR
            if not undone:
                result = None if returned is None else to_stored(answer, KEPT)
                yield self._execute(partial(_settle, held=tuple(self._claims), result=result))
            yield from self._end(commit=not undone)
        except Exception as error:  # noqa: BLE001 - the handler's, or its database's
            return (yield from self._failed(error))
        self._ended("failed" if undone else self._settings.done)
        return answer

    def _run(self, handler: Callable[..., Any], arguments: tuple[Any, ...]) -> Procedure[Any]:
        assert self._transaction is not None
        received = Received(
            self._settings.onefold,
            self._verified,
            self._request,
            connection=self._transaction.connection,
            scope=self._scope,
            suspect=self._suspect,
            retention=self._settings.order_retention,
        )
        enqueued = self._settings.enqueued(received)
        if enqueued is not None:
            yield from self._inside(enqueued)
            return None
        return (yield Call(handler, (received, *arguments)))

    def _failed(self, error: Exception) -> Procedure[HttpResponse]:
        yield from self.roll_back()
        if isinstance(error, Refuse):
            log.info("A webhook of %s is refused for good: %s", self._scope, error.reason)
            self._ended("refused")
            return refused(self._settings.provider.no_retry)
        if isinstance(error, Busy):
            self._ended("busy")
            return busy(error.retry_after)
        self._ended("failed")
        if isinstance(error, InvalidInput) and error.field == "payload":
            log.error("A webhook of %s does not fit into a job: %s", self._scope, error)
            return too_large(self._settings.max_body)
        log.error("A webhook of %s failed, and was undone.", self._scope, exc_info=error)
        return unavailable() if is_passing(error) else FAILED

    def _inside(self, procedure: Procedure[Any]) -> Procedure[Any]:
        """Run the transactions of a procedure in the transaction of the handler."""
        try:
            command = next(procedure)
            while True:
                assert isinstance(command, Transact | Batch)
                build = command.item.alone if isinstance(command, Batch) else command.build
                try:
                    done = yield self._execute(build)
                except Exception as error:  # noqa: BLE001 - the procedure handles it, or raises it
                    command = procedure.throw(error)
                else:
                    command = procedure.send(done)
        except StopIteration as finished:
            return finished.value

    def _execute(self, build: Build[Any]) -> Execute[Any]:
        assert self._transaction is not None
        return Execute(self._transaction, build)

    def _end(self, *, commit: bool) -> Procedure[None]:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            yield End(transaction, commit)

    def roll_back(self) -> Procedure[None]:
        """Roll back the transaction if it is open."""
        return self._end(commit=False)

    # --- report -----------------------------------------------------------------------------------

    def _ended(self, outcome: WebhookOutcome) -> None:
        verified, settings = self._verified, self._settings
        self._report(
            WebhookReceived(
                verified.provider,
                settings.name,
                outcome,
                verified.event_type,
                verified.secret_id,
                verified.old_secret,
                settings.tenant,
            )
        )

    def _alarm(self, reason: Literal["id reused", "body replayed", "outcome unknown"]) -> None:
        verified, settings = self._verified, self._settings
        log.warning("A webhook of %s is suspect: %s.", self._scope, reason)
        self._report(
            WebhookAlarm(verified.provider, settings.name, reason, verified.id, settings.tenant)
        )


def bounded(key: str) -> str:
    """Any id may be a key; one that is too long, or has what no database keeps, is digested."""
    text = key.encode("utf-8", "surrogatepass")
    if len(text) > checks.KEY_BYTES or b"\x00" in text or key != text.decode("utf-8", "replace"):
        return f"digest:{fingerprint(text.decode('latin-1'))}"
    return key


def _settle(sql: Sql, held: tuple[Claim, ...], result: str | None) -> Operation[None]:
    """The first claim gets the response; the others only that they are settled."""
    words = [
        claims.Settlement(claim, None if place else result) for place, claim in enumerate(held)
    ]
    yield from claims.settle(sql, words)


def _checked(returned: object) -> HttpResponse:
    if returned is None:
        return DONE
    if not isinstance(returned, HttpResponse):
        kind = type(returned).__name__
        raise InvalidInput("handler", f"must return None or an Answer, got {kind}")
    # Now, and not when it is sent: that would be after the commit, and again with every delivery.
    for name, value in returned.headers:
        if not _HEADER.fullmatch(f"{name}{value}"):
            raise InvalidInput("handler", f"must answer with headers of latin-1, got {name!r}")
    return returned


def _replayed(result: Any) -> HttpResponse:
    """What the first delivery was answered with."""
    if result is None:
        return DONE
    try:
        stored = from_stored(result)
    except UnreadableAnswer:
        return DONE
    return stored.answer or DONE
