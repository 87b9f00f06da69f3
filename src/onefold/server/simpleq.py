"""Jobs in the form of SimpleQ's SDK: `status`, `history` and times with milliseconds.

SimpleQ has one status for all jobs that wait (`pending`) and none for cancelled jobs: they have
`dead`. The `state` of Onefold is always included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from onefold.app.deliveries import NACK
from onefold.model.checks import shown
from onefold.model.ids import milliseconds_of
from onefold.model.job import JobState
from onefold.model.json_text import is_object
from onefold.model.timestamps import Iso
from onefold.model.wire import Answer, iso, iso_of, iso_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onefold.model.job import Attempt, Enqueued, Job

Word: TypeAlias = Literal["pending", "processing", "awaiting_ack", "completed", "dead"]
"""SimpleQ's status of a job."""

Ending: TypeAlias = Literal["success", "failed", "nacked", "deferred"]
"""SimpleQ's status of a delivery that has ended."""

WORDS: Final[Mapping[JobState, Word]] = {
    "scheduled": "pending",
    "ready": "pending",
    "retrying": "pending",
    "running": "processing",
    "awaiting": "awaiting_ack",
    "completed": "completed",
    "dead": "dead",
    "cancelled": "dead",
}

_PUSHED: Final = '{"pushed":'


class HistoryEntry(Answer):
    """One delivery that has ended."""

    attempt: int
    """From 1; a deferred delivery returns its number."""
    status: Ending
    error: str | None
    webhook_status_code: int | None
    """The status of the response; null without a response, or if the job was not pushed."""
    timestamp: Iso
    """When it ended."""
    fence: int
    outcome: str
    """Onefold's name: completed, retried, deferred, dead, cancelled, lease expired."""
    reason: str | None
    worker: str | None
    started_at: Iso | None
    duration: float | None
    """Seconds: of the push, or from the take to the end."""
    excerpt: str | None
    """The beginning of the response of the endpoint."""


class JobAnswer(Answer):
    """A job in its current state."""

    id: str
    queue: str
    attempts: int
    max_attempts: int
    defer_count: int
    """How often it was deferred since it was published or replayed."""
    idempotency_key: str | None
    payload: Any
    scheduled_for: Iso
    last_error: str | None
    created_at: Iso
    completed_at: Iso | None
    state: JobState
    kind: str
    priority: int
    fence: int
    """Of its last delivery; 0 before the first."""
    unique_key: str | None
    group_key: str | None
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]
    result: Any
    reason: str | None
    """Why the job ended."""
    failure: Mapping[str, Any] | None
    """The last failure: type, message, and further fields if there are any."""
    started_at: Iso | None
    """When its last delivery began."""
    lease_until: Iso | None
    ended_at: Iso | None
    expires_at: Iso | None


class JobWithHistory(JobAnswer):
    """A job and its deliveries, in the form of SimpleQ's SDK."""

    status: Word
    history: list[HistoryEntry]
    """The last fifty that have ended, the newest last."""


class Published(Answer):
    """The job that a publish created or found."""

    id: str
    status: Word
    created_at: Iso
    duplicate: bool
    """True if an earlier publish created the job."""
    mismatch: bool
    """True if the key was first used with another request."""
    replaced: bool
    """True if the job has the payload of this request now."""
    state: JobState | None
    """Null if only the key of the job is stored."""


class PublishedMany(Answer):
    """One result for each item, in order."""

    items: list[Published]
    inserted: int
    """How many jobs are new."""
    skipped: int
    """How many items found an earlier job, or repeat an earlier item."""


def published(enqueued: Enqueued) -> Published:
    """The response to a publish.

    A job whose row is gone has ended, usually as completed. With `dead` its publisher would send
    it again under another key, and it would run twice.
    """
    state = enqueued.state
    return Published(
        id=enqueued.id,
        status="completed" if state is None else WORDS[state],
        created_at=iso_of(milliseconds_of(enqueued.id)),
        duplicate=enqueued.duplicate,
        mismatch=enqueued.mismatch,
        replaced=enqueued.replaced,
        state=state,
    )


def said_of(job: Job) -> JobAnswer:
    """A job without its history."""
    return JobAnswer(**_members(job))


def said_with_history(job: Job, attempts: Iterable[Attempt]) -> JobWithHistory:
    """A job and the deliveries of it that have ended."""
    pushed = _finishing_push(job) or job.pushed or {}
    entries = [
        _entry(attempt, ended_at=iso(attempt.ended_at), pushed=pushed)
        for attempt in attempts
        if attempt.ended_at is not None
    ]
    return JobWithHistory(**_members(job), status=WORDS[job.state], history=entries)


def _members(job: Job) -> dict[str, Any]:
    state = job.state
    return {
        "id": job.id,
        "queue": shown(job.tenant, job.queue),
        "attempts": job.attempt,
        "max_attempts": job.max_attempts,
        "defer_count": job.defers,
        "idempotency_key": job.idempotency_key,
        # As it is stored, which is JSON: it is not parsed.
        "payload": msgspec.Raw(job.payload_text.encode()),
        "scheduled_for": iso(job.run_at),
        "last_error": _message(job.error),
        "created_at": iso_of(milliseconds_of(job.id)),
        "completed_at": iso_or_none(job.ended_at) if state == "completed" else None,
        "state": state,
        "kind": job.kind,
        "priority": job.priority,
        "fence": job.fence,
        "unique_key": job.unique_key,
        "group_key": job.group_key,
        "tags": job.tags,
        "metadata": job.metadata,
        "result": _result(job),
        "reason": job.reason,
        "failure": job.error,
        "started_at": iso_or_none(job.taken_at),
        "lease_until": iso_or_none(job.lease_until) if state in {"running", "awaiting"} else None,
        "ended_at": iso_or_none(job.ended_at),
        "expires_at": iso_or_none(job.expires_at),
    }


def _result(job: Job) -> msgspec.Raw | None:
    """The stored result; the exchange of a push, which is stored in its place, does not count."""
    if job.result_text is None or _finishing_push(job) is not None:
        return None
    return msgspec.Raw(job.result_text.encode())


def _finishing_push(job: Job) -> Mapping[str, Any] | None:
    """The exchange that finished the job: it is stored in the place of a handler's result."""
    if job.result_text is None or not job.result_text.startswith(_PUSHED):
        return None
    exchange = job.result["pushed"]
    is_ours = len(job.result) == 1 and is_object(exchange) and exchange.get("fence") == job.fence
    return exchange if is_ours else None


def _entry(attempt: Attempt, *, ended_at: str, pushed: Mapping[str, Any]) -> HistoryEntry:
    error = attempt.error or {}
    # A failed push is described by its error; the last successful one, by the job.
    last: Mapping[str, Any] = pushed if pushed.get("fence") == attempt.fence else {}
    exchange = error if error.keys() & {"status", "duration", "excerpt"} else last
    return HistoryEntry(
        attempt=attempt.number,
        status=_ending(attempt),
        error=_message(attempt.error) or _unsaid(attempt),
        webhook_status_code=_typed(exchange.get("status"), int),
        timestamp=ended_at,
        fence=attempt.fence,
        outcome=attempt.outcome,
        reason=attempt.reason,
        worker=attempt.worker,
        started_at=iso_or_none(attempt.started_at),
        duration=_duration(attempt, exchange),
        excerpt=_typed(exchange.get("excerpt"), str),
    )


def _ending(attempt: Attempt) -> Ending:
    match attempt.outcome:
        case "completed":
            return "success"
        case "deferred":
            return "deferred"
        case _:
            nacked = (attempt.error or {}).get("type") == NACK
            return "nacked" if nacked else "failed"


def _unsaid(attempt: Attempt) -> str | None:
    """Why a delivery without an error failed: a cancel, an expired lease, the reason of a defer."""
    if attempt.outcome == "completed":
        return None
    return attempt.reason or (attempt.outcome if attempt.outcome != "deferred" else None)


def _message(error: Mapping[str, Any] | None) -> str | None:
    if error is None or (error.get("type", "") is None and error.get("message", "") is None):
        return None  # no failure: it only has the response
    return str(error.get("message") or error.get("type") or "failed")


def _duration(attempt: Attempt, exchange: Mapping[str, Any]) -> float | None:
    pushed = exchange.get("duration")
    if isinstance(pushed, int | float):
        return float(pushed)
    return None if attempt.duration is None else attempt.duration.total_seconds()


def _typed(value: object, kind: type) -> Any:
    return value if isinstance(value, kind) else None
