"""What `onefold.subscribe(listener)` tells: events, as values."""

from onefold.model.event import (
    DuplicatesSuppressed,
    Event,
    JobEnded,
    JobOutcome,
    JobsEnqueued,
    JobStarted,
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
    "LeasesExpired",
    "Listener",
    "Redelivered",
    "WriteFenced",
]
