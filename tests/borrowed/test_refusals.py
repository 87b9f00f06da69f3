"""What `within` refuses: no transaction, another database, the other colour, something else."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import psycopg2
import psycopg_pool
import pytest
from django.db import DatabaseError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from onefold import NoTransaction, Onefold, WrongConnection
from tests.fixtures.colours import Coloured, Dialect, Store
from tests.fixtures.connection import Kind
from tests.fixtures.connections import PLAIN, Effects, with_kinds
from tests.fixtures.sqlalchemy_connections import engine_of

on_sqlite = pytest.mark.parametrize("dialect", ["sqlite"])
on_postgres = pytest.mark.parametrize("dialect", ["postgres"])
ONE_OF_EACH = (
    "sqlite3-legacy", "aiosqlite-legacy", "psycopg-tuples", "psycopg-async-tuples",
    "asyncpg-plain", "sqlalchemy-psycopg2-session", "sqlalchemy-async-asyncpg-session",
    "django-postgres", "django-sqlite",
)  # fmt: skip
on_both = pytest.mark.parametrize("dialect", ["sqlite", "postgres"])


@with_kinds(
    "sqlite3-begin", "aiosqlite-begin", "psycopg-block", "psycopg-async-block", "asyncpg-plain",
    "django-sqlite", "django-postgres",
)  # fmt: skip
async def test_a_connection_without_a_transaction_is_refused(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection = await kind.connect(store)
    with pytest.raises(NoTransaction, match="Open a transaction around the call"):
        onefold.within(connection.raw)

    await connection.begin()
    within = onefold.within(connection.raw)
    await within.enqueue("email")
    await connection.commit()

    with pytest.raises(NoTransaction, match="has no open"):
        await within.enqueue("email")
    assert len(effects.jobs) == 1


@with_kinds(*ONE_OF_EACH)
async def test_the_other_colour_is_refused(kind: Kind, store: Store) -> None:
    connection = await kind.connect(store)
    await connection.begin()
    within: Any = store.open().within(connection.raw)

    if kind.colour == "sync":
        with pytest.raises(WrongConnection, match="without the leading a"):
            await within.aenqueue("email")
    else:
        with pytest.raises(WrongConnection, match="with the leading a"):
            within.enqueue("email")
        with pytest.raises(WrongConnection, match="with the leading a"), within.once("i", "k"):
            pytest.fail("entered")
    assert await connection.fetch("select 1") == [(1,)], "the transaction is alive"


# A session and a connection of Django's open another one at their next use.
@with_kinds(*(kind.name for kind in PLAIN), "aiosqlite-legacy", "asyncpg-pool")
async def test_a_closed_connection_is_refused(kind: Kind, store: Store, onefold: Coloured) -> None:
    """So is one that was given back to its pool."""
    connection = await kind.open(store)
    await connection.begin()
    within = onefold.within(connection.raw)
    await connection.close()

    with pytest.raises(WrongConnection, match="is not open"):
        await within.enqueue("email")
    with pytest.raises(WrongConnection, match="is not open"):
        onefold.within(connection.raw)


@with_kinds(*(name for name in ONE_OF_EACH if "sqlite" not in name))
async def test_another_database_is_refused_with_or_without_tables_of_ours(
    kind: Kind, store: Store, onefold: Coloured, postgres_database: str
) -> None:
    """Its commit would not cover the job."""
    for migrated in (False, True):
        if migrated:
            with Onefold(postgres_database, schema=store.schema) as elsewhere:
                elsewhere.migrate()
        connection = await kind.open(Store("postgres", postgres_database))
        await connection.begin()

        with pytest.raises(WrongConnection, match="which is not the one of this Onefold"):
            await onefold.within(connection.raw).enqueue("email")

        assert await connection.fetch("select 1") == [(1,)], "the transaction is alive"
        await connection.close()

    assert len(await onefold.find()) == 0


@on_both
def test_something_else_is_refused_by_its_name(store: Store, dialect: Dialect) -> None:
    raw = sqlite3.connect(":memory:")
    for thing in (None, object(), "postgresql://", Onefold, raw.cursor()):
        with pytest.raises(WrongConnection, match="is not a connection that within"):
            store.open().within(thing)
    raw.close()


@on_both
def test_a_connection_or_an_engine_of_another_database_system_is_refused(
    store: Store, dialect: Dialect, postgres_url: str, sqlite_url: str
) -> None:
    other = Store("sqlite", sqlite_url)
    if dialect == "sqlite":
        other = Store("postgres", postgres_url)
    engine = engine_of(other, "psycopg" if dialect == "sqlite" else "pysqlite")
    with other.place.connection() as connection, Session(engine) as session:
        for wrong in (connection, session):
            with pytest.raises(WrongConnection, match="this Onefold is on"):
                store.open().within(wrong)
    engine.dispose()


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
    # Nor is a file of another connection that has ours beside it.
    with closing(sqlite3.connect(tmp_path / "main.db")) as raw:
        raw.execute("attach ? as ours", [store.path])
        with pytest.raises(WrongConnection):
            onefold.within(raw).enqueue("email")
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
async def test_a_pool_or_a_transaction_or_psycopg2_by_itself_is_no_connection(
    store: Store, dialect: Dialect
) -> None:
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
    with (
        closing(psycopg2.connect(store.url)) as raw,
        pytest.raises(WrongConnection, match="through SQLAlchemy and Django only"),
    ):
        onefold.within(raw)


@with_kinds(
    "sqlalchemy-psycopg-connection", "sqlalchemy-pysqlite-recipe", "django-postgres",
    "django-sqlite",
)  # fmt: skip
async def test_a_driver_error_is_the_librarys_as_its_caller_expects(
    kind: Kind, store: Store, onefold: Coloured
) -> None:
    connection, table = await kind.connect(store), store.table("job")
    await connection.begin()
    await connection.execute(f"alter table {table} rename to {table.split('.')[-1]}_away")
    await connection.savepoint()
    with pytest.raises((DBAPIError, DatabaseError)):
        await onefold.within(connection.raw).enqueue("email")
    await connection.rollback_to_savepoint()
    await connection.rollback()

    await connection.begin()
    assert (await onefold.within(connection.raw).enqueue("email")).inserted
    await connection.commit()
