"""Run statements on a sqlite3 connection in its open transaction; SQLite's errors as ours."""

from __future__ import annotations

import sqlite3
import sys
import time
from typing import TYPE_CHECKING, Final

from onefold.errors import DatabaseUnavailable, SerializationConflict
from onefold.operations.migrations import (
    Identity,
    Migration,
    drop_tables,
    found_identity,
    pending,
    read_identity,
    script,
)
from onefold.operations.statement import Rows, Sql, Statement, compiled, ordinal, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.databases import Clock


def execute(connection: sqlite3.Connection, statement: Statement, clock: Clock) -> Rows:
    """Run one statement. The clock of the machine is the clock of the database here."""
    real = time.time_ns() // 1000
    now = None if clock is None else clock()
    if statement.each:
        return _execute_each(connection, statement, real if now is None else now)
    text, _ = compiled(statement.text, "named")
    parameters = statement.json()
    parameters["now"] = real if now is None else now
    parameters["clock"] = real
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(text, parameters).fetchall()


def _execute_each(connection: sqlite3.Connection, statement: Statement, now: int) -> Rows:
    run = connection.cursor().execute
    if POSITIONS_WARN:
        text, _ = compiled(statement.text, "named")
        first = statement.columns[0]
        named = [dict(zip(statement.columns, row, strict=True), now=now) for row in statement.rows]
        return [(row[first],) for row in named if run(text, row).rowcount > 0]
    text = ordinal(statement.text, statement.columns)
    return [(row[0],) for row in statement.rows if run(text, (*row, now)).rowcount > 0]


POSITIONS_WARN: Final = (3, 12) <= sys.version_info < (3, 12, 4)
"""These versions of Python take a position (`?1`) for a name. Names need half as long again."""


def read(connection: sqlite3.Connection, sql: Sql, where: str) -> Identity | None:
    """The identity of a file; None if it has no tables of ours."""
    text = _identity_text(connection, sql)
    return None if text is None else read_identity(text, "sqlite", where)


def _identity_text(connection: sqlite3.Connection, sql: Sql) -> str | None:
    if not execute(connection, sql("has_identity"), lambda: 0):
        return None
    rows = execute(connection, sql("read_identity"), lambda: 0)
    text: str = rows[0][0]
    return text


def apply_pending(
    connection: sqlite3.Connection,
    sql: Sql,
    *,
    shards: int | None,
    where: str,
    fresh: bool = False,
) -> tuple[list[Migration], Identity]:
    """Bring the tables up to date, in the open transaction; `fresh` drops them before."""
    if fresh:
        run(drop_tables(sql), lambda statement: execute(connection, statement, lambda: 0))
    found = found_identity(_identity_text(connection, sql), "sqlite", shards, where)
    migrations = pending("sqlite", found.version)
    identity = found.migrated("sqlite")
    if migrations:
        for text in statements(script("sqlite", migrations, identity)):
            connection.execute(text)
    return migrations, identity


def statements(text: str) -> list[str]:
    """The statements of a migration, one by one: `executescript` would commit the transaction."""
    found: list[str] = []
    piece = ""
    for line in text.splitlines(keepends=True):
        piece += line
        if sqlite3.complete_statement(piece):
            found.append(piece)
            piece = ""
    if piece.strip():
        found.append(piece)
    return found


# The low byte of an extended error code is the primary code.
PRIMARY: Final = 0xFF
BUSY: Final = 5
LOCKED: Final = 6
BUSY_SNAPSHOT: Final = 517

INTERRUPTED: Final = 9

SENTENCES: Final = {
    8: "the file or its folder is read-only. Give this user the right to write to both.",
    10: "the disk failed to read or write. Look at the system's log.",
    11: "the file is damaged. Restore it from a backup.",
    13: "the disk is full. Make room; nothing of this call was stored.",
    14: "the file cannot be opened. Does its folder exist, and may this user read it?",
    23: "access is not allowed.",
    26: "the file is not a SQLite database.",
}


def code_of(error: BaseException) -> int:
    """The extended error code of SQLite; 0 if there is none."""
    return getattr(error, "sqlite_errorcode", 0)


def is_busy(error: BaseException) -> bool:
    """Another connection has the lock; it may be free soon."""
    code = code_of(error)
    return code & PRIMARY in {BUSY, LOCKED} and code != BUSY_SNAPSHOT


def is_stale_snapshot(error: BaseException) -> bool:
    """A transaction that began with a read may not write any more."""
    return code_of(error) == BUSY_SNAPSHOT


def translated(error: sqlite3.Error, label: str, busy: Callable[[], Exception]) -> Exception:
    """The error to raise instead; the same one if it is our own bug."""
    if is_stale_snapshot(error):
        return SerializationConflict("it began by reading, and the file has changed since")
    if is_busy(error):
        return busy()
    if code_of(error) & PRIMARY == INTERRUPTED:
        return TimeoutError("The deadline of the caller is over.")
    if sentence := SENTENCES.get(code_of(error) & PRIMARY):
        return DatabaseUnavailable(label, sentence)
    return error
