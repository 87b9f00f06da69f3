"""Gates: hold a queue whose receiver wants to be left alone, and open it again.

A held queue gives nothing until the hold is over, and then one job at a time, until one of these
goes well or an operator opens the queue. Its rows say that it is controlled meanwhile, so that
plain takes leave it alone; the one on the shard of its name decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.operations.bell import ring
from onefold.operations.queues import home_of

if TYPE_CHECKING:
    from onefold.model.served_queue import HeldWhy
    from onefold.operations.statement import Operation, Sql


def hold(
    sql: Sql,
    queue: str,
    *,
    why: str,
    after: int | None = None,
    until: int | None = None,
    force: bool = False,
) -> Operation[int]:
    """Hold a queue for so long, or until then; answers when the hold ends.

    A hold that ends later is not shortened, unless this one is forced.
    """
    home, ends = home_of(sql, queue), 0
    for shard in range(sql.shards):
        rows = yield sql(
            "hold_queue", shard=shard, queue=queue, after=after, until=until, why=why, force=force
        )
        # Said once for all shards: their clocks read a little later from statement to statement.
        ((held_until, until),) = rows
        ends = held_until if shard == home else ends
    return ends


def open_gate(
    sql: Sql,
    queue: str,
    *,
    force: bool = False,
    taken_at: int | None = None,
    only: HeldWhy | None = None,
) -> Operation[bool]:
    """End a hold, and forget the failures of the endpoint; False where there is nothing to end.

    Unless it is forced, a hold stays that is not over yet, that was over only after `taken_at`,
    when the job that has gone well was taken, or that has another reason than `only`. A hold that
    began after it was looked for stays, too.
    """
    rows = yield sql("find_gate", shard=home_of(sql, queue), queue=queue)
    if not rows:
        return False
    ((held_until, held_why, failures, now),) = rows
    if held_until is None and not failures:
        return False
    if held_until is not None and not force:
        is_proof = taken_at is None or taken_at >= held_until
        if held_until > now or not is_proof or only not in (None, held_why):
            return False
    opened = False
    for shard in range(sql.shards):
        rows = yield sql("open_queue", shard=shard, queue=queue, held_until=held_until)
        opened = opened or bool(rows)
    if held_until is not None and opened:
        yield from ring(sql, [queue])
    return opened


def failed(sql: Sql, queue: str) -> Operation[int]:
    """Count a failure of a queue's endpoint; answers how many there are in a row."""
    rows = yield sql("fail_queue", shard=home_of(sql, queue), queue=queue)
    ((failures,),) = rows
    return int(failures)
