"""Somebody else got there first: normal in life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.errors.root import OnefoldError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta


class Conflict(OnefoldError):
    """Somebody else got there first."""

    status = 409


class AlreadyEnqueued(Conflict):
    """`on_duplicate="raise"` met a holder of the key. Nothing of the call was stored."""

    holder_id: str
    key: str
    item: int | None

    def __init__(
        self, *, key: str, holder_id: str, state: str | None, item: int | None = None
    ) -> None:
        """`holder_id` is the job that has the key, `item` the place in a batch."""
        super().__init__(
            f"{_place(item)} key {key!r} is held by job {holder_id} ({state})."
            ' Use on_duplicate="keep" to be answered with that job instead.',
            key=key,
            holder_id=holder_id,
            state=state,
            item=item,
        )


def _place(item: int | None) -> str:
    return "The" if item is None else f"item {item}: the"


class KeyReused(Conflict):
    """The same key came with a different request."""

    status = 422
    key: str

    def __init__(self, *, key: str, holder_id: str | None = None, item: int | None = None) -> None:
        """`holder_id` is the job, if a job has the key."""
        super().__init__(
            f"{_place(item)} key {key!r} was used before with a different request."
            " Use a new key for a new request.",
            key=key,
            holder_id=holder_id,
            item=item,
        )


class Busy(Conflict):
    """The first attempt with this key is still at work. Also the answer of `claim()`."""

    __match_args__ = ("retry_after",)
    key: str
    retry_after: timedelta

    def __init__(self, *, key: str, retry_after: timedelta) -> None:
        """`retry_after` is when it is worth asking again."""
        super().__init__(
            f"The key {key!r} is being worked on by somebody else."
            f" Try again in {retry_after.total_seconds():g} seconds.",
            key=key,
            retry_after=retry_after,
        )


class OutcomeUnknown(Conflict):
    """An attempt vanished or raised, must not be repeated, and its effect may have happened."""

    key: str
    since: datetime | None
    verifiable: bool
    """True where a later attempt asks `verify` again: leaving a job handler it is a retry."""

    def __init__(
        self, *, key: str, since: datetime | None = None, verifiable: bool = False
    ) -> None:
        """`since` is when its lease ended."""
        super().__init__(
            f"The attempt at {key!r} ended without a known outcome, so its effect may or may not"
            " have happened. Find out (verify=), then settle or release the key.",
            key=key,
            since=since,
            verifiable=verifiable,
        )


class StepFailed(Conflict):
    """A step failed for good in an earlier attempt, with an exception that cannot be rebuilt."""

    step: str
    error_type: str
    reason: str

    def __init__(self, *, step: str, error_type: str, reason: str) -> None:
        """`error_type` and `reason` are type and message of the exception."""
        super().__init__(
            f"The step {step!r} failed for good in an earlier attempt of this job:"
            f" {error_type}: {reason}. Replay the job with fresh=True to try it again.",
            step=step,
            error_type=error_type,
            reason=reason,
        )


class LeaseLost(Conflict):
    """This delivery, claim or lock is no longer yours; nothing was written."""

    fence: int

    def __init__(self, subject: str, *, fence: int) -> None:
        """`subject` names the job or key, `fence` the delivery that lost it."""
        super().__init__(
            f"{subject} is no longer held under fence {fence}: it was given to somebody else or"
            " ended meanwhile. Nothing was written; stop working on it.",
            subject=subject,
            fence=fence,
        )


class JobNotFound(Conflict):
    """No such job for this tenant."""

    status = 404
    job_id: str

    def __init__(self, job_id: str) -> None:
        """`job_id` is what was asked for."""
        super().__init__(
            f"There is no job {job_id}: it never existed, was pruned, or is not committed yet.",
            job_id=job_id,
        )


class ScheduleNotFound(Conflict):
    """No such schedule for this tenant."""

    status = 404
    name: str

    def __init__(self, name: str) -> None:
        """`name` is what was asked for."""
        super().__init__(
            f"There is no schedule {name!r}: it was never made, or has been removed.", name=name
        )


class QueueNotEmpty(Conflict):
    """Jobs are queued in the queue, or running."""

    name: str

    def __init__(self, name: str) -> None:
        """`name` is the queue that was to be removed."""
        super().__init__(
            f"There are jobs in the queue {name!r}, queued or running. Let them end, or remove it"
            " with force=True: they are removed with it then.",
            name=name,
        )


class WrongState(Conflict):
    """The job is in a state that does not allow what was asked."""

    job_id: str

    def __init__(self, job_id: str, *, state: str, wanted: str) -> None:
        """`wanted` says which states would do, in words."""
        super().__init__(
            f"Job {job_id} is {state}; this needs {wanted}.",
            job_id=job_id,
            state=state,
            wanted=wanted,
        )


class Gone(Conflict):
    """Only a tombstone of the job is left: it holds its key, but cannot run again."""

    status = 410
    job_id: str

    def __init__(self, job_id: str) -> None:
        """`job_id` is what was asked for."""
        super().__init__(
            f"Job {job_id} has been pruned; only a tombstone that holds its key is left."
            " Enqueue a new job.",
            job_id=job_id,
        )


class JobFailed(Conflict):
    """The job whose result was waited for is dead or cancelled: there will be none."""

    job_id: str
    kind: str
    state: str
    reason: str | None
    error: Mapping[str, object] | None
    """The last failure: type and message."""

    def __init__(
        self,
        job_id: str,
        *,
        kind: str,
        state: str,
        reason: str | None,
        error: Mapping[str, object] | None,
    ) -> None:
        """`reason` and `error` are the job's own."""
        why = "" if reason is None else f" ({reason})"
        said = "" if error is None else f": {error.get('type')}: {error.get('message')}"
        super().__init__(
            f"Job {job_id} ({kind}) is {state}{why}{said}. It has no result, and will have none"
            " unless it is replayed.",
            job_id=job_id,
            kind=kind,
            state=state,
            reason=reason,
            error=error,
        )


class ResultTimeout(Conflict, TimeoutError):
    """The job has not ended in time. It goes on; ask again."""

    status = 408
    job_id: str
    state: str

    def __init__(self, job_id: str, *, state: str, timeout: timedelta) -> None:
        """`state` is what it was in when we gave up waiting."""
        super().__init__(
            f"Job {job_id} is still {state} after {timeout.total_seconds():g} seconds. It has not"
            " been stopped: ask again, or give a longer timeout.",
            job_id=job_id,
            state=state,
            timeout=timeout,
        )


class TooOld(Conflict):
    """The attempt is older than what the ledger still remembers, so it cannot be told apart."""

    key: str

    def __init__(self, *, key: str, issued_at: datetime, horizon: datetime) -> None:
        """`horizon` is the oldest moment that the ledger still answers for."""
        super().__init__(
            f"{key!r} was issued at {issued_at.isoformat()}, before {horizon.isoformat()}, the"
            " oldest the ledger remembers: it may have been processed already, so it is refused.",
            key=key,
            issued_at=issued_at,
            horizon=horizon,
        )
