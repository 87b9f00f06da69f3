"""A pushed job: its request, what a handler receives, and what the end of the handler means."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import msgspec

from onefold.errors import Busy, InvalidInput, OutcomeUnknown, UsageError
from onefold.model.delivery import PushEnvelope
from onefold.model.failure import printable
from onefold.model.json_text import sorted_payload
from onefold.model.outcome import Bury, Cancel, Defer, Retry
from onefold.model.retry import parse_retry_after, whole_seconds
from onefold.model.unique import fingerprint
from onefold.web.webhooks import responses
from onefold.web.webhooks.provider import BadSignature
from onefold.web.webhooks.standard import StandardWebhooks

if TYPE_CHECKING:
    from onefold.app.onefold import Within
    from onefold.client.client import AsyncClient, Client
    from onefold.model.job import Json
    from onefold.web.http import HttpRequest, HttpResponse
    from onefold.web.webhooks.webhook_event import Received, Verified

REASON_LENGTH: Final = 500
_FIRST_REJECTION: Final = 300


class PushedJobs(StandardWebhooks, frozen=True):
    """How a server signs pushes: Standard Webhooks with the id of the job."""

    name: ClassVar[str] = "onefold"

    def read(self, request: HttpRequest, body: bytes, now: datetime) -> Verified:
        """Check the signature. The body of a redelivery differs; its job must be the same."""
        verified = super().read(request, body, now)
        envelope = read_envelope(body)
        if envelope.id != verified.id:
            raise BadSignature("id_malformed")
        key = envelope.id if not envelope.generation else f"{envelope.id}:{envelope.generation}"
        try:
            payload = sorted_payload(envelope.payload_json)
        except InvalidInput as error:
            raise BadSignature("body_unbound") from error
        return msgspec.structs.replace(
            verified,
            key=key,
            digest=fingerprint(envelope.queue, envelope.kind, payload),
            event_type=envelope.kind,
            occurred_at=datetime.fromisoformat(envelope.created_at),
        )


def read_envelope(body: bytes) -> PushEnvelope:
    """The job of a body whose signature is valid."""
    try:
        envelope = _decoder.decode(body)
        datetime.fromisoformat(envelope.created_at)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadSignature("body_unbound") from error
    return envelope


_decoder = msgspec.json.Decoder(PushEnvelope)


class PushedJob:
    """One delivery of a job, as its handler receives it."""

    def __init__(self, envelope: PushEnvelope, received: Received | None = None) -> None:
        """Made by the receiver; without `received`, it has no database."""
        self.id: str = envelope.id
        self.queue: str = envelope.queue
        self.kind: str = envelope.kind
        self.payload: Json = envelope.payload
        self.attempt: int = envelope.attempt
        """From 1."""
        self.max_attempts: int = envelope.max_attempts
        self.defers: int = envelope.defers
        """How often it was deferred since it was enqueued or replayed."""
        self.fence: int = envelope.fence
        """The number of this delivery. It grows with every delivery of the job."""
        self.created_at: datetime = datetime.fromisoformat(envelope.created_at)
        self.connection: Any = None if received is None else received.connection
        """The connection of the transaction that stores the job's id. Your rows are committed with
        it, or not at all. None if the receiver has no database."""
        self._generation = envelope.generation
        self._received = received

    def key(self, name: str) -> str:
        """A key for a third party: the same for every delivery, new after a fresh replay."""
        generation = f":{self._generation}" if self._generation else ""
        return f"{self.id}{generation}:{name}"

    def within(self) -> Within:
        """Onefold inside the transaction: jobs that you enqueue are committed with this job."""
        if self._received is None:
            raise UsageError("This receiver has no Onefold, so there is no transaction.")
        return self._received.within()

    def __repr__(self) -> str:
        # Without the payload: this may be logged.
        return f"PushedJob(id={self.id!r}, kind={self.kind!r}, attempt={self.attempt})"


class PushDone(msgspec.Struct, frozen=True):
    """The job is done, now or by an earlier delivery."""

    result: Any = None


class PushFailed(msgspec.Struct, frozen=True):
    """The attempt failed; the job may be retried."""

    reason: str
    after: timedelta | None = None


PushResult: TypeAlias = PushDone | PushFailed | Defer | Bury | Cancel


def result_of(returned: object) -> PushResult:
    """The meaning of what a handler returned, or of an `Outcome` that it raised."""
    match returned:
        case Retry(after):
            return PushFailed("the handler requested another attempt", after)
        case Defer() | Bury() | Cancel():
            return returned
        case _:
            return PushDone(returned)


def result_of_error(error: BaseException) -> PushResult:
    """The meaning of an exception: a failed attempt, an unknown outcome, or later."""
    if isinstance(error, Busy):
        return Defer(error.retry_after)
    if isinstance(error, OutcomeUnknown):
        return PushFailed("unknown") if error.verifiable else Bury("unknown")
    return PushFailed(printable(f"{type(error).__qualname__}: {error}", REASON_LENGTH))


def final_result(handled: PushResult | None, response: HttpResponse, now: datetime) -> PushResult:
    """The handler's result, unless it did not run or its transaction was not committed."""
    is_committed = response.status < _FIRST_REJECTION
    if handled is not None and (is_committed or not isinstance(handled, PushDone)):
        return handled
    if is_committed:
        return PushDone()
    headers = {name.lower(): value for name, value in response.headers}
    wait = parse_retry_after(headers.get("retry-after", ""), now=now)
    if wait is not None:
        # Another delivery is running here, or the database is unavailable: no attempt is used.
        return Defer(wait)
    return PushFailed(f"the receiver answered {response.status}")


def response_to(result: PushResult) -> HttpResponse:
    """The response with the same meaning, for a queue in standard mode."""
    match result:
        case PushDone() | Cancel():
            return responses.DONE
        case Defer(after):
            wait = ("Retry-After", str(whole_seconds(after)))
            return responses.short_response(503, "Not now. Send it again later.", wait)
        case PushFailed(_, after):
            headers = () if after is None else (("Retry-After", str(whole_seconds(after))),)
            return responses.short_response(500, "The job failed. Send it again later.", *headers)
        case Bury():
            return responses.short_response(500, "The job will never work.")


def report(client: Client | AsyncClient, job: PushedJob, result: PushResult) -> Any:
    """Report a result to the server; a coroutine if the client is an `AsyncClient`."""
    deliveries: Any = client.deliveries
    match result:
        case PushDone(value):
            return deliveries.acknowledge(job.id, fence=job.fence, result=value)
        case Defer(after):
            return deliveries.defer_job(job.id, fence=job.fence, after=after)
        case Bury(reason):
            text = printable(reason, REASON_LENGTH)
            return deliveries.nack(job.id, fence=job.fence, retryable=False, reason=text)
        case PushFailed(reason):
            return deliveries.nack(job.id, fence=job.fence, retryable=True, reason=reason)
        case Cancel(reason):
            return client.cancel(job.id, reason=printable(reason, REASON_LENGTH))
