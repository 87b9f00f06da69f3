"""Ended jobs with one key that are replayed together: what one replay after the other comes to.

Nothing is read or written here. Each job asks for the key in its turn. One that holds it by a
window that is over loses it to the next that asks, and stays queued; one that holds it by its state
or by a window that is not over keeps it, and the rest are its duplicates.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.model.ids import new_id
from onefold.model.lifecycle import Event, State, allows
from onefold.model.new_job import NewJobRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onefold.operations.statement import Row

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

    @classmethod
    def from_row(cls, row: Row) -> Replayable:
        """From a row of find_replayable."""
        return cls(*row)

    @property
    def place(self) -> tuple[int, str, str]:
        """Where its key is, in the order in which keys are asked for; all are one tenant's."""
        return (self.shard, self.unique_kind or "", self.unique_key or "")

    @property
    def asks(self) -> bool:
        """True where its replay needs its key: not where it has none, or gave it up for good."""
        holds = self.unique_until is not None or self.holds_queued
        return self.unique_key is not None and (bool(self.yielded) or holds)

    @property
    def holds_queued(self) -> bool:
        """True where its scope has the key of a queued job held."""
        return bool(self.unique_states & 1)

    @property
    def keeps(self) -> bool:
        """True where nobody can take its key from it once it is queued again."""
        return self.holds_queued or (self.unique_until or 0) > self.now

    @property
    def is_expired_holder(self) -> bool:
        """True where it is queued past its time: the next that asks for its key buries it."""
        over = self.expires_at is not None and self.expires_at <= self.now
        return self.state == State.QUEUED and over and self.asks and not self.yielded

    def placeholder(self) -> NewJobRow:
        """A job that reserves the key: an update could only take it by provoking an error."""
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
    """Jobs that ask for one key, in the order of their turns. There is at least one."""

    jobs: tuple[Replayable, ...]

    @property
    def winner(self) -> Replayable:
        """Who has a free key in the end: the first that keeps it, or else the last."""
        return next((job for job in self.jobs if job.keeps), self.jobs[-1])

    def around(self, job_id: str) -> tuple[list[str], list[str], list[str]]:
        """Whose turn is before a job's, its own, and whose is after; for a stranger all before."""
        ids = [job.id for job in self.jobs]
        turn = ids.index(job_id) if job_id in ids else len(ids)
        return ids[:turn], ids[turn : turn + 1], ids[turn + 1 :]


def rivals(jobs: Iterable[Replayable], event: Event) -> list[Rivals]:
    """Those of `jobs` that ask for a key, by key, in lock order."""
    turns: defaultdict[tuple[int, str, str], list[Replayable]] = defaultdict(list)
    for job in jobs:
        earlier = turns[job.place]
        # An expired holder is still queued, unless somebody has asked for its key before.
        if job.asks and (allows(State(job.state), event) or (earlier and job.is_expired_holder)):
            earlier.append(job)
    return [Rivals(tuple(turns[place])) for place in sorted(turns) if turns[place]]
