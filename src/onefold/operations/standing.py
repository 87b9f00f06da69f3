"""How a delivery stands with its job: whether it runs it, or has completed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.errors import LeaseLost
from onefold.model.identity import shard_of
from onefold.model.lifecycle import State
from onefold.operations.endings import Locked

if TYPE_CHECKING:
    from onefold.model.delivery import Delivery
    from onefold.operations.statement import Operation, Sql


def hold(sql: Sql, delivery: Delivery) -> Operation[None]:
    """Keep a job as it is until the commit; `LeaseLost` where the delivery does not run it."""
    place = (shard_of(delivery.id, sql.shards), delivery.id)
    rows = yield sql("lock_deliveries", ("shard", "id"), [place], tenant=None)
    found = [(job.state, job.fence) for job in map(Locked.from_row, rows)]
    if found != [(State.RUNNING, delivery.fence)]:
        raise LeaseLost(f"job {delivery.id}", fence=delivery.fence)


def is_completed(sql: Sql, delivery: Delivery) -> Operation[bool]:
    """True where this very delivery has completed its job."""
    place = (shard_of(delivery.id, sql.shards), delivery.id)
    rows = yield sql("delivery_states", ("shard", "id"), [place])
    return [(state, fence) for _, state, fence, _ in rows] == [(State.COMPLETED, delivery.fence)]
