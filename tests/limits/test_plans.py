"""What a controlled take and a look read, with a heap of jobs in the way that cannot run now.

Counted in rows on PostgreSQL, in steps of the virtual machine on SQLite; never in time.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
import pytest

from onefold import Limit, Onefold
from onefold.model.queue import QueueLimits
from onefold.operations import queues
from onefold.operations.limited_take import WINDOW, WINDOWS, take_controlled
from onefold.operations.statement import Operation, Rows, Sql, Statement, compiled, in_schema, run
from tests.fixtures.backlog import QUEUE, Backlog
from tests.limits.backlog import FEW, MANY, ORDER, Groups, fills
from tests.sql import test_plans_postgres as postgres
from tests.sql import test_plans_sqlite as sqlite

T = TypeVar("T")


LIMITS = {
    "limited": QueueLimits(Limit(concurrency=1_000), Limit(concurrency=2, rate="1000/s")),
    "ordered": QueueLimits(ordered=True),
}
EACH_GROUP = 8
"""Rows that a visit reads of one group, at most: its place in the index, its priorities, its jobs,
what is running, and its rate."""

each_limit = pytest.mark.parametrize("limits", list(LIMITS.values()), ids=list(LIMITS))


# --- PostgreSQL -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_postgres(postgres_url: str) -> Iterator[postgres.Database]:
    schema = f"test_{uuid4().hex}"
    with Onefold(postgres_url, schema=schema) as onefold:
        onefold.migrate()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        database = postgres.Database(connection, schema)
        for fill in fills(database.sql, MANY):
            text, _ = compiled(in_schema(fill.text, schema), "pyformat")
            connection.execute(text.encode(), fill.parameters)
        connection.execute(f"vacuum analyze {schema}.job".encode())
        yield database
        connection.execute(f"drop schema {schema} cascade".encode())


def rows_read(database: postgres.Database, operation: Operation[T], mode: str) -> tuple[T, int]:
    """Run an operation in the transaction that is open, and see what it reads."""
    read = 0
    faults: list[str] = []

    def execute(statement: Statement) -> Rows:
        nonlocal read, faults
        cost = database.cost(statement, mode)
        read += cost.rows
        faults += [f"{statement.name} {fault}" for fault in cost.faults]
        cursor = database.connection.execute(*postgres.bound(statement))
        return cursor.fetchall() if cursor.description else []

    answer = run(operation, execute)
    assert faults == []
    return answer, read


@each_limit
@pytest.mark.parametrize("mode", postgres.MODES)
def test_a_take_of_postgres_visits_groups_and_reads_no_heap(
    on_postgres: postgres.Database, limits: QueueLimits, mode: str
) -> None:
    with on_postgres.connection.transaction(force_rollback=True):
        setting = queues.set_limits(Sql("postgres", schema=on_postgres.sql.schema), QUEUE, limits)
        rows_read(on_postgres, setting, mode)
        taken, read = rows_read(on_postgres, take_controlled(on_postgres.sql, ORDER, QUEUE), mode)

    assert len(taken.jobs) == 100
    assert read <= EACH_GROUP * WINDOW * (WINDOWS + 2)


@pytest.mark.parametrize("mode", postgres.MODES)
def test_a_look_at_postgres_reads_a_handful(on_postgres: postgres.Database, mode: str) -> None:
    seen, read = rows_read(on_postgres, queues.look(on_postgres.sql, [QUEUE, "empty"]), mode)

    assert (seen[0].due, seen[0].due_grouped, seen[1].due) == (True, True, False)
    assert read <= 12


# --- SQLite ---------------------------------------------------------------------------------------


def filled(groups: Groups) -> sqlite3.Connection:
    connection = sqlite.database(Backlog(ready=0, running=0, claims=0))
    for fill in fills(sqlite.SQL, groups):
        connection.execute(fill.text, fill.parameters)
    return connection


@pytest.fixture(scope="module")
def few() -> Iterator[sqlite3.Connection]:
    connection = filled(FEW)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def many() -> Iterator[sqlite3.Connection]:
    connection = filled(MANY)
    yield connection
    connection.close()


def steps_of(connection: sqlite3.Connection, operation: Operation[T]) -> tuple[T, dict[str, int]]:
    """Run an operation, and count the steps of each of its statements."""
    steps: dict[str, int] = {}

    def execute(statement: Statement) -> Rows:
        steps[statement.name] = max(
            steps.get(statement.name, 0), sqlite.steps(connection, statement)
        )
        given: dict[str, Any] = sqlite.parameters(statement)
        return connection.execute(statement.text, given).fetchall()

    return run(operation, execute), steps


@each_limit
def test_a_take_of_sqlite_costs_the_same_with_a_heap_in_the_way(
    few: sqlite3.Connection, many: sqlite3.Connection, limits: QueueLimits
) -> None:
    costs: list[dict[str, int]] = []
    for connection in (few, many):
        connection.execute("savepoint take")
        steps_of(connection, queues.set_limits(sqlite.SQL, QUEUE, limits))
        taken, steps = steps_of(connection, take_controlled(sqlite.SQL, ORDER, QUEUE))
        connection.execute("rollback to take")
        connection.execute("release take")
        assert len(taken.jobs) == 100
        costs.append(steps)

    dearer = {
        name: (costs[0].get(name, 0), cost)
        for name, cost in costs[1].items()
        if cost > 2 * costs[0].get(name, 0) + 500
    }
    assert dearer == {}


def test_a_look_at_sqlite_costs_the_same_with_a_heap_in_the_way(
    few: sqlite3.Connection, many: sqlite3.Connection
) -> None:
    costs = [
        steps_of(connection, queues.look(sqlite.SQL, [QUEUE, "empty"]))[1]["look"]
        for connection in (few, many)
    ]

    assert costs[1] <= costs[0] + 200
