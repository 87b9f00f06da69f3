"""`is_unique_violation`: told by the evidence that each driver leaves."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
from django.db import IntegrityError, connections
from sqlalchemy.exc import IntegrityError as SqlalchemyIntegrityError

from onefold import is_unique_violation
from tests.fixtures.django_connections import add_database, database_settings, remove_database

if TYPE_CHECKING:
    from tests.fixtures.colours import Store

STATEMENTS = (
    "create table {0} (id integer primary key, name text unique not null)",
    "insert into {0} values (1, 'a')",
)
PRIMARY = "insert into {0} values (1, 'b')"
UNIQUE = "insert into {0} values (2, 'a')"
MISSING = "insert into {0} (id) values (3)"


@pytest.fixture
def table() -> str:
    return f"t{uuid4().hex}"


@pytest.mark.parametrize(
    ("statement", "expected"), [(PRIMARY, True), (UNIQUE, True), (MISSING, False)]
)
def test_of_sqlite3(statement: str, *, expected: bool) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        for one in STATEMENTS:
            connection.execute(one.format("t"))
        with pytest.raises(sqlite3.IntegrityError) as caught:
            connection.execute(statement.format("t"))

    assert is_unique_violation(caught.value) == expected


@pytest.mark.parametrize(("statement", "expected"), [(UNIQUE, True), (MISSING, False)])
@pytest.mark.parametrize("driver", [psycopg, psycopg2])
def test_of_psycopg(
    postgres_url: str, table: str, driver: Any, statement: str, *, expected: bool
) -> None:
    with closing(driver.connect(postgres_url)) as connection, connection.cursor() as cursor:
        for one in STATEMENTS:
            cursor.execute(one.format(table))
        with pytest.raises(driver.IntegrityError) as caught:
            cursor.execute(statement.format(table))

    assert is_unique_violation(caught.value) == expected


@pytest.mark.parametrize(("statement", "expected"), [(UNIQUE, True), (MISSING, False)])
def test_of_asyncpg(postgres_url: str, table: str, statement: str, *, expected: bool) -> None:
    async def raised() -> BaseException | None:
        connection = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                for one in (*STATEMENTS, statement):
                    await connection.execute(one.format(table))
        except asyncpg.PostgresError as error:
            return error
        finally:
            await connection.close()
        return None

    error = asyncio.run(raised())

    assert error is not None
    assert is_unique_violation(error) == expected


@pytest.mark.parametrize("library", ["sqlite", "psycopg", "psycopg2"])
@pytest.mark.parametrize(("statement", "expected"), [(UNIQUE, True), (MISSING, False)])
def test_of_sqlalchemy(
    postgres_url: str, table: str, library: str, statement: str, *, expected: bool
) -> None:
    url = postgres_url.replace("postgresql", f"postgresql+{library}", 1)
    engine = sqlalchemy.create_engine("sqlite://" if library == "sqlite" else url)
    with engine.connect() as connection:
        for one in STATEMENTS:
            connection.exec_driver_sql(one.format(table))
        with pytest.raises(SqlalchemyIntegrityError) as caught:
            connection.exec_driver_sql(statement.format(table))
    engine.dispose()

    assert is_unique_violation(caught.value) == expected


@pytest.mark.parametrize(("statement", "expected"), [(UNIQUE, True), (MISSING, False)])
def test_of_django(store: Store, table: str, statement: str, *, expected: bool) -> None:
    alias = add_database(database_settings(store))
    with connections[alias].cursor() as cursor:
        for one in STATEMENTS:
            cursor.execute(one.format(table))
        with pytest.raises(IntegrityError) as caught:
            cursor.execute(statement.format(table))
    remove_database(alias)

    assert is_unique_violation(caught.value) == expected


def test_what_was_raised_from_a_violation_is_one() -> None:
    class AlreadyBooked(Exception):
        pass

    violation = sqlite3.IntegrityError()
    violation.sqlite_errorcode = 2067
    booked = AlreadyBooked()
    booked.__cause__ = violation

    assert is_unique_violation(booked)


def test_what_merely_came_after_a_violation_is_none() -> None:
    violation = sqlite3.IntegrityError()
    violation.sqlite_errorcode = 2067
    other = ValueError()
    other.__context__ = violation

    assert not is_unique_violation(other)


def test_an_error_that_is_its_own_cause_is_looked_at_once() -> None:
    error = ValueError()
    with suppress(ValueError):
        error.__cause__ = error

    assert not is_unique_violation(error)
