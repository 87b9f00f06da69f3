"""A job as it is pushed: how its signature is checked, and what a handler is given of it."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - read by msgspec
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from onefold.client.wire import Said
from onefold.errors import UsageError
from onefold.model.json_text import sorted_payload
from onefold.model.unique import fingerprint
from onefold.web.webhooks.provider import BadSignature
from onefold.web.webhooks.standard import StandardWebhooks

if TYPE_CHECKING:
    from onefold.app import Tenant
    from onefold.calls.within import Within
    from onefold.model.job import Json
    from onefold.web.http import HttpRequest
    from onefold.web.webhooks.webhook_event import Verified


class Envelope(Said, frozen=True, kw_only=True):
    """The body of a push."""

    id: str
    queue: str
    payload: Any = None
    attempt: int = 1
    max_attempts: int = 1
    defer_count: int = 0
    created_at: datetime | None = None
    kind: str = ""
    fence: int | None = None
    generation: int = 0
    """Grows with every fresh replay: that one is to run again, though its id is known."""


class PushedJobs(StandardWebhooks, frozen=True):
    """How Onefold's server signs what it pushes: Standard Webhooks, and the id is the job's."""

    name: ClassVar[str] = "onefold"

    def read(self, request: HttpRequest, body: bytes, now: datetime) -> Verified:
        """Check the signature. A redelivery has another body: what must not differ is the job."""
        verified = super().read(request, body, now)
        envelope = read_envelope(body)
        if envelope.id != verified.id:
            raise BadSignature("id_malformed")
        key = envelope.id if not envelope.generation else f"{envelope.id}:{envelope.generation}"
        job = sorted_payload(envelope.payload)
        return msgspec.structs.replace(
            verified,
            key=key,
            digest=fingerprint(envelope.queue, envelope.kind, job),
            event_type=envelope.kind or None,
            occurred_at=envelope.created_at,
        )


def read_envelope(body: bytes) -> Envelope:
    """The job in a body whose signature is good."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSignature("body_unbound") from error


_decoder = msgspec.json.Decoder(Envelope)


class PushedJob:
    """One delivery of a job, on its way through a handler."""

    def __init__(
        self, envelope: Envelope, onefold: Tenant | None = None, connection: Any = None
    ) -> None:
        """Made by the receiver."""
        self.id: str = envelope.id
        self.queue: str = envelope.queue
        self.kind: str = envelope.kind or envelope.queue
        self.payload: Json = envelope.payload
        self.attempt: int = envelope.attempt
        """From 1."""
        self.max_attempts: int = envelope.max_attempts
        self.defers: int = envelope.defer_count
        """How often it was deferred since it was enqueued or replayed."""
        self.fence: int | None = envelope.fence
        """The number of this delivery, strictly growing per job: for conditional writes."""
        self.created_at: datetime | None = envelope.created_at
        self.connection: Any = connection
        """Of the transaction that also remembers the job: what you write with it is committed with
        that, or not at all. None where the receiver has no database."""
        self._generation = envelope.generation
        self._onefold = onefold

    def key(self, name: str) -> str:
        """A key for a third party: the same over every delivery, new after a fresh replay."""
        again = f":{self._generation}" if self._generation else ""
        return f"{self.id}{again}:{name}"

    def within(self) -> Within:
        """Onefold inside the transaction: what is enqueued here is committed with the job."""
        if self._onefold is None or self.connection is None:
            raise UsageError("This receiver was given no Onefold, so there is no transaction.")
        return self._onefold.within(self.connection)

    def __repr__(self) -> str:
        """Without the payload: this may be logged."""
        return f"PushedJob(id={self.id!r}, kind={self.kind!r}, attempt={self.attempt})"
