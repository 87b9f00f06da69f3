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
    "WriteFenced",
]
