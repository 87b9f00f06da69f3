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

from onefold.errors import Busy, InvalidInput, UsageError
from onefold.model import checks
from onefold.model.claim import Claim, ClaimKey, Mismatch, Replay, Unknown, Won, want
from onefold.model.claim import ClaimAnswer as Claimed
from onefold.model.event import WebhookAlarm, WebhookDuplicate, WebhookReceived
from onefold.model.unique import fingerprint
from onefold.operations import claims
from onefold.runtime import Begin, End, Execute
from onefold.web.http import HttpResponse
from onefold.web.idempotency.encryption import UnreadableAnswer
from onefold.web.idempotency.stored_response import Kept, from_stored, to_stored
from onefold.web.transient_errors import is_busy, is_passing, trace_of
from onefold.web.webhooks import responses
from onefold.web.webhooks.endpoint import EndpointDelivery
from onefold.web.webhooks.webhook_event import Received, Refuse

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from onefold.databases import Build
    from onefold.databases.handler_transaction import HandlerTransaction
    from onefold.model.event import WebhookEvent, WebhookOutcome
    from onefold.runtime import Procedure
    from onefold.web.http import HttpRequest
    from onefold.web.webhooks.webhook import WebhookSettings
    from onefold.web.webhooks.webhook_event import Verified


log: logging.Logger = logging.getLogger("onefold.web")

SURFACE: Final = "webhook"
LEAST_ERROR: Final = 300
KEPT: Final = Kept()

# HTTP allows no control characters, and nothing beyond latin-1.
_HEADER: Final = re.compile(r"[\t -~\x80-\xff]*")


class WebhookDelivery(EndpointDelivery):
    """One delivery of an event."""

    def __init__(
        self,
        settings: WebhookSettings,
        verified: Verified,
        request: HttpRequest,
        call: Callable[[Received], Procedure[Any]],
        *,
        blocking: bool,
    ) -> None:
        """`call` runs the handler; `blocking`: the handler is a plain function."""
        super().__init__(settings.onefold.context.runtime)
        self._settings = settings
        self._verified = verified
        self._request = request
        self._call = call
        self._blocking = blocking
        self._scope = f"{verified.provider}:{settings.name}"
        self._transaction: HandlerTransaction | None = None
        self._claims: list[Claim] = []
        self._conflict: ClaimKey | None = None
        """The key that another delivery has."""
        self._suspect = False

    def process(self) -> Procedure[HttpResponse]:
        """Claim, process, settle and commit one event."""
        try:
            self._transaction = yield Begin(self._settings.transaction, self._blocking)
            response = yield from self._claim()
            if response is not None:
                yield from self._end(commit=bool(self._claims))
                if self._conflict is not None:
                    context = self._settings.onefold.context
                    context.duplicate_log.note(self._conflict, self._request.id)
                return response
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - of any database library
            return (yield from self._not_claimed(error))
        return (yield from self._process())

    # --- claim ------------------------------------------------------------------------------------

    def _claim(self) -> Procedure[HttpResponse | None]:
        """Claim the id, the second key and the body of the event. None: the handler runs."""
        verified, settings = self._verified, self._settings
        key = bounded(verified.key or verified.id)
        claimed = yield from self._claim_key(self._scope, key, settings.retention, verified.digest)
        if isinstance(claimed, Mismatch):
            self._alarm("id reused")
            if settings.reused_id != "process":
                return responses.REUSED if settings.reused_id == "refuse" else responses.DONE
            key = fingerprint(key, verified.digest)
            claimed = yield from self._claim_key(
                self._scope, key, settings.retention, verified.digest
            )
        response = self._response_to(claimed, by="id")
        if response is None:
            response = yield from self._claim_second_key()
        if response is None:
            response = yield from self._claim_body()
        return response

    def _claim_second_key(self) -> Procedure[HttpResponse | None]:
        second = self._settings.second_key
        key = None if second is None else second.of(self._verified)
        if second is None or key is None:
            return None
        scope = f"second:{self._scope}"
        claimed = yield from self._claim_key(scope, bounded(key), second.window, None)
        if isinstance(claimed, Replay):
            # The id of this event is settled, too.
            yield self._settle()
        return self._response_to(claimed, by="second key")

    def _claim_body(self) -> Procedure[HttpResponse | None]:
        """Detect a body that was received before under another id, if ids are not signed."""
        settings, digest = self._settings, self._verified.guard
        if settings.guard == "off" or digest is None:
            return None
        scope = f"body:{self._scope}"
        claimed = yield from self._claim_key(scope, digest, settings.guard_window, None)
        if not isinstance(claimed, Replay):
            return self._response_to(claimed, by="id")
        self._alarm("body replayed")
        if settings.guard == "flag":
            self._suspect = True
            return None
        yield self._settle()
        return responses.DONE

    def _claim_key(
        self, scope: str, key: str, retention: timedelta, digest: str | None
    ) -> Procedure[Claimed]:
        claim_key = ClaimKey(self._settings.tenant, SURFACE, scope, key)
        wanted = want(claim_key, fingerprint=digest, lease=None, retention=retention)
        claimed: Claimed = yield self._execute(partial(claims.claim, wanted=wanted))
        if isinstance(claimed, Won):
            self._claims.append(claimed.claim)
        else:
            self._conflict = claim_key
        return claimed

    def _response_to(
        self, claimed: Claimed, *, by: Literal["id", "second key"]
    ) -> HttpResponse | None:
        match claimed:
            case Won():
                return None
            case Replay(result):
                self._report(WebhookDuplicate, event_type=self._verified.event_type, by=by)
                return _replayed(result)
            case Busy():
                self._claims.clear()
                self._ended("busy")
                return responses.busy(claimed.retry_after)
            case Mismatch() | Unknown():
                self._claims.clear()
                self._alarm("outcome unknown")
                return responses.UNKNOWN

    def _not_claimed(self, error: Exception) -> Procedure[HttpResponse]:
        yield from self.roll_back()
        if is_busy(error):
            # SQLite: another transaction has the file, and may be processing this event.
            self._ended("busy")
            return responses.busy()
        trace = trace_of(error)
        log.error("A webhook of %s could not be claimed: %s", self._scope, error, exc_info=trace)
        self._ended("unavailable")
        return responses.UNAVAILABLE

    # --- process ----------------------------------------------------------------------------------

    def _process(self) -> Procedure[HttpResponse]:
        assert self._transaction is not None
        settings = self._settings
        received = Received(
            settings,
            self._verified,
            self._request,
            connection=self._transaction.connection,
            scope=self._scope,
            suspect=self._suspect,
        )
        try:
            returned = yield from self._call(received)
            response = _checked(returned)
            has_failed = response.status >= LEAST_ERROR
            if not has_failed:
                yield self._settle(None if returned is None else to_stored(response, KEPT))
            yield from self._end(commit=not has_failed)
        except Exception as error:  # noqa: BLE001 - of the handler, or of its database
            return (yield from self._failed(error))
        done: WebhookOutcome = "processed" if settings.enqueue is None else "enqueued"
        self._ended("failed" if has_failed else done)
        return response

    def _failed(self, error: Exception) -> Procedure[HttpResponse]:
        yield from self.roll_back()
        if isinstance(error, Refuse):
            log.info("A webhook of %s is rejected permanently: %s", self._scope, error.reason)
            self._ended("refused")
            return responses.refused(self._settings.provider.no_retry)
        if isinstance(error, Busy):
            self._ended("busy")
            return responses.busy(error.retry_after)
        self._ended("failed")
        if isinstance(error, InvalidInput) and error.field == "payload":
            log.error("A webhook of %s does not fit into a job: %s", self._scope, error)
            return responses.too_large(self._settings.max_body)
        log.error("A webhook of %s failed and was rolled back.", self._scope, exc_info=error)
        return responses.UNAVAILABLE if is_passing(error) else responses.FAILED

    def _settle(self, result: str | None = None) -> Execute[Any]:
        """Settle the claims; the first one stores the response."""
        first = self._claims[0]
        settlements = [
            claims.Settlement(claim, result if claim is first else None) for claim in self._claims
        ]
        return self._execute(partial(claims.settle, settlements=settlements))

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
        verified = self._verified
        self._report(
            WebhookReceived,
            outcome=outcome,
            event_type=verified.event_type,
            secret_id=verified.secret_id,
            old_secret=verified.old_secret,
        )

    def _alarm(self, reason: Literal["id reused", "body replayed", "outcome unknown"]) -> None:
        log.warning("A webhook of %s is suspect: %s.", self._scope, reason)
        self._report(WebhookAlarm, reason=reason, id=self._verified.id)

    def _report(self, kind: Callable[..., WebhookEvent], **fields: Any) -> None:
        settings = self._settings
        place = {"provider": self._verified.provider, "endpoint": settings.name}
        settings.report(kind(**place, tenant=settings.tenant, **fields))


def bounded(key: str) -> str:
    """The key of an id; a digest if it is too long, or has characters that a database rejects."""
    text = key.encode("utf-8", "surrogatepass")
    if len(text) > checks.KEY_BYTES or b"\x00" in text or key != text.decode("utf-8", "replace"):
        return f"digest:{fingerprint(text.decode('latin-1'))}"
    return key


def _checked(returned: object) -> HttpResponse:
    if returned is None:
        return responses.DONE
    if not isinstance(returned, HttpResponse):
        kind = type(returned).__name__
        raise InvalidInput("handler", f"must return None or an HttpResponse, got {kind}")
    # Before the commit: otherwise every delivery would fail when the response is sent.
    for name, value in returned.headers:
        if not _HEADER.fullmatch(f"{name}{value}"):
            raise InvalidInput("handler", f"must return headers in latin-1, got {name!r}")
    return returned


def _replayed(result: Any) -> HttpResponse:
    """The response to the first delivery."""
    if result is None:
        return responses.DONE
    try:
        stored = from_stored(result)
    except UnreadableAnswer:
        return responses.DONE
    return stored if isinstance(stored, HttpResponse) else responses.DONE
