"""Statements on a sqlite3 connection, whoever it belongs to and whatever transaction is open."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

from onefold.operations.migrations import (
    Identity,
    Migration,
    found_identity,
    pending,
    read_identity,
    script,
)
from onefold.operations.statement import Rows, Sql, Statement, compiled, ordinal

if TYPE_CHECKING:
    from onefold.databases import Clock


def execute(connection: sqlite3.Connection, statement: Statement, clock: Clock) -> Rows:
    """Run one statement. The machine's clock is the database's clock here."""
    real = time.time_ns() // 1000
    now = clock()
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
    text = ordinal(statement.text, statement.columns)
    cursor = connection.cursor()
    return [(row[0],) for row in statement.rows if cursor.execute(text, (*row, now)).rowcount > 0]


def read(connection: sqlite3.Connection, sql: Sql, where: str) -> Identity | None:
    """The identity of a file, None where it has no tables of ours."""
    text = _identity_text(connection, sql)
    return None if text is None else read_identity(text, "sqlite", where)


def _identity_text(connection: sqlite3.Connection, sql: Sql) -> str | None:
    if not execute(connection, sql("has_identity"), lambda: 0):
        return None
    rows = execute(connection, sql("read_identity"), lambda: 0)
    text: str = rows[0][0]
    return text


def apply_pending(
    connection: sqlite3.Connection, sql: Sql, *, shards: int | None, where: str
) -> tuple[list[Migration], Identity]:
    """Bring the tables up to date, in the transaction that is open."""
    found = found_identity(_identity_text(connection, sql), "sqlite", shards, where)
    migrations = pending("sqlite", found.version)
    identity = found.migrated("sqlite")
    if migrations:
        for text in statements(script("sqlite", migrations, identity)):
            connection.execute(text)
    return migrations, identity


def statements(text: str) -> list[str]:
    """The statements of a migration, one by one: `executescript` would commit our transaction."""
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
