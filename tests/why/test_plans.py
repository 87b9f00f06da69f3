"""What `why` reads: a probe for the jobs and for each surface and scope, never the rows between.

And a list of keys: its page.

Counted in rows and in steps of a virtual machine, never in time.
"""

from contextlib import closing
from typing import Any

import psycopg
import pytest

from onefold.operations.statement import Sql, Statement
from tests.fixtures.backlog import Backlog
from tests.fixtures.place import Place
from tests.sql.test_plans_postgres import MODES, Database
from tests.sql.test_plans_sqlite import database as filled
from tests.sql.test_plans_sqlite import faults, steps

BACKLOG = Backlog(finished=2_000, ready=2_000, running=500, claims=20_000)
PROBES = 20
"""One surface, one scope: of each a first, a next that is none, and the row itself; and a job."""


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
        with closing(filled(backlog)) as connection:
            costs.append(steps(connection, look(Sql("sqlite"))))
            scans = [line for line in faults(connection, look(Sql("sqlite"))) if "onefold" in line]
        assert scans == []

    few, many = costs
    assert many <= few + 100


LISTED = 50
PAGES: list[dict[str, Any]] = [
    {},
    {"scope": "scope"},
    {"scope": "another", "after_scope": "another"},
    {"key": "key:100100"},
    {"scope": "scope", "key": "key:100100"},
    {"after_scope": "scope", "after_key": "key:1000100"},
    {"state": "settled"},
    {"surface": "http"},
]


def page(sql: Sql, **narrowed: Any) -> Statement:
    """The statement for a page of keys."""
    given: dict[str, Any] = {
        "surface": "once", "scope": None, "key": None, "state": None, "after_scope": "",
        "after_key": "", "results": False, "limit": LISTED, **narrowed,
    }  # fmt: skip
    return sql("find_keys", shard=0, tenant="", **given)


@pytest.mark.parametrize("mode", MODES)
def test_postgres_reads_a_page_of_keys_and_no_more(postgres_place: Place, mode: str) -> None:
    with psycopg.connect(postgres_place.url, autocommit=True) as connection:
        database = Database(connection, postgres_place.schema)
        database.fill(BACKLOG)

        # Each is found, and then read. Those that are held come before those that are settled.
        most = 2 * LISTED + BACKLOG.running
        for narrowed in PAGES:
            cost = database.cost(page(database.sql, **narrowed), mode)
            assert cost.faults == ()
            assert cost.rows <= (most if "state" in narrowed else 2 * LISTED), narrowed
        surfaces = database.sql("find_surfaces", shard=0, tenant="", after_surface="")
        assert database.cost(surfaces, mode).rows <= PROBES


def test_sqlite_takes_as_many_steps_for_a_page_of_many_keys_as_of_few() -> None:
    with closing(filled(Backlog(claims=200))) as few, closing(filled(BACKLOG)) as many:
        for narrowed in PAGES:
            statement = page(Sql("sqlite"), **narrowed)
            assert steps(many, statement) <= steps(few, statement) + 100, narrowed
