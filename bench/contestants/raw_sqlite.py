"""The same rows by hand: sqlite3, every value ready before the start, synchronous = full."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from bench import sqlite_stage
from bench.payloads import batches, payloads

if TYPE_CHECKING:
    import sqlite3

    from bench.stopwatch import Stopwatch
    from bench.values import Order

WARM: Final = 10
BATCH: Final = 200
LEASE: Final = 300_000_000

FINISH: Final = """
update onefold_job
set state = 2, lease_until = null, ended_at = ?, keep_until = ? + 86400000000
where shard = 0 and id = ? and fence = ? and state = 1
"""
TAKE: Final = """
update onefold_job
set
    state = 1, attempt = attempt + 1, fence = fence + 1, worker = 'bench', taken_at = ?,
    lease_until = ?
where
    shard = 0
    and id in (
        select id
        from onefold_job
        where
            shard = 0
            and queue = 'default'
            and state = 0
            and group_key is null
            and run_at <= ?
        order by priority, run_at, id
        limit ?
    )
returning id, fence, kind, payload, attempt
"""


def bulk(order: Order, watch: Stopwatch) -> None:
    """`executemany` in a transaction a batch."""
    sqlite_stage.onefold_file(order.url)
    rows = [sqlite_stage.row(content) for content in payloads(order.jobs)]
    warm = [sqlite_stage.row(content) for content in payloads(WARM)]
    with closing(sqlite_stage.connect(order.url)) as connection:
        connection.executemany(sqlite_stage.INSERT, warm)
        with watch.running(order.jobs):
            for batch in batches(rows, order.number("batch")):
                connection.execute("begin immediate")
                connection.executemany(sqlite_stage.INSERT, batch)
                connection.execute("commit")
    sqlite_stage.expect(order.url, sqlite_stage.STORED, WARM + order.jobs)


def bulk_from_payloads(order: Order, watch: Stopwatch) -> None:
    """The same, the rows made from the payloads while the watch runs, as an application must."""
    sqlite_stage.onefold_file(order.url)
    contents = payloads(order.jobs)
    with closing(sqlite_stage.connect(order.url)) as connection:
        connection.executemany(sqlite_stage.INSERT, map(sqlite_stage.row, payloads(WARM)))
        with watch.running(order.jobs):
            for batch in batches(contents, order.number("batch")):
                rows = [sqlite_stage.row(content) for content in batch]
                connection.execute("begin immediate")
                connection.executemany(sqlite_stage.INSERT, rows)
                connection.execute("commit")
    sqlite_stage.expect(order.url, sqlite_stage.STORED, WARM + order.jobs)


def single(order: Order, watch: Stopwatch) -> None:
    """One after the other, each its own commit."""
    sqlite_stage.onefold_file(order.url)
    rows = [sqlite_stage.row(content) for content in payloads(order.jobs)]
    warm = [sqlite_stage.row(content) for content in payloads(WARM)]
    with closing(sqlite_stage.connect(order.url)) as connection:
        connection.executemany(sqlite_stage.INSERT, warm)
        with watch.running(order.jobs):
            for row in rows:
                connection.execute(sqlite_stage.INSERT, row)
    sqlite_stage.expect(order.url, sqlite_stage.STORED, WARM + order.jobs)


def take(order: Order, watch: Stopwatch) -> None:
    """The last batch completed and the next one taken, in one transaction."""
    count = order.jobs + WARM * BATCH
    sqlite_stage.load(order.url, count)
    with closing(sqlite_stage.connect(order.url)) as connection:
        _drain(connection, WARM)
        with watch.running(order.jobs):
            _drain(connection, order.jobs // BATCH)
    sqlite_stage.expect(order.url, sqlite_stage.FINISHED, count)


def _drain(connection: sqlite3.Connection, turns: int) -> None:
    rows: list[tuple[str, int]] = []
    for turn in range(turns + 1):
        now = time.time_ns() // 1000
        connection.execute("begin immediate")
        connection.executemany(FINISH, [(now, now, row[0], row[1]) for row in rows])
        if turn < turns:
            rows = connection.execute(TAKE, (now, now + LEASE, now, BATCH)).fetchall()
        connection.execute("commit")
