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
    cursor: psycopg.Cursor[TupleRow], statement: Statement, clock: Clock, *, fetch_rows: bool = True
) -> Rows:
    """Run one statement on a cursor that gives tuples; without `fetch_rows`, only send it."""
    parameters = statement.literals()
    parameters["now"] = clock()
    cursor.execute(_encoded(statement.text), parameters)
    return fetch(cursor) if fetch_rows else ()


def fetch(cursor: psycopg.Cursor[TupleRow]) -> Rows:
    """What a statement has answered, if it answers at all."""
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
    fetch_rows: bool = True,
) -> Rows:
    """`execute`, awaited."""
    parameters = statement.literals()
    parameters["now"] = clock()
    await cursor.execute(_encoded(statement.text), parameters)
    return await afetch(cursor) if fetch_rows else ()


async def afetch(cursor: psycopg.AsyncCursor[TupleRow]) -> Rows:
    """`fetch`, awaited."""
    try:
        return await cursor.fetchall() if _may_have_rows(cursor.pgresult) else ()
    except psycopg.ProgrammingError:
        if cursor.pgresult is None:
            raise
        return ()
