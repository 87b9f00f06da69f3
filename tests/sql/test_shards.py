"""Every statement names its shard: in its text, and in the indexes that serve it.

On PostgreSQL in a way that Citus can read, so that it asks one node, and can lock rows there.
"""

import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from onefold import Onefold
from onefold.operations.statement import Sql, compiled
from tests.fixtures.backlog import hot_statements
from tests.fixtures.citus import DISTRIBUTED

SQL = Sql("postgres")
SQLITE = Sql("sqlite")
SHARDS = 4

MENTION = re.compile(rf"onefold\.(?:{'|'.join(DISTRIBUTED)}) as (\w+)")
# The statement's shard, or a batch's: all rows of a batch are of one shard.
NAMED = re.compile(r"(\w+)\.shard = (?::shard::smallint(?!\[)|\(:shard::smallint\[\]\)\[1\])")
INSERT = re.compile(r"insert into onefold[._]\w+ \(\s*(\w+)")

SHARDLESS = {
    "describe_table",  # looks at a table of the caller's
    "drop_tables",  # lists the tables, and reads none of them
    "empty_tables",  # the same
    "has_identity",  # asks for the installation, which is one
    "read_identity",  # the same
    "examine",  # asks the server about itself
    "find_indexes",  # lists the indexes, and reads no table
    "notify",  # wakes workers, and reads no table
    "try_claim_lock",  # names a key by its number and reads no table: the lock is the coordinator's
}
SHARDLESS_ON_SQLITE = {
    "delete_folded_duplicates",  # a note's number is unique in the whole file
}


def code_of(name: str, sql: Sql = SQL) -> str:
    """Without comments, and without the names that the notification is sent by."""
    return re.sub(r"--[^\n]*|'onefold\.\w+'", "", sql(name).text)


CODES = {name: code_of(name) for name in SQL.names}


# --- the texts ------------------------------------------------------------------------------------


def test_a_statement_names_the_shard_of_every_table_it_reads() -> None:
    """As a parameter, not by a join: only then does Citus ask one node, and lock rows there."""
    wrong: list[str] = []
    for name, code in CODES.items():
        mentions = list(MENTION.finditer(code))
        ends = [mention.start() for mention in mentions[1:]] + [len(code)]
        for mention, end in zip(mentions, ends, strict=bool(mentions)):
            part = code[mention.start() : end]
            if mention.group(1) not in NAMED.findall(part):
                wrong.append(f"{name}: {part}")

    assert wrong == []


def test_a_statement_reads_tables_under_a_name_or_inserts_into_one() -> None:
    """So that nothing escapes the test above."""
    wrong: list[str] = []
    for name, code in CODES.items():
        tables = re.findall(rf"onefold\.(?:{'|'.join(DISTRIBUTED)})\b", code)
        named = MENTION.findall(code) + INSERT.findall(code)
        if len(tables) != len(named) or not (tables or name in SHARDLESS):
            wrong.append(f"{name}: mentions {tables}, under the names {named}")

    assert wrong == []


@pytest.mark.parametrize("sql", [SQL, SQLITE], ids=lambda sql: sql.dialect)
def test_an_insert_gives_the_shard_first(sql: Sql) -> None:
    inserts = {name: INSERT.findall(code_of(name, sql)) for name in sql.names}

    assert {"insert_job", "insert_claims"} < {name for name, first in inserts.items() if first}
    assert {first for found in inserts.values() for first in found} == {"shard"}


def test_a_statement_of_sqlite_names_its_shard_too() -> None:
    """There it may come from the batch: a file has all shards, and an index that begins with it."""
    named = re.compile(r"\bshard = (?::shard\b|r\.shard\b|json_extract\(r\.value, )")
    codes = {name: code_of(name, SQLITE) for name in SQLITE.names}
    unnamed = {
        name for name, code in codes.items() if not (named.search(code) or INSERT.search(code))
    }

    assert unnamed == (SHARDLESS | SHARDLESS_ON_SQLITE) & codes.keys()


def test_an_update_has_the_time_from_a_function() -> None:
    """Citus would fetch what a subquery says first, and it refuses what is volatile."""
    update = re.compile(r"^update ", re.MULTILINE)
    volatile = re.compile(r"clock_timestamp|\(select coalesce\(:now")

    assert [n for n, code in CODES.items() if update.search(code) and volatile.search(code)] == []


def test_every_table_that_a_statement_names_is_distributed() -> None:
    named = {table for name in SQL.names for table in re.findall(r"onefold\.(\w+)", code_of(name))}

    # The identity is the installation's own, and the same on every node.
    assert named - {"meta"} == set(DISTRIBUTED)


# --- the indexes and the plans --------------------------------------------------------------------


@pytest.fixture
def postgres(postgres_url: str, postgres_schema: str) -> Iterator[psycopg.Connection[Any]]:
    with Onefold(postgres_url, schema=postgres_schema, shards=SHARDS) as onefold:
        onefold.migrate()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("shards") / "onefold.db"
    with Onefold(f"sqlite:///{path}", shards=SHARDS) as onefold:
        onefold.migrate()
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def test_every_hot_statement_of_sqlite_looks_up_one_shard(sqlite: sqlite3.Connection) -> None:
    findings: list[str] = []
    for statement in hot_statements(SQLITE, 20):
        text, names = compiled(statement.text, "named")
        plan = sqlite.execute(f"explain query plan {text}", dict.fromkeys(names)).fetchall()
        steps = [step for *_, step in plan if re.match(r"(?:SEARCH|SCAN) ", step)]
        # A row that was found by its shard may then be read by its place in the file. That no table
        # is read as a whole is the business of test_plans_sqlite.
        ours = [s for s in steps if "VIRTUAL TABLE" not in s and "INTEGER PRIMARY KEY" not in s]
        findings += [
            f"{statement.name}: {step}"
            for step in ours
            if "INDEX" in step and "(shard=?" not in step
        ]

    assert findings == []


def test_every_index_of_postgres_begins_with_the_shard(
    postgres: psycopg.Connection[Any], postgres_schema: str
) -> None:
    rows = postgres.execute(
        "select t.relname, i.relname, a.attname, x.indisunique"
        " from pg_index as x"
        " join pg_class as i on i.oid = x.indexrelid"
        " join pg_class as t on t.oid = x.indrelid"
        " join pg_attribute as a on a.attrelid = t.oid and a.attnum = x.indkey[0]"
        " where t.relnamespace = %s::regnamespace and t.relname = any(%s)",
        [postgres_schema, list(DISTRIBUTED)],
    ).fetchall()

    assert {table for table, _, _, unique in rows if unique} == set(DISTRIBUTED)
    assert {(index, first) for _, index, first, _ in rows if first != "shard"} == set()


def test_every_index_of_sqlite_begins_with_the_shard(sqlite: sqlite3.Connection) -> None:
    firsts = {
        (index, sqlite.execute(f"pragma index_info({index})").fetchall()[0][2])
        for table in DISTRIBUTED
        for _, index, *_ in sqlite.execute(f"pragma index_list(onefold_{table})").fetchall()
    }

    assert len(firsts) >= len(DISTRIBUTED)
    assert {(index, first) for index, first in firsts if first != "shard"} == set()
