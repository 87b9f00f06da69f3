"""Events as the feed tells them: a name, whose it is, and JSON that has no payload in it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.model.event import (
    DuplicatesSuppressed,
    JobEnded,
    JobsEnqueued,
    JobStarted,
    KeyAnswered,
    Redelivered,
)
from onefold.model.served_queue import shown
from onefold.server.wire import iso

if TYPE_CHECKING:
    from onefold.model.event import Event
    from onefold.model.job import Job

ENQUEUED: Final = "jobs.enqueued"
DUPLICATE: Final = "jobs.duplicate"
STARTED: Final = "job.started"
ENDED: Final = "job.ended"
REDELIVERED: Final = "job.redelivered"
KEY: Final = "key.answered"
COUNTED: Final = "queue.counted"

NAMES: Final = (ENQUEUED, DUPLICATE, STARTED, ENDED, REDELIVERED, KEY, COUNTED)
"""What can be listened for."""


class Told(msgspec.Struct, frozen=True, gc=False):
    """An event that belongs to a tenant."""

    tenant: str
    name: str
    queue: str | None
    data: bytes


def owner_of(event: Event) -> str | None:
    """The tenant that an event belongs to; None where it belongs to nobody."""
    job: Job | None = getattr(event, "job", None)
    return getattr(event, "tenant", None) if job is None else job.tenant


def told(event: Event) -> Told | None:
    """An event for its tenant; None where it has none, or is not one of the server's."""
    match event:
        case JobsEnqueued() | DuplicatesSuppressed():
            name = ENQUEUED if isinstance(event, JobsEnqueued) else DUPLICATE
            return _told(
                name, event.tenant, event.queue, {"kind": event.kind, "count": event.count}
            )
        case JobStarted():
            more = {"worker": event.worker, "waited": event.waited.total_seconds()}
            return _of_job(STARTED, event.job, more)
        case JobEnded():
            more = {
                "outcome": event.outcome,
                "duration": event.duration.total_seconds(),
                "errorType": event.error_type,
            }
            return _of_job(ENDED, event.job, more)
        case Redelivered():
            return _of_job(REDELIVERED, event.job, {})
        case KeyAnswered():
            said = {"surface": event.surface, "route": event.route, "outcome": event.outcome}
            return _told(KEY, event.tenant, None, said)
        case _:
            return None


def _of_job(name: str, job: Job, more: dict[str, Any]) -> Told:
    said = {"id": job.id, "kind": job.kind, "attempt": job.attempt, "fence": job.fence, **more}
    return _told(name, job.tenant, job.queue, said)


def _told(name: str, tenant: str, queue: str | None, said: dict[str, Any]) -> Told:
    where = None if queue is None else shown(tenant, queue)
    named = {} if where is None else {"queue": where}
    return Told(tenant, name, where, stamped({**named, **said}))


def stamped(said: dict[str, Any]) -> bytes:
    """What is said, with the time here."""
    return msgspec.json.encode({"at": iso(datetime.now(UTC)), **said})
