"""A session of PostgreSQL goes from client to client: nothing of ours may stay on it."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import asyncpg
import psycopg
import pytest

from onefold import AlreadyEnqueued, NewJob
from onefold.app.doctor import findings
from onefold.claims import Won
from tests.fixtures.pgbouncer import PgBouncer
from tests.pgbouncer.places import PooledPlace

LEASE = timedelta(minutes=1)

# What PgBouncer itself sets, so that each client finds its own. A setting that was set to what it
# was before is no matter: asyncpg does that to `jit` while it learns the type of an array.
KEPT_BY_PGBOUNCER = (
    "'application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings'"
)
LEFT_BEHIND = {
    "settings": "select name, setting from pg_settings where source = 'session'"
    f" and setting <> reset_val and name not in ({KEPT_BY_PGBOUNCER})",
    "prepared statements": "select name from pg_prepared_statements",
    "advisory locks": "select classid, objid from pg_locks"
    " where locktype = 'advisory' and pid = pg_backend_pid()",
    "channels": "select pg_listening_channels()",
    "cursors": "select name from pg_cursors where is_holdable",
    "temporary tables": "select pg_my_temp_schema() where pg_my_temp_schema() <> 0",
}


def test_each_transaction_of_a_client_has_another_session(pgbouncer: PgBouncer) -> None:
    # It opens no more of them than were needed at once.
    pgbouncer.ask("select 1")
    with psycopg.connect(pgbouncer.url, autocommit=True, prepare_threshold=None) as client:
        processes = [
            client.execute("select pg_backend_pid()").fetchone() for _ in range(2 * pgbouncer.pool)
        ]

    assert len(set(processes)) == pgbouncer.pool
    assert all(one != another for one, another in pairwise(processes))


def test_nothing_is_left_on_any_session(pgbouncer: PgBouncer, place: PooledPlace) -> None:
    make_every_call(place)
    asyncio.run(make_awaited_calls(place))

    for what, query in LEFT_BEHIND.items():
        found = pgbouncer.ask(query)
        assert len(found) == pgbouncer.pool
        assert not any(found.values()), what


def make_every_call(place: PooledPlace) -> None:
    """Often enough for psycopg to prepare what it may, and through every end of a transaction."""
    with place.open() as onefold, place.connection() as connection:
        for number in range(3 * 6):
            onefold.enqueue("mail", unique_key=f"{number}", idempotency_key=f"{number}")
            onefold.enqueue_many([NewJob("mail", unique_key="k", unique_while="queued")] * 2)
            with pytest.raises(AlreadyEnqueued):
                onefold.enqueue("mail", unique_key=f"{number}", on_duplicate="raise")
            taken = onefold.deliveries.take(worker="w", limit=2, lease=LEASE)
            onefold.deliveries.heartbeat(taken, lease=LEASE)
            onefold.deliveries.finish(taken)
            with onefold.once("import", f"{number}"), onefold.lock(f"{number}"):
                onefold.find(kind="mail")
            connection.execute("begin")
            within = onefold.within(connection)
            within.enqueue("mail", unique_key=f"within {number}")
            assert isinstance(within.claim("pay", f"{number}"), Won)
            connection.execute("commit" if number % 2 else "rollback")
        onefold.deliveries.rescue()
        onefold.deliveries.prune()
        onefold.deliveries.sweep()
        onefold.deliveries.fold()


async def make_awaited_calls(place: PooledPlace) -> None:
    """The other colour, and the other driver; one call is given up halfway."""
    connection = await asyncpg.connect(place.url, statement_cache_size=0)
    async with place.open() as onefold:
        for number in range(3 * 6):
            await onefold.aenqueue("mail", unique_key=f"awaited {number}")
            given_up = asyncio.ensure_future(onefold.aenqueue("mail"))
            await asyncio.sleep(0)
            given_up.cancel()
            async with connection.transaction():
                within = onefold.within(connection)
                await within.aenqueue("mail", unique_key=f"asyncpg {number}")
                assert isinstance(await within.aclaim("pay", f"asyncpg {number}"), Won)
    await connection.close()


def test_the_doctor_finds_the_pooler(place: PooledPlace) -> None:
    with place.open() as onefold:
        found = {finding.check: finding for finding in findings(onefold.context)}

    assert found["wake-up"].level == "warning"
    assert "pooler in transaction mode" in found["wake-up"].message
