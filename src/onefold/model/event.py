"""Events for listeners: what has happened to jobs, keys and webhooks, after the fact.

A listener matches on their types. A new version may add types, so a match needs a default. Events
about webhooks contain no secret, signature or body.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Literal, TypeAlias

import msgspec

from onefold.model.job import Job

WebhookOutcome: TypeAlias = Literal[
    "processed", "enqueued", "failed", "refused", "busy", "unavailable"
]


class WebhookReceived(msgspec.Struct, frozen=True):
    """An event with a valid signature was received, and was not a duplicate."""

    provider: str
    endpoint: str
    outcome: WebhookOutcome
    event_type: str | None = None
    secret_id: str = ""
    """The id of the secret that it was signed with."""
    old_secret: bool = False
    """True if that is not the current one: the sender still uses an old secret."""
    tenant: str = ""


class WebhookDuplicate(msgspec.Struct, frozen=True):
    """An event was received that was processed before: it had no effect."""

    provider: str
    endpoint: str
    event_type: str | None = None
    by: Literal["id", "second key"] = "id"
    tenant: str = ""


class WebhookRejected(msgspec.Struct, frozen=True):
    """A request was rejected before it was stored; the response does not contain the reason."""

    provider: str
    endpoint: str
    code: str
    """`too_old` and `too_new` indicate a wrong clock rather than a forgery; see `BadSignature`."""
    tenant: str = ""


class WebhookAlarm(msgspec.Struct, frozen=True):
    """A request that an honest sender does not send: investigate it."""

    provider: str
    endpoint: str
    reason: Literal["id reused", "body replayed", "outcome unknown"]
    id: str
    tenant: str = ""


WebhookEvent: TypeAlias = WebhookReceived | WebhookDuplicate | WebhookRejected | WebhookAlarm


JobOutcome: TypeAlias = Literal[
    "completed", "retried", "deferred", "dead", "cancelled", "handed back", "awaiting", "lost"
]


class JobsEnqueued(msgspec.Struct, frozen=True):
    """New jobs of one kind were stored in one queue by one call."""

    kind: str
    queue: str
    count: int
    tenant: str = ""


class DuplicatesSuppressed(msgspec.Struct, frozen=True):
    """Requests found an existing job, and stored none."""

    kind: str
    queue: str
    count: int
    tenant: str = ""


class JobStarted(msgspec.Struct, frozen=True):
    """A handler is about to run."""

    job: Job
    worker: str
    waited: timedelta
    """Since the job was due."""


class JobEnded(msgspec.Struct, frozen=True):
    """A delivery has ended, and its end is stored; or it was lost."""

    job: Job
    outcome: JobOutcome
    duration: timedelta
    """Of the handler."""
    error_type: str | None = None
    """The type of the handler's exception."""


class LeasesExpired(msgspec.Struct, frozen=True):
    """Workers have vanished: a rescue found deliveries whose lease had ended."""

    count: int
    buried: int = 0
    """How many of them had no attempt left, or were poison."""


class WriteFenced(msgspec.Struct, frozen=True):
    """A write of a delivery that no longer had the job was rejected."""

    job_id: str
    kind: str
    fence: int
    """Of the rejected delivery."""


class Redelivered(msgspec.Struct, frozen=True):
    """A job was taken that had been delivered before."""

    job: Job


class KeyAnswered(msgspec.Struct, frozen=True):
    """A request with a key received its response."""

    surface: str
    route: str
    outcome: str
    """won, resumed, replayed, busy, mismatch, unknown, lost, unavailable or unprotected."""
    tenant: str = ""


Event: TypeAlias = (
    JobsEnqueued
    | DuplicatesSuppressed
    | JobStarted
    | JobEnded
    | LeasesExpired
    | WriteFenced
    | Redelivered
    | KeyAnswered
    | WebhookEvent
)
Listener: TypeAlias = Callable[[Event], None]
