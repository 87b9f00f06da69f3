"""Events about webhooks. None of them has a secret, a signature or a body.

Events: what has happened, as values, for whoever subscribes. They are told after the fact.

A listener matches on their types. New ones may come with any version, so a match needs a way out
for those that it does not know.
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
    """An event with a good signature came in, and was no duplicate."""

    provider: str
    endpoint: str
    outcome: WebhookOutcome
    event_type: str | None = None
    secret_id: str = ""
    """Which secret it was signed with."""
    old_secret: bool = False
    """True where that is not the current one: the sender has not changed over yet."""
    tenant: str = ""


class WebhookDuplicate(msgspec.Struct, frozen=True):
    """An event came in that was processed before: it had no effect."""

    provider: str
    endpoint: str
    event_type: str | None = None
    by: Literal["id", "second key"] = "id"
    tenant: str = ""


class WebhookRejected(msgspec.Struct, frozen=True):
    """A request was refused before anything was stored, and its sender was not told why."""

    provider: str
    endpoint: str
    code: str
    """`too_old` and `too_new` tell a clock that is wrong from a forgery; see `BadSignature`."""
    tenant: str = ""


class WebhookAlarm(msgspec.Struct, frozen=True):
    """Something that an honest sender does not do: have a look."""

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
    """New jobs were stored: so many of one kind, in one queue, by one call."""

    kind: str
    queue: str
    count: int
    tenant: str = ""


class DuplicatesSuppressed(msgspec.Struct, frozen=True):
    """Requests found a job that stood for them already, and made none."""

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
    """A delivery has ended, and the database knows: or, where it is lost, knows better."""

    job: Job
    outcome: JobOutcome
    duration: timedelta
    """Of the handler."""
    error_type: str | None = None
    """The type of what the handler raised."""


class LeasesExpired(msgspec.Struct, frozen=True):
    """Workers have vanished: a rescue found so many deliveries whose lease was over."""

    count: int
    buried: int = 0
    """Those of them that had no attempt left, or were poison."""


class WriteFenced(msgspec.Struct, frozen=True):
    """A delivery that was no longer the job's own wanted to write, and was refused."""

    job_id: str
    kind: str
    fence: int
    """Of the delivery that was refused."""


class Redelivered(msgspec.Struct, frozen=True):
    """A job was taken that had been delivered before."""

    job: Job


class KeyAnswered(msgspec.Struct, frozen=True):
    """A request with a key was answered."""

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
