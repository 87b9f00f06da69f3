"""The deliveries of a job, as they are shown afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from onefold.model.json_text import decode_payload
from onefold.model.lifecycle import Event, State
from onefold.model.timestamps import Moment, from_micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from onefold.model.job import Job

AttemptOutcome: TypeAlias = Literal[
    "running", "completed", "retried", "deferred", "dead", "cancelled", "lease expired"
]


class Attempt(msgspec.Struct, frozen=True, rename="camel"):
    """One delivery of a job."""

    number: int
    """The number of its attempt. A defer does not use one, and a replay counts from 1."""
    fence: int
    """The number of the delivery. It grows with every delivery of the job."""
    worker: str | None
    """The worker that took the job; None if it is not known."""
    started_at: Moment | None
    """When the worker took the job; None if an older version stored the delivery."""
    ended_at: Moment | None
    """None while it is running."""
    outcome: AttemptOutcome
    """How the delivery ended. `retried`: it failed, and the job waits for another attempt."""
    reason: str | None = None
    """Why it was the last one: `failed`, `poison`, or the reason of the caller."""
    error: Mapping[str, Any] | None = None
    """The failure: `type`, `message`, and for an exception its `traceback` and `causes`.

    For a push also the response: `status`, `duration`, `excerpt`. A delivery that succeeded and
    was then deferred or cancelled has only these: its `type` and `message` are None.
    """

    @property
    def duration(self) -> timedelta | None:
        """From the take to the end; None while it is running."""
        if self.started_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.started_at

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Attempt:
        """From a row of find_attempts."""
        number, fence, worker, started_at, ended_at, outcome, reason, error = row
        return cls(
            number,
            fence,
            worker,
            None if started_at is None else from_micros(started_at),
            from_micros(ended_at),
            outcome,
            reason,
            None if error is None else decode_payload(error),
        )


class AttemptList(msgspec.Struct, frozen=True):
    """The deliveries of a job, the newest last."""

    items: tuple[Attempt, ...]
    """The deliveries, the newest last."""


def outcome_of(event: Event, state: State) -> AttemptOutcome:
    """The outcome of a delivery that `event` ended, with the job in `state` afterwards."""
    match event:
        case Event.LAPSE:
            return "lease expired"
        case Event.DEFER:
            return "deferred"
        case Event.CANCEL:
            return "cancelled"
        case _:
            return "dead" if state is State.DEAD else "retried"


def history(job: Job, noted: Iterable[Attempt]) -> list[Attempt]:
    """The stored deliveries, and the current or completed one, which only the job contains.

    A delivery that counted as lost and finished later is in both; then the job's data is used.
    """
    attempts = {attempt.fence: attempt for attempt in noted}
    known = attempts.get(job.fence)
    is_running = job.state in {"running", "awaiting"}
    if job.state == "completed" or (is_running and known is None):
        attempts[job.fence] = Attempt(
            job.attempt,
            job.fence,
            job.worker if known is None else known.worker,
            job.taken_at,
            job.ended_at,
            "running" if is_running else "completed",
        )
    return sorted(attempts.values(), key=lambda attempt: attempt.fence)
