"""No statement does what Citus refuses.

A revoked API key once stayed valid on Citus, since the statement that revokes it was refused there.
"""

from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

import onefold.sql
from onefold import NewJob, Onefold
from onefold.app.jobs import enqueue_item
from onefold.databases.postgres.libpq import Session
from onefold.databases.postgres.transaction import Effort, PostgresTransaction
from onefold.errors import DatabaseBusy
from onefold.model.new_job import prepare
from onefold.operations.enqueue import KEEP_HOLDER
from onefold.operations.statement import Operation, Rows, Sql, Statement
from tests.fixtures.citus import DISTRIBUTED
from tests.sql.citus_rules import Volatility, functions_in, refusals

FILES = sorted((Path(onefold.sql.__file__).parent / "postgres").rglob("*.sql"))
NOW = "coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)"

REFUSED = {
    # The shapes of hold_queue, open_queue, pause_schedule, update_served_queue and revoke_api_key.
    f"""
    insert into onefold.queue (shard, held_until) values (:shard::smallint, {NOW})
    on conflict (shard, name) do update set held_until = excluded.held_until
    returning queue.held_until, coalesce(:until::bigint, {NOW} + :after::bigint)
    """: "RETURNING",
    f"update onefold.queue as q set failures = 0, updated_at = {NOW} where q.shard = 0": "CASE",
    f"""
    update onefold.schedule as s
    set next_tick = coalesce(:next_tick::bigint, s.next_tick), updated_at = {NOW}
    where s.shard = :shard::smallint returning s.name
    """: "CASE",
    f"update onefold.served_queue as s set settings = :settings::text, updated_at = {NOW}": "CASE",
    f"update onefold.api_key as k set revoked_at = {NOW} returning k.id": "CASE",
    # Others that it names.
    "update onefold.job as j set fence = clock_timestamp() where j.shard = 0": "VOLATILE",
    "delete from onefold.job as j where j.shard = 0 and j.run_at < random()": "VOLATILE",
    f"""
    with old as (select j.id from onefold.job as j where j.shard = 0 for update)
    update onefold.job as j set state = 1 where j.shard = 0 and j.run_at < {NOW}
    """: "CASE",
    "update onefold.job as j set result = to_jsonb(j.payload) where j.shard = 0": "column",
    f"""
    insert into onefold.job (shard) values (0)
    on conflict (shard) do update set updated_at = {NOW}
    """: "ON CONFLICT",
    "insert into onefold.job (shard) values ((select 1))": "subqueries",
    """
    insert into onefold.duplicate (shard, job_id)
    select 0, job.id from unnest(:id::uuid[]) as r (id)
    cross join lateral (select j.id from onefold.job as j where j.id = r.id limit 1) as job
    """: "lateral",
}  # fmt: skip


@pytest.fixture(scope="module")
def volatility(postgres_url: str) -> dict[str, Volatility]:
    """How PostgreSQL marks each function that is called, the least stable of its name."""
    names = sorted({name for path in FILES for name in functions_in(path.read_text())} | {"random"})
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        # `v` is greater than `s`, which is greater than `i`.
        rows = connection.execute(
            "select proname::text, max(provolatile::text) from pg_proc"
            " where pronamespace = 'pg_catalog'::regnamespace and proname = any(%s) group by 1",
            [names],
        ).fetchall()
    return dict(rows)


@pytest.mark.parametrize("text", REFUSED)
def test_the_rules_know_what_citus_refuses(text: str, volatility: dict[str, Volatility]) -> None:
    faults = refusals(text, volatility)

    assert faults
    assert all(REFUSED[text] in fault for fault in faults)


NOT_ON_CITUS = {"log_duplicates"}
"""Citus has a statement of its own instead."""


def test_citus_refuses_no_statement(volatility: dict[str, Volatility]) -> None:
    found = {path.stem: refusals(path.read_text(), volatility) for path in FILES}

    assert {name for name, faults in found.items() if faults} == NOT_ON_CITUS


def test_the_page_about_shards_distributes_every_table_that_has_them(
    postgres_url: str, postgres_schema: str
) -> None:
    with Onefold(postgres_url, schema=postgres_schema) as onefold:
        onefold.migrate()
    query = (
        "select table_name from information_schema.columns"
        " where table_schema = %s and column_name = 'shard'"
    )
    with psycopg.connect(postgres_url) as connection:
        tables = {row[0] for row in connection.execute(query, [postgres_schema]).fetchall()}

    assert set(DISTRIBUTED) == tables


def test_calls_for_different_shards_of_citus_do_not_share_a_commit(
    postgres_url: str, postgres_schema: str
) -> None:
    """One node that is away must not fail the calls for the others."""
    items = [prepare(NewJob("a", unique_key=str(n)), "", now=0) for n in range(100)]
    with Onefold(postgres_url, schema=postgres_schema) as onefold:
        onefold.migrate()
        alone = {enqueue_item(onefold.context, item, KEEP_HOLDER).group for item in items}
        onefold.context.database.sql = Sql("postgres", shards=4, distributed=True)
        spread = {enqueue_item(onefold.context, item, KEEP_HOLDER).group for item in items}

    assert (len(alone), len(spread)) == (1, 4)


def test_the_nodes_of_citus_receive_the_lock_timeout(postgres_url: str) -> None:
    """Citus sends them `set local`, and not a `set_config`."""

    def operation(_: Sql) -> Operation[Rows]:
        return (yield Statement("show", "select current_setting('lock_timeout')", {}))

    effort = Effort("", timedelta(0), lambda waited: DatabaseBusy("held", waited=waited))
    with Session.connect(postgres_url, autocommit=True) as session:
        transaction = PostgresTransaction(session, None, effort, write=True)
        rows = session.drive(transaction.run(operation, Sql("postgres", distributed=True)))

    assert rows == [("800ms",)]
    assert "set local lock_timeout = 800" in session.statements
