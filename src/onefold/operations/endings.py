"""Deliveries that end otherwise: retry, defer, bury, hand back, rescue, cancel.

Rows are locked first, `lifecycle` decides, and one statement writes the steps down. What ends with
a successor waiting hands its key over to it in the same transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.model.delivery import Delivery, Ended
from onefold.model.job import STATE_WORDS
from onefold.model.lifecycle import KEEP, Event, Standing, State, Step, allows, next_step
from onefold.model.options import Options, backoff_of, read_options
from onefold.operations.keys import insert_successors
from onefold.operations.shards import ids_by_shard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onefold.operations.statement import Operation, Row, Sql

ENDS: Final[Mapping[Event, frozenset[State]]] = {
    Event.FINISH: frozenset({State.COMPLETED}),
    Event.FAIL: frozenset({State.QUEUED, State.DEAD}),
    Event.DEFER: frozenset({State.QUEUED}),
    Event.HAND_BACK: frozenset({State.QUEUED}),
    Event.BURY: frozenset({State.DEAD}),
}
"""Where a delivery's word leaves the job: what a repeated word finds there is its own."""


class Ending(msgspec.Struct, frozen=True):
    """Any other word about a delivery."""

    delivery: Delivery
    event: Event
    after: int | None = None
    reason: str | None = None
    error: str | None = None
    """JSON text: type and message."""


def end(sql: Sql, endings: Sequence[Ending]) -> Operation[list[Ended]]:
    """Retry, defer, bury or hand back deliveries, as lifecycle decides."""
    ended: dict[Delivery, Ended] = {}
    # By delivery, not by job: a worker may have a stale and a present one of the same job.
    events = {ending.delivery: ending for ending in endings}
    for shard, wanted in ids_by_shard(sql, (delivery.id for delivery in events)):
        rows = yield sql("lock_deliveries", ("shard", "id"), wanted, tenant=None)
        moves: list[Move] = []
        for locked in map(Locked.from_row, rows):
            delivery = Delivery(locked.id, locked.fence)
            if delivery in events and locked.state == State.RUNNING:
                moves.append(decided := decide(locked, events[delivery]))
                state = STATE_WORDS[decided.step.state]
                ended[delivery] = Ended(locked.id, locked.fence, "accepted", state)
        yield from apply(sql, shard, moves)
    already = {ending.delivery: ENDS[ending.event] for ending in endings}
    return (yield from judge(sql, [e.delivery for e in endings], ended, already))


class Locked(msgspec.Struct, frozen=True):
    """A row of the lock statements, in the order of their columns."""

    id: str
    shard: int
    state: int
    attempt: int
    max_attempts: int
    fence: int
    vanished: int
    options_text: str | None
    next: str | None
    stripped: bool
    kind: str
    queue: str
    worker: str | None
    taken_at: int | None
    now: int

    @classmethod
    def from_row(cls, row: Row) -> Locked:
        """From a row of any lock statement."""
        return cls(*row)

    @property
    def options(self) -> Options:
        """The job's own settings."""
        return read_options(self.options_text)

    @property
    def standing(self) -> Standing:
        """What lifecycle needs to know."""
        return Standing(
            State(self.state),
            self.attempt,
            self.max_attempts,
            vanished=self.vanished,
            backoff=backoff_of(self.options),
        )


class Move(msgspec.Struct, frozen=True):
    """A step to be written for a locked row."""

    id: str
    step: Step
    now: int
    keep: int
    error: str | None = None
    next: str | None = None
    replayed: bool = False
    reserved: bool = False
    """True where a replay has reserved the job's key."""
    fresh: bool = False

    @property
    def row(self) -> tuple[Any, ...]:
        """The values in the order of MOVE_COLUMNS, less the shard."""
        step, final = self.step, self.step.state.is_final
        return (
            self.id, int(step.state), step.attempt, step.vanished, step.run_at, step.reason,
            self.error, self.now if final else None, self.now + self.keep if final else None,
            self.replayed, int(self.fresh), step.not_before,
            self.reserved,
        )  # fmt: skip


MOVE_COLUMNS: Final = (
    "shard", "id", "state", "attempt", "vanished", "run_at", "reason", "error", "ended_at",
    "keep_until", "replayed", "generations", "not_before",
    "reserved",
)  # fmt: skip


def decide(locked: Locked, ending: Ending) -> Move:
    """What `ending` means for a locked row."""
    step = next_step(
        locked.standing, ending.event, now=locked.now, after=ending.after, reason=ending.reason
    )
    return move(locked, step, error=ending.error)


def move(locked: Locked, step: Step, *, error: str | None = None) -> Move:
    """A step as a row to be written, with how long the record then stays."""
    keep = KEEP.get(step.state, 0)
    own = locked.options.keep or {}
    return Move(
        locked.id,
        step,
        locked.now,
        own.get(step.state.word, keep),
        error=error,
        next=locked.next if step.state.is_final else None,
    )


def apply(sql: Sql, shard: int, moves: Sequence[Move]) -> Operation[None]:
    """Write steps for locked rows; successors of those that ended become jobs."""
    if not moves:
        return
    yield sql("move_jobs", MOVE_COLUMNS, [(shard, *m.row) for m in moves])
    if waiting := [m.next for m in moves if m.next is not None]:
        yield from insert_successors(sql, waiting)
    if over := [m.id for m in moves if m.step.state.is_final and m.keep == 0]:
        yield from discard(sql, shard, over)


def judge(
    sql: Sql,
    deliveries: Sequence[Delivery],
    ended: Mapping[Delivery, Ended],
    already: Mapping[Delivery, frozenset[State]],
) -> Operation[list[Ended]]:
    """Why a word did not count: said before by the same delivery, or lost.

    A repeated word after a lost answer finds its own fence still on the row.
    """
    silent = [d for d in deliveries if d not in ended]
    states: dict[str, tuple[int, int]] = {}
    for _, wanted in ids_by_shard(sql, [delivery.id for delivery in silent]):
        rows = yield sql("delivery_states", ("shard", "id"), wanted)
        states.update({job_id: (state, fence) for job_id, state, fence in rows})

    def judged(delivery: Delivery) -> Ended:
        if accepted := ended.get(delivery):
            return accepted
        state, fence = states.get(delivery.id, (None, None))
        same = fence == delivery.fence and state in already[delivery]
        word = None if state is None else STATE_WORDS[state]
        return Ended(delivery.id, delivery.fence, "already" if same else "lost", word)

    return [judged(delivery) for delivery in deliveries]


def discard(sql: Sql, shard: int, ids: Sequence[str]) -> Operation[tuple[int, int]]:
    """Remove finished jobs whose record is not wanted any more; answers deleted and stripped.

    A job whose key is promised for longer is stripped to a tombstone instead.
    """
    rows = yield sql("keys_promised", ("shard", "id"), [(shard, job_id) for job_id in ids])
    promised = {job_id for (job_id,) in rows}
    return (yield from remove(sql, shard, ids, keep=promised))


def remove(
    sql: Sql, shard: int, ids: Sequence[str], *, keep: set[str]
) -> Operation[tuple[int, int]]:
    """Delete these jobs, all but the tombstones of those in `keep`."""
    gone = [(shard, job_id) for job_id in sorted(ids) if job_id not in keep]
    kept = [(shard, job_id) for job_id in sorted(ids) if job_id in keep]
    if kept:
        yield sql("strip_jobs", ("shard", "id"), kept)
    if gone:
        yield sql("delete_jobs", ("shard", "id"), gone)
        yield sql("delete_duplicates", ("shard", "id"), gone)
        yield sql("delete_tallies", ("shard", "id"), gone)
    return len(gone), len(kept)


class Rescued(msgspec.Struct, frozen=True):
    """What a rescue found on one shard."""

    requeued: int = 0
    buried: int = 0
    expired: int = 0

    @property
    def total(self) -> int:
        """How many rows it moved."""
        return self.requeued + self.buried + self.expired


def rescue(sql: Sql, *, shard: int = 0, limit: int = 1_000) -> Operation[Rescued]:
    """Requeue or bury running jobs whose lease is over, and bury queued ones that have expired."""
    rows = yield sql("lock_lapsed_deliveries", shard=shard, limit=limit)
    lapsed = [_lapse(Locked.from_row(row)) for row in rows]
    yield from apply(sql, shard, lapsed)

    rows = yield sql("lock_expired_jobs", shard=shard, limit=limit)
    expired = [_step(Locked.from_row(row), Event.EXPIRE) for row in rows]
    yield from apply(sql, shard, expired)

    buried = sum(m.step.state is State.DEAD for m in lapsed)
    return Rescued(len(lapsed) - buried, buried, len(expired))


LEASE_EXPIRED: Final = msgspec.json.encode({"type": None, "message": "lease expired"}).decode()


def _lapse(locked: Locked) -> Move:
    step = next_step(locked.standing, Event.LAPSE, now=locked.now)
    return move(locked, step, error=LEASE_EXPIRED)


def _step(locked: Locked, event: Event, reason: str | None = None) -> Move:
    return move(locked, next_step(locked.standing, event, now=locked.now, reason=reason))


def cancel(
    sql: Sql, tenant: str, ids: Sequence[str], *, reason: str | None = None
) -> Operation[dict[str, State | None]]:
    """Cancel queued and running jobs; answers with the state each had before, None if unknown."""
    before: dict[str, State | None] = dict.fromkeys(ids)
    for shard, wanted in ids_by_shard(sql, before):
        rows = yield sql("lock_deliveries", ("shard", "id"), wanted, tenant=tenant)
        moves: list[Move] = []
        for locked in map(Locked.from_row, rows):
            if locked.stripped:
                continue
            before[locked.id] = state = State(locked.state)
            if allows(state, Event.CANCEL):
                moves.append(_step(locked, Event.CANCEL, reason))
        yield from apply(sql, shard, moves)
    return before
