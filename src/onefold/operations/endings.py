"""Deliveries that do not succeed: retry, defer, bury, cancel, hand back, rescue. Notify workers.

Rows are locked first, `lifecycle` decides, and one statement writes the transitions. The history
is stored in the same transaction. A job that ends while a successor waits passes its key on.
"""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.model.attempt import outcome_of
from onefold.model.delivery import Delivery, Ended, with_exchange
from onefold.model.job import JobState, state_of
from onefold.model.job_options import Options, backoff_of, read_options
from onefold.model.lifecycle import KEEP, Event, Standing, State, Transition, allows, next_step
from onefold.model.timestamps import Duration
from onefold.operations.attempts import Past, forget, note
from onefold.operations.statement import ids_by_shard
from onefold.operations.unique_keys import insert_successors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onefold.operations.statement import Operation, Sql


def notify(sql: Sql, queues: Iterable[str]) -> Operation[None]:
    """Wake the workers of these queues; on SQLite workers poll."""
    if notified := sql.notify(queues).get("notify"):
        yield sql("notify", ("queue",), [(queue,) for queue in notified])


ENDS: Final[Mapping[Event, frozenset[State]]] = {
    Event.FINISH: frozenset({State.COMPLETED}),
    Event.FAIL: frozenset({State.QUEUED, State.DEAD}),
    Event.DEFER: frozenset({State.QUEUED}),
    Event.HAND_BACK: frozenset({State.QUEUED}),
    Event.BURY: frozenset({State.DEAD}),
    Event.CANCEL: frozenset({State.CANCELLED}),
}
"""The states after each event: a repeated report finds the job in one of them."""


class Ending(msgspec.Struct, frozen=True):
    """A report about a delivery, other than finish and heartbeat."""

    delivery: Delivery
    event: Event
    after: int | None = None
    """Microseconds; None: the backoff of the job decides."""
    reason: str | None = None
    error: str | None = None
    """JSON text: type and message."""


def end(sql: Sql, endings: Sequence[Ending]) -> Operation[list[Ended]]:
    """Retry, defer, bury, cancel or hand back deliveries, as `lifecycle` decides."""
    ended: dict[Delivery, Ended] = {}
    # By delivery, not by job: a worker may have a stale and a current delivery of one job.
    events = {ending.delivery: ending for ending in endings}
    for shard, wanted in ids_by_shard(sql, (delivery.id for delivery in events)):
        rows = yield sql("lock_deliveries", ("shard", "id"), wanted, tenant=None)
        moves: list[Move] = []
        for locked in starmap(Locked, rows):
            delivery = Delivery(locked.id, locked.fence)
            if delivery in events and locked.state == State.RUNNING:
                moves.append(decided := decide(locked, events[delivery]))
                ended[delivery] = Ended(
                    locked.id, locked.fence, "accepted", decided.word, decided.wait
                )
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
    ended_at: int | None
    tenant: str
    now: int
    awaiting: int | None = None
    awaiting_dead: bool = False
    """True: bury it if the ack does not arrive in time."""
    pushed: str | None = None
    """The endpoint's response to this delivery, as JSON, while it waits for its ack."""
    run_at: int = 0
    """Of a job that was locked by its id."""

    @property
    def options(self) -> Options:
        """The job's own options."""
        return read_options(self.options_text)

    @property
    def is_awaiting(self) -> bool:
        """True: the delivery was pushed and waits for its ack."""
        return self.state == State.RUNNING and self.awaiting == self.fence

    @property
    def word(self) -> JobState:
        """Its state, for users."""
        return state_of(
            self.state,
            attempt=self.attempt,
            run_at=self.run_at,
            now=self.now,
            awaits=self.is_awaiting,
        )

    @property
    def standing(self) -> Standing:
        """What `lifecycle` needs."""
        return Standing(
            State(self.state),
            self.attempt,
            self.max_attempts,
            vanished=self.vanished,
            backoff=backoff_of(self.options),
        )


class Move(msgspec.Struct, frozen=True):
    """A transition to write for a locked row."""

    id: str
    step: Transition
    now: int
    keep: int
    error: str | None = None
    next: str | None = None
    replayed: bool = False
    reserved: bool = False
    """True: a replay has reserved the job's key."""
    fresh: bool = False
    past: Past | None = None
    """The delivery that ends, if its end is stored in the history."""
    queue: str | None = None
    """The queue whose workers are woken, if the job is due again now."""
    awaiting: int | None = None
    """The fence of a delivery whose ack is late: a later ack still counts."""
    deferred: bool = False
    """True: it counts as a defer of the job."""

    @property
    def word(self) -> JobState:
        """The state after it, for users."""
        step = self.step
        return state_of(
            step.state, attempt=step.attempt, run_at=step.run_at or self.now, now=self.now
        )

    @property
    def wait(self) -> Duration | None:
        """The delay before it may be taken, if it is queued again."""
        step = self.step
        if step.state is not State.QUEUED or step.run_at is None:
            return None
        return Duration(microseconds=max(step.run_at - self.now, 0))

    @property
    def is_due(self) -> bool:
        """True: it may be taken as soon as this is committed."""
        step = self.step
        return step.state is State.QUEUED and step.run_at is not None and step.run_at <= self.now

    @property
    def row(self) -> tuple[Any, ...]:
        """The values in the order of MOVE_COLUMNS, without the shard."""
        step, final = self.step, self.step.state.is_final
        return (
            self.id, int(step.state), step.attempt, step.vanished, step.run_at, step.reason,
            self.error, self.now if final else None, self.now + self.keep if final else None,
            self.replayed, int(self.fresh), step.not_before,
            self.reserved, self.awaiting, int(self.deferred),
        )  # fmt: skip


MOVE_COLUMNS: Final = (
    "shard", "id", "state", "attempt", "vanished", "run_at", "reason", "error", "ended_at",
    "keep_until", "replayed", "generations", "not_before",
    "reserved", "awaiting", "defers",
)  # fmt: skip


def decide(locked: Locked, ending: Ending) -> Move:
    """The transition that `ending` causes for a locked row."""
    return _move(locked, ending.event, after=ending.after, reason=ending.reason, error=ending.error)


def _move(
    locked: Locked,
    event: Event,
    *,
    after: int | None = None,
    reason: str | None = None,
    error: str | None = None,
) -> Move:
    """The transition of a locked row, with the retention of the record."""
    step = next_step(locked.standing, event, now=locked.now, after=after, reason=reason)
    own = locked.options.keep or {}
    return Move(
        locked.id,
        step,
        locked.now,
        own.get(step.state.word, KEEP.get(step.state, 0)),
        error=error,
        next=locked.next if step.state.is_final else None,
        past=_past(locked, event, step, error),
        queue=locked.queue,
        deferred=event is Event.DEFER,
    )


def _past(locked: Locked, event: Event, step: Transition, error: str | None) -> Past | None:
    """The delivery that has ended; None for one that was handed back before it started."""
    if locked.state != State.RUNNING or event is Event.HAND_BACK:
        return None
    return Past(
        locked.id,
        locked.fence,
        locked.attempt,
        outcome_of(event, step.state),
        locked.worker,
        locked.taken_at,
        locked.now,
        step.reason,
        # Stored here, too: the job itself has only its last push.
        with_exchange(error, locked.pushed),
    )


def apply(sql: Sql, shard: int, moves: Sequence[Move]) -> Operation[None]:
    """Write transitions of locked rows, and the history of the deliveries that they end.

    Successors of ended jobs are inserted. Workers of jobs that are due again are woken.
    """
    if not moves:
        return
    yield sql("move_jobs", MOVE_COLUMNS, [(shard, *m.row) for m in moves])
    yield from note(sql, shard, [m.past for m in moves if m.past is not None])
    if waiting := [m.next for m in moves if m.next is not None]:
        yield from insert_successors(sql, waiting)
    if over := [m.id for m in moves if m.step.state.is_final and m.keep == 0]:
        yield from discard(sql, shard, over)
    yield from notify(sql, [m.queue for m in moves if m.is_due and m.queue is not None])


def judge(
    sql: Sql,
    deliveries: Sequence[Delivery],
    ended: Mapping[Delivery, Ended],
    already: Mapping[Delivery, frozenset[State]],
) -> Operation[list[Ended]]:
    """Why a report did not count: it was repeated by the same delivery, or the delivery is lost.

    A report that is repeated after a lost response finds its own fence on the row.
    """
    silent = [d for d in deliveries if d not in ended]
    states: dict[str, tuple[int, int, JobState]] = {}
    for _, wanted in ids_by_shard(sql, [delivery.id for delivery in silent]):
        rows = yield sql("delivery_states", ("shard", "id"), wanted, alone=True, waits=False)
        for job_id, state, fence, _, attempt, run_at, awaits, now in rows:
            word = state_of(state, attempt=attempt, run_at=run_at, now=now, awaits=awaits)
            states[job_id] = (state, fence, word)

    def judged(delivery: Delivery) -> Ended:
        if accepted := ended.get(delivery):
            return accepted
        state, fence, word = states.get(delivery.id, (None, None, None))
        same = fence == delivery.fence and state in already[delivery]
        return Ended(delivery.id, delivery.fence, "already" if same else "lost", word)

    return [judged(delivery) for delivery in deliveries]


def discard(sql: Sql, shard: int, ids: Sequence[str]) -> Operation[tuple[int, int]]:
    """Remove finished jobs whose retention is over; returns deleted and stripped.

    A job whose key is held for longer is stripped to a tombstone.
    """
    rows = yield sql("keys_promised", ("shard", "id"), [(shard, job_id) for job_id in ids])
    promised = {job_id for (job_id,) in rows}
    return (yield from remove(sql, shard, ids, keep=promised))


def remove(
    sql: Sql, shard: int, ids: Sequence[str], *, keep: set[str]
) -> Operation[tuple[int, int]]:
    """Delete these jobs and their history and claims, except the tombstones in `keep`."""
    gone = [(shard, job_id) for job_id in sorted(ids) if job_id not in keep]
    kept = [(shard, job_id) for job_id in sorted(ids) if job_id in keep]
    removed: list[tuple[str, str]] = []
    if kept:
        rows = yield sql("strip_jobs", ("shard", "id"), kept)
        removed += [(job_id, tenant) for job_id, tenant in rows]
    if gone:
        rows = yield sql("delete_jobs", ("shard", "id"), gone)
        removed += [(job_id, tenant) for job_id, tenant in rows]
        yield sql("delete_duplicates", ("shard", "id"), gone)
        yield sql("delete_tallies", ("shard", "id"), gone)
    yield from forget(sql, shard, removed)
    return len(gone), len(kept)


class RescuedJob(msgspec.Struct, frozen=True, gc=False):
    """One job that a rescue has moved."""

    id: str
    kind: str
    queue: str
    tenant: str
    buried: bool
    """True: it is dead now. False: it is queued again."""
    reason: str | None = None
    """Why it was buried: `lease expired`, `poison`, `expired`, `ack timeout`, or `failed` if the
    last attempt had no ack in time.
    """
    unacknowledged: bool = False
    """True: its worker is alive, but sent no ack in time."""


class Rescued(msgspec.Struct, frozen=True):
    """The result of a rescue."""

    requeued: int = 0
    buried: int = 0
    expired: int = 0
    jobs: tuple[RescuedJob, ...] = ()
    """All of them, by name."""

    @property
    def total(self) -> int:
        """How many rows it changed."""
        return self.requeued + self.buried + self.expired

    @property
    def unacknowledged(self) -> Rescued:
        """Those whose worker is alive, but sent no ack in time."""
        jobs = tuple(job for job in self.jobs if job.unacknowledged)
        buried = sum(job.buried for job in jobs)
        return Rescued(len(jobs) - buried, buried, jobs=jobs)


def rescue(sql: Sql, *, shard: int = 0, limit: int = 1_000) -> Operation[Rescued]:
    """Requeue or bury running jobs whose lease is over, and bury queued jobs that have expired."""
    rows = yield sql("lock_lapsed_deliveries", shard=shard, limit=limit)
    lapsed = [(locked, _lapse(locked)) for locked in starmap(Locked, rows)]
    yield from apply(sql, shard, [move for _, move in lapsed])

    expired: list[tuple[Locked, Move]] = []
    if len(lapsed) < limit:
        rows = yield sql("lock_expired_jobs", shard=shard, limit=limit - len(lapsed))
        expired = [(locked, _move(locked, Event.EXPIRE)) for locked in starmap(Locked, rows)]
        yield from apply(sql, shard, [move for _, move in expired])

    buried = sum(move.step.state is State.DEAD for _, move in lapsed)
    jobs = tuple(_rescued(locked, move.step) for locked, move in (*lapsed, *expired))
    return Rescued(len(lapsed) - buried, buried, len(expired), jobs)


def _rescued(locked: Locked, step: Transition) -> RescuedJob:
    buried = step.state is State.DEAD
    names = (locked.id, locked.kind, locked.queue, locked.tenant)
    return RescuedJob(*names, buried, step.reason, locked.is_awaiting)


LEASE_EXPIRED: Final = msgspec.json.encode({"type": None, "message": "lease expired"}).decode()


ACK_TIMEOUT: Final = "ack timeout"
NO_ACK: Final = msgspec.json.encode(
    {"type": "AckTimeout", "message": "no ack within the ack timeout"}
).decode()


def _lapse(locked: Locked) -> Move:
    if not locked.is_awaiting:
        return _move(locked, Event.LAPSE, error=LEASE_EXPIRED)
    # The ack is late: a failure of the handler, not a vanished worker.
    if locked.awaiting_dead:
        given_up = _move(locked, Event.BURY, reason=ACK_TIMEOUT, error=NO_ACK)
    else:
        given_up = _move(locked, Event.FAIL, error=NO_ACK)
    return msgspec.structs.replace(given_up, awaiting=locked.fence)


def cancel(
    sql: Sql, tenant: str, ids: Sequence[str], *, reason: str | None = None
) -> Operation[dict[str, State | None]]:
    """Cancel queued and running jobs; returns the state that each had before, None if unknown."""
    before: dict[str, State | None] = dict.fromkeys(ids)
    for shard, wanted in ids_by_shard(sql, before):
        rows = yield sql("lock_deliveries", ("shard", "id"), wanted, tenant=tenant)
        moves: list[Move] = []
        for locked in starmap(Locked, rows):
            if locked.stripped:
                continue
            before[locked.id] = state = State(locked.state)
            if allows(state, Event.CANCEL):
                moves.append(_move(locked, Event.CANCEL, reason=reason))
        yield from apply(sql, shard, moves)
    return before
