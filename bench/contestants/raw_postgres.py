"""The same rows by hand: psycopg, one statement a batch, every value ready before the start.

Nothing is checked, encoded or answered. One cursor does it all, as Onefold's does: a new one would
find out anew how each parameter is spelled. What is lost against this is what Onefold's promises
cost.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import psycopg

from bench import stage
from bench.payloads import KIND, batches, encode, payloads
from onefold.model.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from bench.stopwatch import Stopwatch
    from bench.values import Order

WARM: Final = 10
BATCH: Final = 200

# The columns that Onefold names for jobs without keys: of a batch (store_jobs.sql), and of one job
# (insert_job.sql), whose key it says is none.
MANY: Final = {
    "shard": "smallint",
    "id": "uuid",
    "tenant": "text",
    "queue": "text",
    "kind": "text",
    "priority": "smallint",
    "run_at": "bigint",
    "max_attempts": "smallint",
    "payload": "text",
    "created_at": "bigint",
    "expires_at": "bigint",
    "options": "text",
    "group_key": "text",
}
KEY: Final = {
    "fingerprint": "text",
    "unique_kind": "text",
    "unique_key": "text",
    "unique_states": "smallint",
    "unique_until": "bigint",
}
ONE: Final = {**MANY, **KEY}
NO_KEY: Final = (None, None, None, 0, None)
_ARRAYS: Final = ", ".join(f"%s::{kind}[]" for kind in MANY.values())
INSERT_MANY: Final = (
    f"insert into onefold.job ({', '.join(MANY)}) select * from unnest({_ARRAYS})".encode()
)
_VALUES: Final = ", ".join(f"%s::{kind}" for kind in ONE.values())
INSERT_ONE: Final = f"insert into onefold.job ({', '.join(ONE)}) values ({_VALUES})".encode()

# The last batch completed and the next one taken, in one statement and so in one commit.
FINISH: Final = """
update onefold.job as j
set
    state = 2, lease_until = null, ended_at = clock.now,
    keep_until = clock.now + 86400000000
from
    (select (extract(epoch from statement_timestamp()) * 1000000)::bigint) as clock (now),
    unnest(%(ids)s::uuid[], %(fences)s::bigint[]) as r (id, fence)
where j.shard = 0 and j.id = r.id and j.fence = r.fence and j.state = 1
returning j.id
"""
FINISH_AND_TAKE: Final = f"""
with finished as ({FINISH}),
picked as materialized (
    select id
    from onefold.job
    where
        shard = 0
        and queue = 'default'
        and state = 0
        and group_key is null
        and run_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint
    order by priority, run_at, id
    limit %(limit)s
    for update skip locked
)
update onefold.job as j
set
    state = 1, attempt = attempt + 1, fence = fence + 1, worker = 'bench', taken_at = clock.now,
    lease_until = clock.now + %(lease)s
from (select (extract(epoch from statement_timestamp()) * 1000000)::bigint) as clock (now)
where j.shard = 0 and j.id = any(array(select id from picked))
returning j.id::text, j.fence, j.kind, j.payload, j.attempt, (select count(*) from finished)
"""
LEASE: Final = timedelta(minutes=5) // timedelta(microseconds=1)


def _row(content: dict[str, Any]) -> tuple[Any, ...]:
    now = 1_800_000_000_000_000
    text = encode(content).decode()
    return (0, new_id(), "", "default", KIND, 0, now, 8, text, now, None, None, None)


def _rows_of_one(count: int) -> list[tuple[Any, ...]]:
    return [(*_row(content), *NO_KEY) for content in payloads(count)]


def _columns(contents: Sequence[dict[str, Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*map(_row, contents), strict=True)]


@contextmanager
def _cursor(url: str) -> Generator[psycopg.Cursor[Any]]:
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        yield cursor


def bulk(order: Order, watch: Stopwatch) -> None:
    """`insert … select unnest`, the lists of all batches ready."""
    url = stage.onefold_database(order)
    ready = [_columns(batch) for batch in batches(payloads(order.jobs), order.number("batch"))]
    stage.settle(url)
    with _cursor(url) as cursor:
        for _ in range(WARM):
            cursor.execute(INSERT_MANY, _columns(payloads(10)))
        with watch.running(order.jobs):
            for lists in ready:
                cursor.execute(INSERT_MANY, lists)
    stage.expect(url, stage.STORED, WARM * 10 + order.jobs)


def bulk_from_payloads(order: Order, watch: Stopwatch) -> None:
    """The same, the lists made from the payloads while the watch runs, as an application must."""
    url = stage.onefold_database(order)
    contents = payloads(order.jobs)
    stage.settle(url)
    with _cursor(url) as cursor:
        for _ in range(WARM):
            cursor.execute(INSERT_MANY, _columns(payloads(10)))
        with watch.running(order.jobs):
            for batch in batches(contents, order.number("batch")):
                cursor.execute(INSERT_MANY, _columns(batch))
    stage.expect(url, stage.STORED, WARM * 10 + order.jobs)


def bulk_literals(order: Order, watch: Stopwatch) -> None:
    """The same, every list ready as the text of an array: what the database alone can do."""
    url = stage.onefold_database(order)
    ready = [
        [_literal(column) for column in _columns(batch)]
        for batch in batches(payloads(order.jobs), order.number("batch"))
    ]
    stage.settle(url)
    with _cursor(url) as cursor:
        for _ in range(WARM):
            cursor.execute(INSERT_MANY, [_literal(c) for c in _columns(payloads(10))])
        with watch.running(order.jobs):
            for lists in ready:
                cursor.execute(INSERT_MANY, lists)
    stage.expect(url, stage.STORED, WARM * 10 + order.jobs)


def _literal(column: list[Any]) -> str:
    """A list as PostgreSQL writes it."""
    return "{" + ",".join(map(_element, column)) + "}"


def _element(value: object) -> str:
    if value is None:
        return "null"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def single(order: Order, watch: Stopwatch) -> None:
    """`insert … values`, one after the other, each its own commit."""
    url = stage.onefold_database(order)
    warm, rows = _rows_of_one(WARM), _rows_of_one(order.jobs)
    stage.settle(url)
    with _cursor(url) as cursor:
        for row in warm:
            cursor.execute(INSERT_ONE, row)
        with watch.running(order.jobs):
            for row in rows:
                cursor.execute(INSERT_ONE, row)
    stage.expect(url, stage.STORED, WARM + order.jobs)


def asingle(order: Order, watch: Stopwatch) -> None:
    """The same by an async connection."""
    url = stage.onefold_database(order)
    stage.settle(url)
    asyncio.run(_asingle(url, order, watch))
    stage.expect(url, stage.STORED, WARM + order.jobs)


async def _asingle(url: str, order: Order, watch: Stopwatch) -> None:
    warm, rows = _rows_of_one(WARM), _rows_of_one(order.jobs)
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        for row in warm:
            await cursor.execute(INSERT_ONE, row)
        with watch.running(order.jobs):
            for row in rows:
                await cursor.execute(INSERT_ONE, row)


def take(order: Order, watch: Stopwatch) -> None:
    """The best loop by hand: what Onefold promises of a delivery, on the same table."""
    count = order.jobs + WARM * BATCH
    url = stage.loaded_database(order, count)
    stage.settle(url)
    with _cursor(url) as cursor:
        _drain(cursor, WARM)
        with watch.running(order.jobs):
            _drain(cursor, order.jobs // BATCH)
    stage.expect(url, stage.FINISHED, count)


def _drain(cursor: psycopg.Cursor[Any], turns: int) -> None:
    ids: list[str] = []
    fences: list[int] = []
    for _ in range(turns):
        last = {"ids": _literal(ids), "fences": _literal(fences)}
        values = {**last, "limit": BATCH, "lease": LEASE}
        rows = cursor.execute(FINISH_AND_TAKE.encode(), values).fetchall()
        ids, fences = [row[0] for row in rows], [row[1] for row in rows]
    cursor.execute(FINISH.encode(), {"ids": _literal(ids), "fences": _literal(fences)})
