"""A queue of groups on a bad day: one has a heap of due jobs, many have only later ones.

Ids and times follow from numbers, so that a test can name any row without reading it.
"""

from typing import Final, NamedTuple

from onefold.model.delivery import TakeOrder
from onefold.operations.statement import Sql
from tests.fixtures.backlog import HOUR, ID, KIND, NOW, NUMBERS, QUEUE, TABLE, Fill

ORDER: Final = TakeOrder({QUEUE: 100}, 100, "w", HOUR)


class Groups(NamedTuple):
    """How many rows of each sort."""

    due: int = 1_000
    """Of the group that has a heap of them, and is full."""
    ahead: int = 0
    """Of that group too, at a better priority, but for later."""
    others: int = 0
    """Groups that have one job each, for later."""
    ungrouped: int = 0
    """Without a group, at a better priority, for later."""
    ready: int = 100
    """Without a group, due, at a worse priority."""


FEW: Final = Groups()
MANY: Final = Groups(due=100_000, ahead=50_000, others=100_000, ungrouped=50_000, ready=50_000)


class Sort(NamedTuple):
    """The numbers of one sort of rows, and what tells them from others."""

    first: int
    size: int
    group: str
    state: int = 0
    priority: int = 0
    run_at: int = NOW - HOUR


def fills(sql: Sql, groups: Groups) -> list[Fill]:
    """The inserts, in the dialect of `sql` and its schema's default name."""
    later = NOW + HOUR
    sorts = [
        Sort(1, groups.due, "'full'"),
        Sort(1_000_001, 2, "'full'", state=1),
        Sort(2_000_001, 300, "'small ' || n", run_at=NOW - 1),
        Sort(3_000_001, 50, "null", run_at=NOW - 1),
        Sort(7_000_001, groups.ready, "null", priority=5),
        Sort(4_000_001, groups.ahead, "'full'", priority=-10, run_at=later),
        Sort(5_000_001, groups.others, "'other ' || n", run_at=later),
        Sort(6_000_001, groups.ungrouped, "null", priority=-10, run_at=later),
    ]
    return [
        Fill(
            f"""
            insert into {TABLE[sql.dialect].format("job")} (
                shard, id, tenant, queue, kind, group_key, state, priority, attempt, max_attempts,
                run_at, lease_until, created_at, payload
            )
            select
                0, {ID[sql.dialect]}, '', '{QUEUE}', '{KIND}', {sort.group}, {sort.state},
                {sort.priority}, 0, 8, {sort.run_at}, {later}, {NOW}, 'null'
            from {NUMBERS[sql.dialect]}
            """,
            {"first": sort.first, "last": sort.first + sort.size - 1},
        )
        for sort in sorts
        if sort.size
    ]
