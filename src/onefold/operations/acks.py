"""Pushed deliveries that wait for an ack: ack, nack, defer, heartbeat, ack timeouts.

A callback may name its delivery by the fence. Without a fence it applies to the delivery that the
job has at that time: the row is locked first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import JobNotFound, LeaseLost, WrongState
from onefold.model.checks import parted
from onefold.model.delivery import Delivery, Ended
from onefold.model.ids import shard_of
from onefold.model.lifecycle import Event, State
from onefold.model.timestamps import MICROSECOND
from onefold.operations import queues
from onefold.operations.deliveries import Finish, finish
from onefold.operations.endings import ENDS, Ending, Locked, Move, apply, decide, judge
from onefold.operations.queues import end_hold, hold
from onefold.operations.statement import by_shard, read_all_shards

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onefold.operations.statement import Operation, Sql

ENDED: Final = frozenset(State) - {State.RUNNING}
LEASE: Final = 60 * 1_000_000
"""The ack of a delivery that waits for none, which is the default of workers."""
RUNNING: Final = "a delivery that is running"
SAME_WORD: Final[Mapping[Event, frozenset[str]]] = {
    # An expired lease has already queued the job again, as a failure does.
    Event.FAIL: frozenset({"retried", "dead", "lease expired"}),
    Event.DEFER: frozenset({"deferred"}),
    Event.BURY: frozenset({"dead"}),
}
"""The past of a delivery that has been reported before."""


class Parking(msgspec.Struct, frozen=True):
    """A delivery that the receiver has accepted and will acknowledge later."""

    delivery: Delivery
    ack_timeout: int
    dead: bool
    """True: bury the job if no ack arrives in time. False: try it again."""
    exchange: str | None
    """The response, as JSON."""


PARK_COLUMNS: Final = ("shard", "id", "fence", "lease", "dead", "pushed")


def park(sql: Sql, parkings: Sequence[Parking]) -> Operation[list[Ended]]:
    """Let deliveries wait for their acks; `already` if the ack was faster."""
    ended: dict[Delivery, Ended] = {}
    for shard, group in by_shard(sql, parkings, lambda parking: parking.delivery.id):
        rows = yield sql(
            "park_jobs",
            PARK_COLUMNS,
            [
                (shard, p.delivery.id, p.delivery.fence, p.ack_timeout, p.dead, p.exchange)
                for p in group
            ],
        )
        for job_id, fence in rows:
            ended[Delivery(job_id, fence)] = Ended(job_id, fence, "accepted", "awaiting")
    deliveries = [parking.delivery for parking in parkings]
    return (yield from judge(sql, deliveries, ended, dict.fromkeys(deliveries, ENDED)))


def next_timeout(sql: Sql) -> Operation[int | None]:
    """Microseconds until the next ack is late; None if no delivery waits."""
    rows = yield from read_all_shards(sql, "next_ack_timeout")
    return min([wait for (wait,) in rows if wait is not None], default=None)


def acknowledge(
    sql: Sql, tenant: str, job_id: str, *, fence: int | None, result: str | None
) -> Operation[tuple[Ended, Locked]]:
    """Finish the delivery. If the job is the probe of a held queue, open the queue.

    Returns the row of the job before, too.
    """
    locked = yield from _delivered(sql, tenant, job_id, fence)
    said = Finish(Delivery(job_id, locked.fence), result)
    (ended,) = yield from finish(sql, [said])
    if ended.status == "lost":
        raise WrongState(job_id, state=locked.word, wanted=RUNNING)
    if ended.status == "accepted":
        yield from end_hold(sql, locked.queue, taken_at=locked.taken_at)
    return ended, locked


class Acknowledgement(msgspec.Struct, frozen=True):
    """A report that the work was not done."""

    event: Event
    after: int | None = None
    reason: str | None = None
    error: str | None = None
    hold_queue: bool = False
    """True: hold the whole queue for that time."""


def say(
    sql: Sql, tenant: str, job_id: str, word: Acknowledgement, *, fence: int | None
) -> Operation[tuple[Ended, Locked]]:
    """Fail, defer or bury the delivery: its work was not done. Returns the row before, too."""
    locked = yield from _delivered(sql, tenant, job_id, fence)
    if locked.state != State.RUNNING:
        return (yield from _said_before(sql, locked, word.event)), locked
    delivery = Delivery(job_id, locked.fence)
    decided = decide(locked, Ending(delivery, word.event, word.after, word.reason, word.error))
    yield from apply(sql, locked.shard, [_with_reason(decided, word.reason)])
    if word.hold_queue:
        yield from hold(sql, locked.queue, after=word.after, why="deferred")
    return Ended(job_id, locked.fence, "accepted", decided.word, decided.wait), locked


def _with_reason(decided: Move, reason: str | None) -> Move:
    """Store the reason with the delivery, even if it is not why the job ended."""
    if decided.past is None or reason is None:
        return decided
    past = msgspec.structs.replace(decided.past, reason=reason)
    return msgspec.structs.replace(decided, past=past)


def _said_before(sql: Sql, locked: Locked, event: Event) -> Operation[Ended]:
    """Answer a repeated report, after a lost response, from the history of its delivery."""
    if State(locked.state) in ENDS[event]:
        rows = yield sql("find_attempts", shard=locked.shard, id=locked.id)
        noted = {fence: outcome for _, fence, _, _, _, outcome, *_ in rows}
        if noted.get(locked.fence) in SAME_WORD[event]:
            return Ended(locked.id, locked.fence, "already", locked.word)
    raise WrongState(locked.id, state=locked.word, wanted=RUNNING)


def heartbeat(
    sql: Sql,
    tenant: str,
    job_id: str,
    *,
    fence: int | None,
    lease: int | None,
) -> Operation[Ended]:
    """Extend the lease: by the given time, or by the time of the queue."""
    locked = yield from _delivered(sql, tenant, job_id, fence)
    if locked.state != State.RUNNING:
        if fence is not None:
            raise LeaseLost(f"job {job_id}", fence=fence)
        raise WrongState(job_id, state=locked.word, wanted=RUNNING)
    if lease is None:
        lease = yield from _own_lease(sql, locked)
    yield sql(
        "heartbeat_jobs",
        ("shard", "id", "fence"),
        [(locked.shard, job_id, locked.fence)],
        lease=lease,
    )
    return Ended(job_id, locked.fence, "accepted", locked.word)


def _own_lease(sql: Sql, locked: Locked) -> Operation[int]:
    if locked.is_awaiting:
        served = yield from queues.get(sql, *parted(locked.queue))
        if served is not None:
            return served.ack_timeout // MICROSECOND
    return LEASE


def _delivered(sql: Sql, tenant: str, job_id: str, fence: int | None) -> Operation[Locked]:
    """Lock the job of the delivery that a report is about."""
    shard = shard_of(job_id, sql.shards)
    rows = yield sql("lock_deliveries", ("shard", "id"), [(shard, job_id)], tenant=tenant)
    if not rows:
        raise JobNotFound(job_id)
    locked = Locked(*rows[0])
    if not locked.fence:
        state = locked.word
        raise WrongState(job_id, state=state, wanted="a job that has been delivered")
    if fence is not None and fence != locked.fence:
        raise LeaseLost(f"job {job_id}", fence=fence)
    return locked
