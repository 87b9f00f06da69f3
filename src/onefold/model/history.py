"""The history of a job: its deliveries, and how each of them ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from onefold.model.canonical import decode_payload
from onefold.model.lifecycle import Event, State
from onefold.model.moment import from_micros

if TYPE_CHECKING:
    from onefold.model.job import Job

AttemptOutcome: TypeAlias = Literal[
    "running", "completed", "retried", "deferred", "dead", "cancelled", "lease expired"
]


class Attempt(msgspec.Struct, frozen=True):
    """One delivery of a job."""

    number: int
    """The attempt that it was charged as. A defer gives it back, and a replay counts from 1."""
    fence: int
    worker: str | None
    started_at: datetime | None
    """When the worker took the job; None for a delivery that an older version noted."""
    ended_at: datetime | None
    """None while it is running."""
    outcome: AttemptOutcome
    reason: str | None = None
    """Why it was the last one: `failed`, `poison`, or the words that came with it."""
    error: Mapping[str, Any] | None = None
    """What went wrong: `type`, `message`, and for an exception its `traceback` and `causes`.

    For a push also what was answered: `status`, `duration`, `excerpt`. One that was answered well,
    and deferred or cancelled then, has these alone: its `type` and `message` are None.
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


def outcome_of(event: Event, state: State) -> AttemptOutcome:
    """The word for a delivery that `event` ended, and left the job in `state`."""
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
    """The deliveries that were noted, and the one that only the job itself tells of.

    One that was given up for lost and finished all the same is in both; the job knows better.
    """
    attempts = {attempt.fence: attempt for attempt in noted}
    known = attempts.get(job.fence)
    if job.state == "completed" or (job.state == "running" and known is None):
        attempts[job.fence] = Attempt(
            job.attempt,
            job.fence,
            job.worker if known is None else known.worker,
            job.taken_at,
            job.ended_at,
            job.state,
        )
    return sorted(attempts.values(), key=lambda attempt: attempt.fence)
