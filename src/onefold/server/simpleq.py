"""The members that SimpleQ's SDK reads, beside those of Onefold, on the routes that it calls.

SimpleQ has one status for all jobs that wait (`pending`) and none for cancelled jobs: they have
`dead`. Its times have milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from onefold.app.deliveries import NACK
from onefold.model.delivery import Ended
from onefold.model.ids import milliseconds_of
from onefold.model.job import Enqueued, Job, JobState
from onefold.model.timestamps import Iso
from onefold.model.waiting import Waiting  # noqa: TC001 - read by msgspec
from onefold.model.wire import Answer, iso, iso_of, iso_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onefold.model.attempt import Attempt

SimpleqStatus: TypeAlias = Literal["pending", "processing", "awaiting_ack", "completed", "dead"]

STATUSES: Final[Mapping[JobState, SimpleqStatus]] = {
    "scheduled": "pending",
    "ready": "pending",
    "retrying": "pending",
    "running": "processing",
    "awaiting": "awaiting_ack",
    "completed": "completed",
    "dead": "dead",
    "cancelled": "dead",
}


class HistoryEntry(Answer):
    """One delivery that has ended."""

    attempt: int
    """From 1; a deferred delivery returns its number."""
    status: Literal["success", "failed", "nacked", "deferred"]
    """How the delivery ended."""
    error: str | None
    """The failure in a sentence; null if it succeeded."""
    webhook_status_code: int | None
    """The status of the response; null without a response, or if the job was not pushed."""
    timestamp: Iso
    """When it ended."""


class SimpleqJob(Job, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A job and its deliveries."""

    status: SimpleqStatus
    """The state in the words of SimpleQ."""
    attempts: int
    """How many attempts it has used."""
    scheduled_for: Iso
    """When it is or was due."""
    created_at: Iso  # type: ignore[assignment] # pyright: ignore[reportIncompatibleVariableOverride]
    """Made from the id of the job."""
    completed_at: Iso | None
    """When it was completed; null if it was not."""
    last_error: str | None
    """The last failure in a sentence."""
    history: list[HistoryEntry]
    """The last fifty that have ended, the newest last."""
    waiting: Waiting | None
    """Why it waits; null if it runs or has ended."""


class SimpleqEnqueued(Enqueued[Any], frozen=True, gc=False, kw_only=True, rename="camel"):
    """The job that a publish created or found."""

    status: SimpleqStatus
    """The state in the words of SimpleQ."""
    created_at: Iso
    """When the job was published first."""


class SimpleqEnded(Ended, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The delivery that a callback has ended."""

    accepted: Annotated[bool, Meta(extra_json_schema={"const": True})] = True
    """Always true."""


def simpleq_enqueued(enqueued: Enqueued) -> SimpleqEnqueued:
    """The response to a publish.

    A job whose row is gone has ended, usually as completed. With `dead` its publisher would send
    it again under another key, and it would run twice.
    """
    return SimpleqEnqueued(
        enqueued.id,
        enqueued.duplicate,
        enqueued.state,
        enqueued.mismatch,
        enqueued.replaced,
        status="completed" if enqueued.state is None else STATUSES[enqueued.state],
        created_at=iso_of(milliseconds_of(enqueued.id)),
    )


def simpleq_ended(ended: Ended) -> SimpleqEnded:
    """The response to a callback."""
    return SimpleqEnded(**msgspec.structs.asdict(ended))


def simpleq_job(job: Job, attempts: Iterable[Attempt], waiting: Waiting | None) -> SimpleqJob:
    """A job, the deliveries of it that have ended, and why it waits."""
    members = msgspec.structs.asdict(job)
    members["created_at"] = iso_of(milliseconds_of(job.id))
    return SimpleqJob(
        **members,
        status=STATUSES[job.state],
        attempts=job.attempt,
        scheduled_for=iso(job.run_at),
        completed_at=iso_or_none(job.ended_at) if job.state == "completed" else None,
        last_error=_message(job.error),
        history=[
            _entry(attempt, ended_at=iso(attempt.ended_at), pushed=job.pushed or {})
            for attempt in attempts
            if attempt.ended_at is not None
        ],
        waiting=waiting,
    )


def _entry(attempt: Attempt, *, ended_at: str, pushed: Mapping[str, Any]) -> HistoryEntry:
    # A failed push is described by its error; the last successful one, by the job.
    status = (attempt.error or {}).get("status")
    if status is None and pushed.get("fence") == attempt.fence:
        status = pushed.get("status")
    return HistoryEntry(
        attempt=attempt.number,
        status=_status(attempt),
        error=_message(attempt.error) or _reason(attempt),
        webhook_status_code=status if isinstance(status, int) else None,
        timestamp=ended_at,
    )


def _status(attempt: Attempt) -> Literal["success", "failed", "nacked", "deferred"]:
    match attempt.outcome:
        case "completed":
            return "success"
        case "deferred":
            return "deferred"
        case _:
            return "nacked" if (attempt.error or {}).get("type") == NACK else "failed"


def _reason(attempt: Attempt) -> str | None:
    """Why a delivery without an error failed: a cancel, an expired lease, the reason of a defer."""
    if attempt.outcome == "completed":
        return None
    return attempt.reason or (attempt.outcome if attempt.outcome != "deferred" else None)


def _message(error: Mapping[str, Any] | None) -> str | None:
    if error is None or (error.get("type", "") is None and error.get("message", "") is None):
        return None  # no failure: it only has the response
    return str(error.get("message") or error.get("type") or "failed")
