"""What `within` refuses: no transaction, another database, the other colour, something else."""

import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import psycopg2
import psycopg_pool
import pytest

from onefold import NoTransaction, Onefold, WrongConnection
from tests.fixtures.colours import Dialect, Store
from tests.fixtures.connections import Effects

on_sqlite = pytest.mark.parametrize("dialect", ["sqlite"])
on_postgres = pytest.mark.parametrize("dialect", ["postgres"])
on_both = pytest.mark.parametrize("dialect", ["sqlite", "postgres"])


@on_sqlite
def test_sqlite_in_autocommit_without_a_transaction_is_refused(
    store: Store, dialect: Dialect, effects: Effects
) -> None:
    raw = sqlite3.connect(store.path, isolation_level=None)
    onefold = store.open()

    with pytest.raises(NoTransaction, match="Open a transaction around the call"):
        onefold.within(raw)

    raw.execute("begin")
    within = onefold.within(raw)
    within.enqueue("email")
    raw.execute("commit")
    with pytest.raises(NoTransaction):
        within.enqueue("email")
    raw.close()
    assert len(effects.jobs) == 1


@on_postgres
def test_psycopg_in_autocommit_without_a_transaction_is_refused(
    store: Store, dialect: Dialect, effects: Effects
) -> None:
    onefold = store.open()
    with psycopg.connect(store.url, autocommit=True) as raw:
        with pytest.raises(NoTransaction):
            onefold.within(raw)

        with raw.transaction():
            within = onefold.within(raw)
            within.enqueue("email")

        with pytest.raises(NoTransaction):
            within.enqueue("email")
    assert len(effects.jobs) == 1


@on_postgres
async def test_async_psycopg_in_autocommit_without_a_transaction_is_refused(
    store: Store, dialect: Dialect, effects: Effects
) -> None:
    onefold = store.open()
    async with await psycopg.AsyncConnection.connect(store.url, autocommit=True) as raw:
        with pytest.raises(NoTransaction):
            onefold.within(raw)

        async with raw.transaction():
            within = onefold.within(raw)
            await within.aenqueue("email")

        with pytest.raises(NoTransaction):
            await within.aenqueue("email")
    assert len(effects.jobs) == 1


@on_postgres
async def test_asyncpg_without_a_transaction_is_refused(
    store: Store, dialect: Dialect, effects: Effects
) -> None:
    onefold = store.open()
    raw = await asyncpg.connect(store.url)
    with pytest.raises(NoTransaction, match=r"asyncpg\.connection\.Connection has no open"):
        onefold.within(raw)

    async with raw.transaction():
        within = onefold.within(raw)
        await within.aenqueue("email")

    with pytest.raises(NoTransaction):
        await within.aenqueue("email")
    await raw.close()
    assert len(effects.jobs) == 1


@on_sqlite
def test_a_sync_connection_cannot_be_awaited_on_sqlite(store: Store, dialect: Dialect) -> None:
    raw = sqlite3.connect(store.path)

    with pytest.raises(WrongConnection, match="without the leading a"):
        _drive(store.open().within(raw).aenqueue("email"))

    raw.close()


@on_postgres
def test_a_sync_connection_cannot_be_awaited_on_postgres(store: Store, dialect: Dialect) -> None:
    with psycopg.connect(store.url) as raw:
        with pytest.raises(WrongConnection, match="without the leading a"):
            _drive(store.open().within(raw).aenqueue("email"))

        assert raw.execute("select 1").fetchone() == (1,), "the transaction is alive"


def _drive(coroutine: Any) -> None:
    """A coroutine that never awaits anything ends at the first step."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


@on_postgres
async def test_an_async_connection_cannot_be_used_without_awaiting(
    store: Store, dialect: Dialect
) -> None:
    onefold = store.open()
    async with await psycopg.AsyncConnection.connect(store.url) as raw:
        with pytest.raises(WrongConnection, match="with the leading a"):
            onefold.within(raw).enqueue("email")
        with (
            pytest.raises(WrongConnection, match="with the leading a"),
            onefold.within(raw).once("i", "k"),
        ):
            pytest.fail("entered")

    plain = await asyncpg.connect(store.url)
    async with plain.transaction():
        with pytest.raises(WrongConnection, match="with the leading a"):
            onefold.within(plain).enqueue("email")
        assert await plain.fetchval("select 1") == 1, "the transaction is alive"
    await plain.close()


@on_both
@pytest.mark.parametrize(
    "thing", [None, object(), "postgresql://", Onefold], ids=["none", "object", "url", "class"]
)
def test_something_else_is_refused_by_its_name(
    store: Store, dialect: Dialect, thing: object
) -> None:
    with pytest.raises(WrongConnection, match="is not a connection that within"):
        store.open().within(thing)


@on_both
def test_a_cursor_is_no_connection(store: Store, dialect: Dialect) -> None:
    raw = sqlite3.connect(":memory:")

    with pytest.raises(WrongConnection):
        store.open().within(raw.cursor())

    raw.close()


@on_both
def test_a_connection_of_the_other_database_system_is_refused(
    store: Store, dialect: Dialect, postgres_url: str, tmp_path: Path
) -> None:
    sqlite, postgres = sqlite3.connect(tmp_path / "other.db"), psycopg.connect(postgres_url)
    wrong = sqlite if dialect == "postgres" else postgres

    with pytest.raises(WrongConnection, match="this Onefold is on"):
        store.open().within(wrong)

    sqlite.close()
    postgres.close()


@on_sqlite
@pytest.mark.parametrize("where", ["other.db", ":memory:", ""])
def test_another_sqlite_file_is_refused(
    store: Store, dialect: Dialect, tmp_path: Path, where: str
) -> None:
    """Its commit would not cover the job."""
    path = tmp_path / where if where.endswith(".db") else where
    raw = sqlite3.connect(path)
    raw.execute("create table effect (number)")
    raw.execute("insert into effect values (1)")
    onefold = store.open()

    with pytest.raises(WrongConnection, match="its commit would not cover the job"):
        onefold.within(raw).enqueue("email")

    raw.commit()
    raw.close()
    assert len(onefold.find()) == 0


@on_sqlite
def test_the_same_file_by_another_name_is_accepted(
    store: Store, dialect: Dialect, tmp_path: Path
) -> None:
    (tmp_path / "linked.db").symlink_to(store.path)
    raw = sqlite3.connect(tmp_path / "linked.db")
    onefold = store.open()

    enqueued = onefold.within(raw).enqueue("email")
    raw.commit()
    raw.close()

    assert onefold.get(enqueued.id) is not None


@on_sqlite
def test_an_attached_file_is_not_the_connections_own(
    store: Store, dialect: Dialect, tmp_path: Path
) -> None:
    raw = sqlite3.connect(tmp_path / "main.db")
    raw.execute("attach ? as ours", [store.path])

    with pytest.raises(WrongConnection):
        store.open().within(raw).enqueue("email")

    raw.close()


@on_postgres
def test_another_postgres_database_is_refused_with_or_without_tables_of_ours(
    store: Store, dialect: Dialect, other_database: str
) -> None:
    onefold = store.open()
    for migrated in (False, True):
        if migrated:
            with Onefold(other_database, schema=store.schema) as elsewhere:
                elsewhere.migrate()
        with psycopg.connect(other_database) as raw:
            raw.execute("create table effect (number integer)")
            raw.execute("insert into effect values (1)")

            with pytest.raises(WrongConnection, match="which is not the one of this Onefold"):
                onefold.within(raw).enqueue("email")

            assert raw.execute("select number from effect").fetchall() == [(1,)], "still alive"
            raw.rollback()

    assert len(onefold.find()) == 0


@on_postgres
async def test_another_postgres_database_is_refused_to_the_async_drivers_too(
    store: Store, dialect: Dialect, other_database: str
) -> None:
    onefold = store.open()
    async with await psycopg.AsyncConnection.connect(other_database) as raw:
        with pytest.raises(WrongConnection):
            await onefold.within(raw).aenqueue("email")

    plain = await asyncpg.connect(other_database)
    async with plain.transaction():
        with pytest.raises(WrongConnection):
            await onefold.within(plain).aenqueue("email")
        assert await plain.fetchval("select 1") == 1, "still alive"
    await plain.close()


@on_postgres
def test_a_copy_of_the_database_is_refused(
    own_postgres: Any, store: Store, dialect: Dialect
) -> None:
    """It says that it is the same installation, and is not the same database."""
    with Onefold(own_postgres.url) as onefold:
        onefold.migrate()
    with psycopg.connect(own_postgres.url, dbname="template1", autocommit=True) as raw:
        raw.execute("create database copied template postgres")
    with (
        Onefold(own_postgres.url) as onefold,
        psycopg.connect(own_postgres.url, dbname="copied") as copied,
        pytest.raises(WrongConnection, match="'copied'"),
    ):
        onefold.within(copied).enqueue("email")


@on_postgres
def test_the_search_path_of_the_caller_does_not_matter(store: Store, dialect: Dialect) -> None:
    """Statements name their schema: another installation beside ours is not met by accident."""
    beside = f"{store.schema[:40]}_beside"
    onefold = store.open()
    with (
        Onefold(store.url, schema=beside) as other,
        psycopg.connect(store.url, options=f"-c search_path={beside}") as raw,
    ):
        other.migrate()

        ours = onefold.within(raw).enqueue("email", unique_key="k")
        theirs = other.within(raw).enqueue("email", unique_key="k")
        raw.commit()

        assert ours.inserted
        assert theirs.inserted
        assert other.get(ours.id) is None
        raw.execute(f'drop schema "{beside}" cascade'.encode())


@on_postgres
def test_one_onefold_serves_many_connections(store: Store, dialect: Dialect) -> None:
    onefold = store.open()
    with psycopg.connect(store.url) as one, psycopg.connect(store.url) as two:
        first = onefold.within(one).enqueue("email", unique_key="1")
        second = onefold.within(two).enqueue("email", unique_key="2")
        one.commit()
        two.rollback()

    assert onefold.get(first.id) is not None
    assert onefold.get(second.id) is None


@on_sqlite
def test_a_closed_connection_is_refused_on_sqlite(store: Store, dialect: Dialect) -> None:
    raw = sqlite3.connect(store.path)
    within = store.open().within(raw)
    raw.close()

    with pytest.raises(WrongConnection, match="is not open"):
        store.open().within(raw)
    with pytest.raises(WrongConnection, match="is not open"):
        within.enqueue("email")


@on_postgres
async def test_a_closed_connection_is_refused_on_postgres(store: Store, dialect: Dialect) -> None:
    onefold = store.open()
    sync, plain = psycopg.connect(store.url), await asyncpg.connect(store.url)
    awaited = await psycopg.AsyncConnection.connect(store.url)
    within = onefold.within(sync)
    sync.close()
    await awaited.close()
    await plain.close()

    with pytest.raises(WrongConnection, match="is not open"):
        within.enqueue("email")
    for raw in (sync, awaited, plain):
        with pytest.raises(WrongConnection, match="is not open"):
            onefold.within(raw)


@on_postgres
async def test_a_pool_or_a_transaction_is_no_connection(store: Store, dialect: Dialect) -> None:
    onefold = store.open()
    pool = psycopg_pool.ConnectionPool(store.url, min_size=0, max_size=1, open=True)
    with pytest.raises(WrongConnection, match=r"with pool\.connection\(\) as connection"):
        onefold.within(pool)
    with (
        pool.connection() as connection,
        connection.transaction() as block,
        pytest.raises(WrongConnection, match="is a transaction"),
    ):
        onefold.within(block)
    pool.close()
    async with asyncpg.create_pool(store.url, min_size=0) as other:
        with pytest.raises(WrongConnection, match=r"async with pool\.acquire\(\) as connection"):
            onefold.within(other)


@on_postgres
async def test_a_proxy_that_was_given_back_to_its_pool_is_refused(
    store: Store, dialect: Dialect
) -> None:
    onefold = store.open()
    async with asyncpg.create_pool(store.url, min_size=0, max_size=1) as pool:
        async with pool.acquire() as connection, connection.transaction():
            within = onefold.within(connection)
            await within.aenqueue("email")

        with pytest.raises(WrongConnection, match="is not open"):
            await within.aenqueue("email")
        with pytest.raises(WrongConnection, match="is not open"):
            onefold.within(connection)


@on_postgres
def test_psycopg2_by_itself_is_refused_with_what_to_do(store: Store, dialect: Dialect) -> None:
    raw = psycopg2.connect(store.url)

    with pytest.raises(WrongConnection, match="through SQLAlchemy and Django only"):
        store.open().within(raw)

    raw.close()
