"""What `onefold.subscribe(listener)` tells: events, as values."""

from onefold.model.event import (
    DuplicatesSuppressed,
    Event,
    JobEnded,
    JobOutcome,
    JobsEnqueued,
    JobStarted,
    KeyAnswered,
    LeasesExpired,
    Listener,
    Redelivered,
    WriteFenced,
)
from onefold.model.webhook_event import (
    WebhookAlarm,
    WebhookDuplicate,
    WebhookEvent,
    WebhookOutcome,
    WebhookReceived,
    WebhookRejected,
)

__all__ = [
    "DuplicatesSuppressed",
    "Event",
    "JobEnded",
    "JobOutcome",
    "JobStarted",
    "JobsEnqueued",
    "KeyAnswered",
    "LeasesExpired",
    "Listener",
    "Redelivered",
    "WebhookAlarm",
    "WebhookDuplicate",
    "WebhookEvent",
    "WebhookOutcome",
    "WebhookReceived",
    "WebhookRejected",
    "WriteFenced",
]
