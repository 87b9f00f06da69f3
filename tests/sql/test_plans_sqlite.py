"""The plans of SQLite: what every hot statement costs, with many finished jobs in the way.

Counted in steps of SQLite's virtual machine, which are the same on every run; never in time. Each
statement is planned twice: without statistics, as almost every file is, and after ANALYZE.
"""

import sqlite3
from collections.abc import Iterator

import pytest

from onefold.databases.sqlite.execute import statements
from onefold.operations.migrations import pending
from onefold.operations.statement import Sql, Statement
from tests.fixtures.backlog import (
    FEW,
    NOW,
    Backlog,
    fills,
    hot_statements,
    job_id,
    searches,
    takes,
    watched,
)
from tests.fixtures.proof import repetitions

SQL = Sql("sqlite")
SMALL = Backlog()
MANY = repetitions(50_000, soak=1_000_000)
BIG = Backlog(finished=MANY, scheduled=MANY // 5, claims=MANY // 10, attempts=MANY // 10)
GRAIN = 10
"""Steps between two looks at the counter."""


def database(backlog: Backlog) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for migration in pending("sqlite", 0):
        for text in statements(migration.text):
            connection.execute(text)
    for fill in fills(SQL, backlog):
        connection.execute(fill.text, fill.parameters)
    return connection


@pytest.fixture(scope="module")
def small() -> Iterator[sqlite3.Connection]:
    connection = database(SMALL)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def big() -> Iterator[sqlite3.Connection]:
    connection = database(BIG)
    yield connection
    connection.close()


def parameters(statement: Statement) -> dict[str, object]:
    return {**statement.json(), "now": NOW, "clock": NOW}


def steps(connection: sqlite3.Connection, statement: Statement) -> int:
    """Run a statement, count what the virtual machine did for it, and take it back."""
    looks = 0

    def look() -> int:
        nonlocal looks
        looks += 1
        return 0

    connection.execute("savepoint plan")
    connection.set_progress_handler(look, GRAIN)
    try:
        connection.execute(statement.text, parameters(statement)).fetchall()
    finally:
        connection.set_progress_handler(None, 0)
        connection.execute("rollback to plan")
        connection.execute("release plan")
    return looks * GRAIN


def plan(connection: sqlite3.Connection, statement: Statement) -> list[str]:
    rows = connection.execute(f"explain query plan {statement.text}", parameters(statement))
    return [row[3] for row in rows]


def faults(connection: sqlite3.Connection, statement: Statement) -> list[str]:
    """Scans of a table (a search with an index is none), and sorts of one."""
    lines = plan(connection, statement)
    scans = [
        line
        for line in lines
        if line.startswith("SCAN ")
        and not line.startswith(("SCAN lane", "SCAN json_each", "SCAN r"))
        and "VIRTUAL TABLE" not in line
    ]
    # Answers in the order of the batch are sorted by the batch, which is small.
    by_batch = any("json_each" in line for line in lines)
    sorts = [line for line in lines if "TEMP B-TREE" in line and not by_batch]
    return [f"{statement.name}: {line}" for line in scans + sorts]


@pytest.mark.parametrize("analyzed", [False, True], ids=["bare", "analyzed"])
@pytest.mark.parametrize("size", [1, 100])
def test_every_hot_statement_costs_the_same_with_many_finished_jobs(
    small: sqlite3.Connection, big: sqlite3.Connection, size: int, *, analyzed: bool
) -> None:
    big.execute("savepoint statistics")
    if analyzed:
        big.execute("analyze")

    findings: list[str] = []
    for statement in hot_statements(SQL, size):
        findings += faults(big, statement)
        few, many = steps(small, statement), steps(big, statement)
        # A few steps for the priority at which all jobs are scheduled ahead.
        if many > few + 100:
            findings.append(f"{statement.name}: {many} steps instead of {few}")

    big.execute("rollback to statistics")
    big.execute("release statistics")
    assert findings == []


def test_a_take_from_a_queue_of_jobs_scheduled_ahead_reads_one_of_them(
    big: sqlite3.Connection,
) -> None:
    ready = SQL("delete_jobs", ("shard", "id"), [(0, job_id(n)) for n in range(1, SMALL.ready + 1)])
    priorities = takes(SQL, 10)[0]

    big.execute("savepoint nothing_ready")
    big.execute(ready.text, parameters(ready)).fetchall()
    found = big.execute(priorities.text, parameters(priorities)).fetchall()
    cost = steps(big, priorities)
    big.execute("rollback to nothing_ready")
    big.execute("release nothing_ready")

    assert found == []
    assert cost < 300


def test_what_operators_watch_costs_the_same_with_many_finished_jobs(
    small: sqlite3.Connection, big: sqlite3.Connection
) -> None:
    for statement in watched(SQL, "running", "retrying", "dead"):
        assert steps(big, statement) <= 2 * steps(small, statement), statement.name


def test_a_look_costs_what_it_may_read_and_that_of_a_tenant_what_the_tenant_has(
    small: sqlite3.Connection, big: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for statements_of_look in searches(SQL, monkeypatch):
        for statement in statements_of_look:
            assert faults(big, statement) == []
            assert steps(big, statement) <= steps(small, statement) + 60 * FEW


def test_counting_what_waits_reads_nothing_that_has_ended(big: sqlite3.Connection) -> None:
    tables = [line for line in plan(big, SQL("count_jobs", shard=0)) if " j" in line]

    assert len(tables) == 3
    assert all(line.startswith("SEARCH j USING INDEX") for line in tables)
