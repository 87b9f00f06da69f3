"""Replay several ended jobs with one key: the same result as one replay after the other. Pure.

Each job requests the key in its turn. A job that holds it by a window that is over loses it to the
next one, and stays queued. A job that holds it by its state, or by a window that is not over,
keeps it, and the rest are its duplicates.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.model.ids import new_id
from onefold.model.job import JobState, state_of
from onefold.model.lifecycle import Event, State, allows
from onefold.model.new_job import NewJobRow

if TYPE_CHECKING:
    from collections.abc import Iterable


YEAR: Final = 365 * 24 * 60 * 60 * 1_000_000


class Replayable(msgspec.Struct, frozen=True):
    """A row of find_replayable, in the order of its columns."""

    id: str
    shard: int
    tenant: str
    queue: str
    kind: str
    state: int
    priority: int
    max_attempts: int
    unique_kind: str | None
    unique_key: str | None
    unique_states: int
    unique_until: int | None
    yielded: bool
    stripped: bool
    fingerprint: str | None
    expires_at: int | None
    now: int
    attempt: int
    run_at: int
    awaits: bool | None

    @property
    def word(self) -> JobState:
        """Its state, for users."""
        return state_of(
            self.state, attempt=self.attempt, run_at=self.run_at, now=self.now, awaits=self.awaits
        )

    @property
    def place(self) -> tuple[int, str, str]:
        """The place of its key in lock order; all jobs belong to one tenant."""
        return (self.shard, self.unique_kind or "", self.unique_key or "")

    @property
    def asks(self) -> bool:
        """True: its replay needs its key. False: it has none, or has released it for good."""
        holds = self.unique_until is not None or self.holds_queued
        return self.unique_key is not None and (bool(self.yielded) or holds)

    @property
    def holds_queued(self) -> bool:
        """True: its scope holds the key while the job is queued."""
        return bool(self.unique_states & 1)

    @property
    def keeps(self) -> bool:
        """True: no other job can take its key once it is queued again."""
        return self.holds_queued or (self.unique_until or 0) > self.now

    @property
    def is_expired_holder(self) -> bool:
        """True: it is queued but expired: the next request for its key buries it."""
        over = self.expires_at is not None and self.expires_at <= self.now
        return self.state == State.QUEUED and over and self.asks and not self.yielded

    def placeholder(self) -> NewJobRow:
        """A placeholder that reserves the key: an update could take it only by causing an error."""
        return NewJobRow(
            id=new_id(int(self.id[15:18], 16)),
            shard=self.shard,
            tenant=self.tenant,
            queue=self.queue,
            kind=self.kind,
            priority=self.priority,
            run_at=None,
            delay=YEAR,
            max_attempts=self.max_attempts,
            payload="null",
            fingerprint=self.fingerprint,
            unique_kind=self.unique_kind,
            unique_key=self.unique_key,
            unique_states=1,
            unique_for=None,
            expires_at=None,
            options=None,
        )


class Rivals(msgspec.Struct, frozen=True):
    """Jobs that request one key, in the order of their turns. There is at least one."""

    jobs: tuple[Replayable, ...]

    @property
    def winner(self) -> Replayable:
        """The job that has a free key in the end: the first that keeps it, or else the last."""
        return next((job for job in self.jobs if job.keeps), self.jobs[-1])

    def around(self, job_id: str) -> tuple[list[str], list[str], list[str]]:
        """The jobs before a job, the job, and those after; all are before if it is not here."""
        ids = [job.id for job in self.jobs]
        turn = ids.index(job_id) if job_id in ids else len(ids)
        return ids[:turn], ids[turn : turn + 1], ids[turn + 1 :]


def rivals(jobs: Iterable[Replayable], event: Event) -> list[Rivals]:
    """Those of `jobs` that request a key, by key, in lock order."""
    turns: defaultdict[tuple[int, str, str], list[Replayable]] = defaultdict(list)
    for job in jobs:
        earlier = turns[job.place]
        # An expired holder is still queued, unless another request took its key before.
        if job.asks and (allows(State(job.state), event) or (earlier and job.is_expired_holder)):
            earlier.append(job)
    return [Rivals(tuple(turns[place])) for place in sorted(turns) if turns[place]]
