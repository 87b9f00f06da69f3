"""One statement on a psycopg cursor, whoever's transaction it is in."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from onefold.operations.statement import compiled

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq.abc import PGresult
    from psycopg.rows import TupleRow

    from onefold.databases import Clock
    from onefold.operations.statement import Rows, Statement


def _has_rows(result: PGresult | None) -> bool:
    # Not by the cursor's description, which makes an object per column every time.
    return result is not None and result.nfields > 0


@cache
def _encoded(text: str) -> bytes:
    return compiled(text, "pyformat")[0].encode()


def execute(
    cursor: psycopg.Cursor[TupleRow], statement: Statement, clock: Clock, *, fetch: bool = True
) -> Rows:
    """Run one statement on a cursor that gives tuples; without `fetch`, only send it."""
    parameters = statement.literals()
    parameters["now"] = clock()
    cursor.execute(_encoded(statement.text), parameters)
    if not fetch:
        return ()
    if cursor.pgresult is None and cursor.connection.pgconn.pipeline_status:
        # The pipeline, ours or the caller's, would answer later; we need the rows now.
        with cursor.connection.pipeline() as pipeline:
            pipeline.sync()
    return cursor.fetchall() if _has_rows(cursor.pgresult) else ()


async def aexecute(
    cursor: psycopg.AsyncCursor[TupleRow],
    statement: Statement,
    clock: Clock,
    *,
    fetch: bool = True,
) -> Rows:
    """`execute`, awaited."""
    parameters = statement.literals()
    parameters["now"] = clock()
    await cursor.execute(_encoded(statement.text), parameters)
    if not fetch:
        return ()
    if cursor.pgresult is None and cursor.connection.pgconn.pipeline_status:
        async with cursor.connection.pipeline() as pipeline:
            await pipeline.sync()
    return await cursor.fetchall() if _has_rows(cursor.pgresult) else ()
