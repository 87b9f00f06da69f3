"""Statements on a sqlite3 connection, whoever it belongs to and whatever transaction is open."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

from onefold.model.identity import new_id
from onefold.operations.migrations import (
    Identity,
    Migration,
    latest,
    pending,
    read_identity,
    script,
)
from onefold.operations.statement import Rows, Sql, Statement, compiled

if TYPE_CHECKING:
    from onefold.databases import Clock


def execute(connection: sqlite3.Connection, statement: Statement, clock: Clock) -> Rows:
    """Run one statement. The machine's clock is the database's clock here."""
    text, _ = compiled(statement.text, "named")
    real = time.time_ns() // 1000
    now = clock()
    parameters = statement.json()
    parameters["now"] = real if now is None else now
    parameters["clock"] = real
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(text, parameters).fetchall()


def read(connection: sqlite3.Connection, sql: Sql) -> Identity | None:
    """The identity of a file, None where it has no tables of ours."""
    if not execute(connection, sql("has_identity"), lambda: 0):
        return None
    rows = execute(connection, sql("read_identity"), lambda: 0)
    return read_identity(rows[0][0])


def apply_pending(connection: sqlite3.Connection, sql: Sql) -> list[Migration]:
    """Bring the tables up to date, in the transaction that is open."""
    found = read(connection, sql) or Identity(new_id())
    migrations = pending("sqlite", found.version)
    identity = Identity(found.installation, latest("sqlite"), found.shards)
    for text in statements(script("sqlite", migrations, identity)):
        connection.execute(text)
    return migrations


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
