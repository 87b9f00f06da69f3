"""What `why` reads: a probe for each kind, surface and scope, and never the rows between them.

Counted in rows and in steps of a virtual machine, never in time.
"""

import sqlite3
from typing import Any

import psycopg
import pytest

from onefold.databases.sqlite_statements import statements
from onefold.operations.migrations import pending
from onefold.operations.statement import Sql, Statement
from tests.fixtures.backlog import Backlog, fills
from tests.fixtures.place import Place
from tests.sql.test_plans_postgres import MODES, Database
from tests.sql.test_plans_sqlite import faults, steps

BACKLOG = Backlog(finished=2_000, ready=2_000, running=500, claims=20_000)
PROBES = 20
"""One kind, one surface, one scope: of each a first, a next that is none, and the row itself."""


def look(sql: Sql, **narrowed: str) -> Statement:
    """The statement for a key of a job and of a claim."""
    given: dict[str, Any] = {"surface": None, "scope": None, **narrowed}
    return sql("find_key_holders", shard=0, tenant="", key="key:100100", **given)


@pytest.mark.parametrize("mode", MODES)
def test_postgres_reads_as_many_rows_as_there_are_scopes(postgres_place: Place, mode: str) -> None:
    with psycopg.connect(postgres_place.url, autocommit=True) as connection:
        database = Database(connection, postgres_place.schema)
        database.fill(BACKLOG)

        for narrowed in ({}, {"surface": "once"}, {"scope": "scope"}, {"surface": "job"}):
            cost = database.cost(look(database.sql, **narrowed), mode)
            assert cost.faults == ()
            assert cost.rows <= PROBES


def test_sqlite_takes_as_many_steps_with_many_rows_as_with_few() -> None:
    costs: list[int] = []
    for backlog in (Backlog(), BACKLOG):
        connection = sqlite3.connect(":memory:", isolation_level=None)
        for migration in pending("sqlite", 0):
            for text in statements(migration.text):
                connection.execute(text)
        for fill in fills(Sql("sqlite"), backlog):
            connection.execute(fill.text, fill.parameters)
        costs.append(steps(connection, look(Sql("sqlite"))))
        scans = [line for line in faults(connection, look(Sql("sqlite"))) if "onefold" in line]
        connection.close()
        assert scans == []

    few, many = costs
    assert many <= few + 100
