"""One statement on a psycopg cursor, whoever's transaction it is in."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import psycopg

from onefold.operations.statement import compiled

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult
    from psycopg.rows import TupleRow

    from onefold.databases import Clock
    from onefold.operations.statement import Rows, Statement


def _may_have_rows(result: PGresult | None) -> bool:
    """In a pipeline, ours or the caller's, nothing is known of an answer before it is fetched."""
    # Not by the cursor's description, which makes an object per column every time.
    return result is None or result.nfields > 0


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
    try:
        return cursor.fetchall() if _may_have_rows(cursor.pgresult) else ()
    except psycopg.ProgrammingError:
        if cursor.pgresult is None:
            raise
        return ()  # an answer without rows, known to have none only now


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
    try:
        return await cursor.fetchall() if _may_have_rows(cursor.pgresult) else ()
    except psycopg.ProgrammingError:
        if cursor.pgresult is None:
            raise
        return ()
