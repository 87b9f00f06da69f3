"""The tables that the migrations make: the same on both databases."""

import re
import sqlite3
from collections.abc import Iterator
from typing import Any, TypeAlias

import psycopg
import pytest

from onefold import Onefold
from onefold.operations.migrations import latest, pending
from onefold.operations.statement import Dialect

Columns: TypeAlias = dict[str, dict[str, bool]]
"""By table, then by column: whether it may be null."""

DIALECTS: tuple[Dialect, ...] = ("postgres", "sqlite")
TABLES = {
    "api_key", "attempt", "claim", "duplicate", "duplicate_tally", "job", "meta", "migration",
    "queue", "rate", "schedule", "served_queue", "statistic", "worker",
}  # fmt: skip


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[sqlite3.Connection]:
    with Onefold(sqlite_url) as onefold:
        onefold.migrate()
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    yield connection
    connection.close()


@pytest.fixture
def postgres(postgres_url: str, postgres_schema: str) -> Iterator[psycopg.Connection[Any]]:
    with Onefold(postgres_url, schema=postgres_schema) as onefold:
        onefold.migrate()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def columns_of_sqlite(connection: sqlite3.Connection) -> Columns:
    found: Columns = {}
    names = connection.execute("select name from sqlite_master where name like 'onefold_%'")
    for (table,) in names.fetchall():
        rows = connection.execute(f"pragma table_info({table})").fetchall()
        if (
            rows
            and connection.execute(
                "select 1 from sqlite_master where type = 'table' and name = ?", [table]
            ).fetchone()
        ):
            # A primary key of SQLite may say nothing about null.
            found[table.removeprefix("onefold_")] = {
                name: not (not_null or key) for _, name, _, not_null, _, key in rows
            }
    return found


def columns_of_postgres(connection: psycopg.Connection[Any], schema: str) -> Columns:
    found: Columns = {}
    for table, column, nullable in connection.execute(
        "select table_name, column_name, is_nullable from information_schema.columns"
        " where table_schema = %s",
        [schema],
    ):
        found.setdefault(table, {})[column] = nullable == "YES"
    return found


def test_the_long_values_of_a_job_come_last_on_sqlite(sqlite: sqlite3.Connection) -> None:
    """SQLite would read them whole to find a column after them, for each job of a search."""
    rows = sqlite.execute("pragma table_info(onefold_job)").fetchall()

    assert [row[1] for row in rows][-2:] == ["result", "payload"]


def test_both_databases_have_the_same_columns(
    sqlite: sqlite3.Connection, postgres: psycopg.Connection[Any], postgres_schema: str
) -> None:
    on_sqlite = columns_of_sqlite(sqlite)
    on_postgres = columns_of_postgres(postgres, postgres_schema)

    assert set(on_sqlite) == TABLES
    assert on_sqlite == on_postgres


def indexes_of(text: str) -> dict[str, str]:
    """By name without the table's prefix: columns and condition, as they are written."""
    found = re.findall(
        r"create (unique )?index (?:onefold_)?(\w+) on onefold[._](\w+) (\(.*?);", text, re.DOTALL
    )
    return {
        name: f"{unique}{table} {' '.join(rest.split())}" for unique, name, table, rest in found
    }


def test_both_databases_have_the_same_indexes() -> None:
    postgres, sqlite = (
        indexes_of("".join(migration.text for migration in pending(dialect, 0)))
        for dialect in DIALECTS
    )

    assert "job_unique" in postgres
    assert postgres == sqlite


def test_text_keys_of_postgres_compare_by_bytes(
    postgres: psycopg.Connection[Any], postgres_schema: str
) -> None:
    rows = postgres.execute(
        "select table_name, column_name from information_schema.columns"
        " where table_schema = %s and collation_name = 'C'",
        [postgres_schema],
    ).fetchall()

    keys = {
        *[("claim", name) for name in ("tenant", "surface", "scope", "key", "fingerprint")],
        *[("job", name) for name in ("tenant", "queue", "kind", "unique_kind", "unique_key")],
        *[("job", name) for name in ("fingerprint", "group_key")],
        *[("api_key", name) for name in ("id", "tenant")],
        ("attempt", "outcome"),
        ("queue", "name"),
        *[("rate", name) for name in ("queue", "group_key")],
        *[("schedule", name) for name in ("tenant", "name", "kind", "queue")],
        *[("served_queue", name) for name in ("tenant", "name")],
        ("statistic", "queue"),
    }
    assert set(rows) == keys


def test_both_databases_have_the_same_migrations_and_no_number_is_left_out() -> None:
    postgres, sqlite = (
        [(migration.number, migration.name) for migration in pending(dialect, 0)]
        for dialect in DIALECTS
    )

    assert postgres == sqlite
    assert [number for number, _ in postgres] == list(range(1, latest("postgres") + 1))
