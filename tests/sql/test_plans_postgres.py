"""The plans of PostgreSQL: what every hot statement reads, with many finished jobs in the way.

Counted in rows, from `explain (analyze)`, never in time. Each statement is planned twice:
for its parameters, and without knowing them, as a prepared statement may be from its sixth use on.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql as compose

from onefold import Onefold
from onefold.databases.postgres.exchanges import SESSION
from onefold.databases.postgres.transaction import IN_ORDER
from onefold.model.delivery import TakeOrder
from onefold.model.job import JobRow
from onefold.model.places import Places
from onefold.operations import jobs, queues
from onefold.operations.deliveries import exchange_statement
from onefold.operations.statement import Sql, Statement, compiled, in_schema
from tests.fixtures.backlog import (
    FENCE,
    FEW,
    HOUR,
    KIND,
    NOW,
    QUEUE,
    Backlog,
    fills,
    hot_statements,
    job_id,
    look,
    searches,
    stores,
    takes,
    watched,
)

SMALL = Backlog()
# With fewer finished jobs, to read the whole table is the right plan.
BIG = Backlog(finished=1_000_000, scheduled=200_000, claims=100_000, attempts=100_000)
MODES = ("force_custom_plan", "force_generic_plan")

# What is read beside the batch itself: a job for each priority, a queue that is empty.
SPARE = 10
# A rescue reads the running jobs, of which there are never more than workers can hold.
READS_RUNNING = {"lock_lapsed_deliveries", "next_ack_timeout", "find_probe"}


class Cost(NamedTuple):
    """What a statement cost, as the database counts it."""

    rows: int
    faults: tuple[str, ...]


class Database:
    """A schema with a backlog in it."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection = connection
        self.sql = Sql("postgres", schema=schema)
        self._tables = [f"{schema}.{name}" for name in ("job", "claim", "attempt")]
        # Otherwise the server analyzes them at some moment, and plans are made again.
        for table in self._tables:
            self._execute(f"alter table {table} set (autovacuum_enabled = false)")

    def fill(self, backlog: Backlog, *, analyze: bool = True) -> None:
        for fill in fills(self.sql, backlog):
            text, _ = compiled(in_schema(fill.text, self.sql.schema), "pyformat")
            self.connection.execute(text.encode(), fill.parameters)
        for table in self._tables if analyze else ():
            self._execute(f"vacuum analyze {table}")

    def _execute(self, text: str) -> None:
        self.connection.execute(text.encode())

    def prepare(self, statement: Statement, mode: str = "force_generic_plan") -> "Prepared":
        """A prepared statement, whose plan is made now if it is generic."""
        prepared = Prepared(self.connection, statement, mode)
        prepared.cost()
        return prepared

    def cost(self, statement: Statement, mode: str) -> Cost:
        """Run a statement, see what it read, and take it back."""
        return cost_of(self.plan(statement, mode))

    def plan(self, statement: Statement, mode: str) -> dict[str, Any]:
        """What PostgreSQL did for a statement, which is taken back."""
        prepared = Prepared(self.connection, statement, mode)
        try:
            return prepared.plan()
        finally:
            prepared.close()


class Prepared:
    """A prepared statement and its values."""

    def __init__(
        self, connection: psycopg.Connection[Any], statement: Statement, mode: str
    ) -> None:
        text, names = compiled(statement.text, "numbered")
        parameters = {**statement.arrays(), "now": NOW}
        self._connection = connection
        self._mode = mode
        self._in_order = statement.in_order
        self._name = f"hot_{uuid4().hex}"
        self._values = compose.SQL(", ").join(compose.Literal(parameters[name]) for name in names)
        connection.execute(f"prepare {self._name} as {text}".encode())

    def close(self) -> None:
        self._connection.execute(f"deallocate {self._name}".encode())

    def cost(self) -> Cost:
        """Run it, see what it read, and take it back."""
        return cost_of(self.plan())

    def plan(self) -> dict[str, Any]:
        """Run it, and take it back."""
        explain = compose.SQL("explain (analyze, buffers, format json) execute {} ({})")
        with self._connection.transaction(force_rollback=True):
            self._connection.execute(f"set local plan_cache_mode = {self._mode}".encode())
            if self._in_order:
                self._connection.execute(IN_ORDER)
            row = self._connection.execute(
                explain.format(compose.Identifier(self._name), self._values)
            ).fetchone()
        assert row is not None
        root: dict[str, Any] = row[0][0]["Plan"]
        return root

    def generic_uses(self) -> int:
        """How often its plan was used again."""
        row = self._connection.execute(
            "select generic_plans from pg_prepared_statements where name = %s", [self._name]
        ).fetchone()
        assert row is not None
        return int(row[0])


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)


def cost_of(root: dict[str, Any]) -> Cost:
    nodes = list(walk(root))
    return Cost(
        sum(map(rows_read, nodes)),
        tuple(fault for node in nodes for fault in faults_of(node)),
    )


def rows_read(node: dict[str, Any]) -> int:
    """The rows that a scan of a table gave, and those it read in vain."""
    if "Relation Name" not in node or "Scan" not in node["Node Type"]:
        return 0
    dropped = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    found: float = node["Actual Rows"] + sum(node.get(name, 0) for name in dropped)
    loops: int = node["Actual Loops"]
    return round(found * loops)


def faults_of(node: dict[str, Any]) -> Iterator[str]:
    if node["Node Type"] == "Seq Scan" and node["Relation Name"] in {"job", "claim", "attempt"}:
        yield f"reads all of {node['Relation Name']}"
    if "Sort" in node["Node Type"] and node["Actual Rows"] > 200:
        yield f"sorts {node['Actual Rows']:.0f} rows"


@pytest.fixture(scope="module")
def databases(postgres_url: str) -> Iterator[dict[Backlog, Database]]:
    made: dict[Backlog, Database] = {}
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for backlog in (SMALL, BIG):
            schema = f"test_{uuid4().hex}"
            with Onefold(postgres_url, schema=schema) as onefold:
                onefold.migrate()
            made[backlog] = Database(connection, schema)
            made[backlog].fill(backlog)
        yield made
        for database in made.values():
            connection.execute(f"drop schema {database.sql.schema} cascade".encode())


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.prove
def test_every_hot_statement_reads_what_it_was_asked_for_and_no_more(
    databases: dict[Backlog, Database], size: int
) -> None:
    database = databases[BIG]

    findings: list[str] = []
    for statement in hot_statements(database.sql, size):
        most = BIG.running if statement.name in READS_RUNNING else 3 * size + SPARE
        for mode in MODES:
            cost = database.cost(statement, mode)
            findings += [f"{statement.name} ({mode}) {fault}" for fault in cost.faults]
            if cost.rows > most:
                findings.append(f"{statement.name} ({mode}) reads {cost.rows} rows for {size}")

    assert findings == []


@pytest.mark.parametrize(
    "history", ["new", *[pytest.param(h, marks=pytest.mark.prove) for h in ("vacuumed", "drained")]]
)
def test_a_plan_that_was_made_for_an_empty_table_reads_no_more_when_a_burst_follows(
    postgres_url: str, postgres_schema: str, history: str
) -> None:
    with Onefold(postgres_url, schema=postgres_schema) as onefold:
        onefold.migrate()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        database = Database(connection, postgres_schema)
        if history == "drained":
            database.fill(Backlog(ready=1_000, running=0), analyze=False)
            for table in ("job", "claim", "attempt"):
                connection.execute(f"delete from {postgres_schema}.{table}".encode())
        if history != "new":
            connection.execute(f"vacuum analyze {postgres_schema}.job".encode())
        if history == "vacuumed":
            # Without any page, only the connection of a worker's exchanges is safe.
            connection.execute(SESSION)
        plans = [database.prepare(one) for one in takes(database.sql, 100)]
        database.fill(Backlog(ready=3_000, running=3_000), analyze=False)

        costs = [plan.cost() for plan in plans]

    assert [cost.faults for cost in costs] == [()] * len(plans)
    assert [cost.rows for cost in costs if cost.rows > 300 + SPARE] == []


@pytest.mark.parametrize(
    "history",
    ["emptied", *[pytest.param(h, marks=pytest.mark.prove) for h in ("new", "refilled", "full")]],
)
def test_a_statement_reads_what_it_was_asked_for_with_old_statistics(
    postgres_url: str, postgres_schema: str, history: str
) -> None:
    """The tables were never analyzed, or while they were empty: new, or after months of use."""
    size, notes = 100, 1_500
    backlog = Backlog(finished=20_000, ready=2_000, running=500)
    with Onefold(postgres_url, schema=postgres_schema) as onefold:
        onefold.migrate()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        database = Database(connection, postgres_schema)
        insert = f"""
            insert into {postgres_schema}.duplicate (shard, job_id, at)
            select shard, id, {NOW} from {postgres_schema}.job where state = 0 limit {notes}
        """.encode()
        if history in {"emptied", "refilled"}:
            database.fill(backlog, analyze=history == "refilled")
            connection.execute(insert)
            for table in ("job", "claim", "attempt", "duplicate"):
                connection.execute(f"delete from {postgres_schema}.{table}".encode())
                # A server that is busy keeps the pages, too.
                vacuum = f"vacuum (analyze, truncate false) {postgres_schema}.{table}"
                connection.execute(vacuum.encode())
        database.fill(backlog, analyze=history == "full")
        connection.execute(insert)
        minute = 60_000_000
        statistics = database.sql(
            "read_statistics", shard=0, width=minute, back=HOUR, queue=None, prefix=""
        )
        lapsed = database.sql("lock_lapsed_deliveries", shard=0, limit=size)

        findings = over(database, stores(database.sql, size), 3 * size + SPARE)
        findings += over(database, [lapsed], backlog.running)
        findings += over(database, [statistics], 2 * notes + SPARE)
        connection.execute(SESSION)
        findings += over(database, takes(database.sql, size), 3 * size + SPARE)

    assert findings == []


def over(database: Database, statements: list[Statement], most: int) -> list[str]:
    """The statements that read more rows than that."""
    costs = [(one.name, mode, database.cost(one, mode)) for one in statements for mode in MODES]
    return [f"{name} ({mode}): {cost.rows}" for name, mode, cost in costs if cost.rows > most]


@pytest.mark.parametrize("size", [2, 100])
@pytest.mark.prove
def test_takes_and_enqueues_are_planned_once(databases: dict[Backlog, Database], size: int) -> None:
    for database in databases.values():
        for statement in [*takes(database.sql, size), *stores(database.sql, size)]:
            plan = database.prepare(statement, mode="auto")
            for _ in range(7):
                plan.cost()
            assert plan.generic_uses() == 3, statement.name


@pytest.mark.prove
def test_a_take_from_a_queue_of_jobs_scheduled_ahead_reads_one_of_them(
    databases: dict[Backlog, Database],
) -> None:
    database = databases[BIG]
    take = takes(database.sql, 10)[0]
    ready = database.sql("delete_jobs", ("shard", "id"), [(0, job_id(n)) for n in range(1, 501)])

    with database.connection.transaction(force_rollback=True):
        database.connection.execute(*bound(ready))
        cost = database.cost(take, "force_generic_plan")

    # The one row is the head of its priority; dead entries of the index are not rows.
    assert cost.rows <= 3
    assert cost.faults == ()


def test_a_take_beside_a_transaction_that_stays_open_begins_behind_the_last_one(
    postgres_url: str, postgres_schema: str
) -> None:
    """Until it ends, the entries of taken jobs stay in the index."""
    with Onefold(postgres_url, schema=postgres_schema) as onefold:
        onefold.migrate()
    with (
        psycopg.connect(postgres_url, autocommit=True) as connection,
        psycopg.connect(postgres_url) as dump,
    ):
        database = Database(connection, postgres_schema)
        database.fill(Backlog(ready=20_000, running=0))
        places = Places()
        clean = pages(database, places)
        dump.execute("set transaction isolation level repeatable read")
        dump.execute("select 1")
        connection.execute(
            f"update {postgres_schema}.job set state = 1 where id <= '{job_id(19_000)}'".encode()
        )
        first = f"""
            select id from {postgres_schema}.job
            where shard = :shard::smallint and queue = '{QUEUE}' and state = 0 and group_key is null
            order by priority, run_at, id limit 1
        """
        once = pages_of(database.plan(Statement("first", first, {"shard": 0}), MODES[0]))
        from_the_beginning = pages(database, places)
        places.pass_by([taken_job(19_000)], (), 1)
        behind = pages(database, places)

    assert once > 300
    for name in clean:
        assert from_the_beginning[name] <= clean[name] + 1.2 * once, name
        assert behind[name] <= clean[name] + once / 10, name


def taken_job(number: int, *, priority: int = 0) -> JobRow:
    return JobRow(
        job_id(number), "", QUEUE, KIND, priority, NOW - HOUR, 1, 8, 1, "null", None, 0, NOW,
        None, None, None, None, 0, NOW, NOW, "w",
    )  # fmt: skip


def pages(database: Database, places: Places) -> dict[str, int]:
    """The pages that a take and a look read which begin there."""
    order = TakeOrder({QUEUE: 10}, 10, "w", HOUR, places=places)
    statements = [
        exchange_statement(database.sql, 0, (), order),
        next(queues.look(database.sql, [QUEUE], places)),
    ]
    for statement in statements:  # once before: the first one marks entries, and writes pages
        database.plan(statement, MODES[1])
    return {one.name: pages_of(database.plan(one, MODES[1])) for one in statements}


def pages_of(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.prove
def test_what_operators_watch_reads_nothing_that_has_ended(
    databases: dict[Backlog, Database],
) -> None:
    database = databases[BIG]

    for statement, mode in product(watched(database.sql, "retrying", "dead"), MODES):
        cost = database.cost(statement, mode)
        assert cost.rows <= SPARE, (statement.name, mode)


@pytest.mark.prove
def test_a_look_reads_what_it_may_and_that_of_a_tenant_what_the_tenant_has(
    databases: dict[Backlog, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = databases[BIG]

    for statements, mode in product(searches(database.sql, monkeypatch), MODES):
        for statement in statements:
            cost = database.cost(statement, mode)
            assert cost.rows <= FEW + SPARE, (statement, mode)
            assert cost.faults == ()


def test_a_look_at_jobs_without_statistics_reads_what_it_may(
    postgres_url: str, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Onefold(postgres_url, schema=postgres_schema) as onefold:
        onefold.migrate()
    monkeypatch.setattr(jobs, "LOOKED", FEW)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        database = Database(connection, postgres_schema)
        database.fill(Backlog(finished=20_000, ready=0, running=0), analyze=False)
        connection.execute(f"update {postgres_schema}.job set tenant = 'acme'".encode())

        for newest_first, mode in product((False, True), MODES):
            options: Any = {"limit": 10, "newest_first": newest_first}
            (end, _) = look(database.sql, jobs.job_filter(kind="none"), "acme", **options)
            cost = database.cost(end, mode)
            assert cost.rows <= FEW + SPARE
            assert cost.faults == ()


@pytest.mark.prove
def test_counting_what_waits_reads_nothing_that_has_ended(
    databases: dict[Backlog, Database],
) -> None:
    database = databases[BIG]

    for mode in MODES:
        cost = database.cost(database.sql("count_jobs", shard=0), mode)
        assert cost.rows <= BIG.ready + BIG.scheduled + BIG.running + SPARE
        assert cost.faults == ()


def bound(statement: Statement) -> tuple[bytes, dict[str, Any]]:
    text, _ = compiled(statement.text, "pyformat")
    return text.encode(), {**statement.arrays(), "now": NOW}


def test_heartbeats_touch_no_index(postgres_url: str, postgres_schema: str) -> None:
    with Onefold(postgres_url, schema=postgres_schema) as onefold:
        onefold.migrate()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        database = Database(connection, postgres_schema)
        database.fill(Backlog(ready=0, running=1_000))
        # Few on a page: others' transactions may keep this server from clearing a page of its dead
        # rows, and then there is room on it for the first few only.
        fenced = [(0, job_id(number), FENCE) for number in range(100_001, 101_001, 50)]
        beat = database.sql("heartbeat_jobs", ("shard", "id", "fence"), fenced, lease=HOUR)

        before = updates(connection, postgres_schema)
        for _ in range(3):
            connection.execute(*bound(beat))
        after = updates(connection, postgres_schema)

    total, hot = after[0] - before[0], after[1] - before[1]
    assert (total, hot) == (3 * len(fenced), 3 * len(fenced))


def updates(connection: psycopg.Connection[Any], schema: str) -> tuple[int, int]:
    """Updates of job so far, and how many of them were heap-only."""
    connection.execute("select pg_stat_force_next_flush()")
    connection.execute("select pg_stat_clear_snapshot()")
    row = connection.execute(
        "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables"
        " where schemaname = %s and relname = 'job'",
        [schema],
    ).fetchone()
    assert row is not None
    return row[0], row[1]
