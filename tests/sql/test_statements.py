"""Every statement of both databases: it prepares, and it is asked for as it is written."""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import psycopg
import pytest

import onefold.sql
from onefold import Onefold
from onefold.databases.sqlite.execute import statements
from onefold.operations.migrations import pending
from onefold.operations.statement import Dialect, Sql, compiled
from tests.fixtures.usage import Use, uses

POSTGRES = Sql("postgres")
SQLITE = Sql("sqlite")
DIALECTS: Final[tuple[Dialect, ...]] = ("postgres", "sqlite")
FOLDER = Path(onefold.sql.__file__).parent
USES = uses()

ONLY_POSTGRES = {
    "notify",  # SQLite's workers look for themselves
    "exchange_jobs",  # SQLite has no round trips to save, no LATERAL, and no rows to skip
    "try_claim_lock",  # SQLite's one writer is the lock
    "insert_jobs",  # SQLite stores job by job, which is faster there
    "publish_job",
    "publish_unique_job",
    "enqueue_one",  # SQLite has one writer: an insert and a look are one transaction
    "insert_routed_job",  # for Citus
    "log_routed_duplicates",
    "publish_jobs",
    "store_jobs",
    "store_keyed_jobs",
}
ONLY_SQLITE = {
    "insert_publish_key",  # insert_publish_keys, key by key
    "ready_priorities",  # PostgreSQL visits the priorities inside of exchange_jobs, by LATERAL
    "store_job",  # store_jobs, job by job
    "take_jobs",
}
# What every driver adds: the time, and on SQLite the machine's clock beside a test's.
GIVEN = {"now", "clock", "patience"}
# The advisory lock of a claim; SQLite has none, and its driver passes over the parameters.
ONLY_FOR_POSTGRES = {"lock", "shared"}
ASKED_BY_DATABASES = {"drop_tables", "has_identity", "read_identity"}
ASKED_BY_DJANGO = {"empty_tables"}
# A take is the engine's, in transactions of our own; `within` never runs it.
NEVER_WITHIN = {
    "find_group_jobs", "find_ready_jobs", "look", "next_groups", "read_statistics",
    "ready_priorities",
}  # fmt: skip


def text_of(sql: Sql, name: str) -> str:
    return sql(name).text


def parameters_of(sql: Sql, name: str) -> set[str]:
    return set(compiled(text_of(sql, name), "named")[1])


def code_of(text: str) -> str:
    """Without comments, strings and quoted names."""
    return re.sub(r"""--[^\n]*|'(?:[^']|'')*'|"[^"]*\"""", " ", text)


def place_of(use: Use) -> str:
    return f"{use.module}, {use.statement}:"


# --- both dialects --------------------------------------------------------------------------------


def test_both_databases_have_the_same_statements() -> None:
    assert set(POSTGRES.names) - set(SQLITE.names) == ONLY_POSTGRES
    assert set(SQLITE.names) - set(POSTGRES.names) == ONLY_SQLITE


def test_an_operation_gives_postgres_every_parameter_and_no_other() -> None:
    wrong = [
        found
        for use in USES
        if use.statement not in ONLY_SQLITE
        for found in _wrong_parameters(use, POSTGRES, {*use.columns, *use.parameters})
    ]

    assert wrong == []


def test_an_operation_gives_sqlite_every_parameter_and_no_other() -> None:
    wrong: list[str] = []
    for use in USES:
        if use.statement in ONLY_POSTGRES:
            continue
        columns = use.columns if use.each else ["rows"] if use.columns else []
        wrong += _wrong_parameters(use, SQLITE, {*columns, *use.parameters} - ONLY_FOR_POSTGRES)

    assert wrong == []


def _wrong_parameters(use: Use, sql: Sql, given: set[str]) -> Iterator[str]:
    wanted = parameters_of(sql, use.statement) - GIVEN
    if unknown := given - wanted:
        yield f"{place_of(use)} gives {sorted(unknown)}, which the statement does not have"
    if not use.open_ended and (missing := wanted - given):
        yield f"{place_of(use)} does not give {sorted(missing)}"


def test_sqlite_reads_the_columns_of_a_batch_where_the_operation_puts_them() -> None:
    wrong: list[str] = []
    for use in USES:
        if not use.columns or use.each or use.statement in ONLY_POSTGRES:
            continue
        read = _columns_read(use)
        given = [(place, use.columns[place]) for place, _ in read]
        if not read or given != read:
            wrong.append(f"{place_of(use)} gives {given}, and the statement reads {read}")

    assert wrong == []


def _columns_read(use: Use) -> list[tuple[int, str]]:
    """The columns that a statement reads from its batch, with their places."""
    # Notes are deleted by their number alone, which is unique in the file; the batch names the
    # shard too, as PostgreSQL needs it.
    if use.statement == "delete_folded_duplicates":
        return [(1, "number")]
    text = text_of(SQLITE, use.statement)
    aliased = re.findall(r"json_extract\(value, '\$\[(\d+)\]'\) as (\w+)", text)
    compared = re.findall(r"\w+\.(\w+) = json_extract\(r\.value, '\$\[(\d+)\]'\)", text)
    return [(int(place), column) for place, column in aliased] + [
        (int(place), {"job_id": "id"}.get(column, column)) for column, place in compared
    ]


def test_every_statement_is_asked_for() -> None:
    asked = {use.statement for use in USES} | ASKED_BY_DATABASES | ASKED_BY_DJANGO

    assert asked == {*POSTGRES.names, *SQLITE.names}


# --- they prepare ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def migrated(postgres_url: str) -> Iterator[Sql]:
    """The statements of a schema that has its tables."""
    name = f"test_{uuid4().hex}"
    with Onefold(postgres_url, schema=name) as onefold:
        onefold.migrate()
    yield Sql("postgres", schema=name)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"drop schema {name} cascade".encode())


def test_every_statement_is_planned_by_psycopg_without_a_hint_from_its_values(
    postgres_url: str, migrated: Sql
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name in migrated.names:
            text, names = compiled(text_of(migrated, name), "pyformat")
            rows = connection.execute(f"explain {text}".encode(), dict.fromkeys(names)).fetchall()
            assert rows, name


def test_every_parameter_of_postgres_says_its_type() -> None:
    """So that a null, or an empty list, needs no guess."""
    for name in POSTGRES.names:
        text = re.sub(r"--[^\n]*", "", text_of(POSTGRES, name))
        bare = re.findall(r"(?<!:):[a-z_]+\b(?!::)", text)
        assert bare == [], name


def test_every_statement_prepares_on_sqlite() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for migration in pending("sqlite", 0):
        for text in statements(migration.text):
            connection.execute(text)

    for name in SQLITE.names:
        text, names = compiled(text_of(SQLITE, name), "named")
        assert connection.execute(f"explain {text}", dict.fromkeys(names)).fetchall(), name
    connection.close()


# --- how they are written -------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_file_is_one_statement(dialect: Dialect) -> None:
    sql = Sql(dialect)

    assert [name for name in sql.names if ";" in code_of(text_of(sql, name))] == []


def test_nothing_that_runs_within_a_callers_transaction_starts_with_with() -> None:
    """Python's legacy transactions of sqlite3 would run it outside of the transaction."""
    with_first = {
        name for name in SQLITE.names if code_of(text_of(SQLITE, name)).split()[0] == "with"
    }

    assert with_first == NEVER_WITHIN


def test_the_clock_of_a_statement_is_the_one_it_was_given_or_its_own() -> None:
    """`now()` is the transaction's, stale in a caller's; `clock_timestamp()` defeats an index."""
    for name in POSTGRES.names:
        code = code_of(text_of(POSTGRES, name))
        assert not re.search(r"(?<![\w.])now\(\)|current_timestamp", code), name
        if "clock_timestamp" in code:
            # A claim's fence must grow even while the given clock stands still.
            made = {
                "claim_one",
                "insert_claims",
                "take_over_claims",
                "force_claims",
                "publish_job",
                "publish_unique_job",
                "publish_jobs",
            }
            assert name in made


def test_rows_are_locked_in_an_order() -> None:
    for name in POSTGRES.names:
        code = code_of(text_of(POSTGRES, name))
        if re.search(r"for update(?! of \w+ skip locked| skip locked)", code):
            # One row needs no order.
            assert "order by" in code or name == "guard_claim", name
