"""`is_unique_violation`: told by the evidence that each driver leaves."""

import sqlite3
from contextlib import suppress

import psycopg2
import pytest

from onefold import is_unique_violation
from tests.fixtures.colours import Store
from tests.fixtures.connection import Kind
from tests.fixtures.connections import with_kinds
from tests.fixtures.proof import every_kind

STATEMENTS = (
    "create table {0} (id integer primary key, name varchar(9) unique not null)",
    "insert into {0} values (1, 'a')",
)
PRIMARY = "insert into {0} values (1, 'b')"
UNIQUE = "insert into {0} values (2, 'a')"
MISSING = "insert into {0} (id) values (3)"


@every_kind
@pytest.mark.parametrize(
    ("statement", "expected"), [(PRIMARY, True), (UNIQUE, True), (MISSING, False)]
)
@with_kinds(
    "sqlite3-legacy", "aiosqlite-legacy", "psycopg-tuples", "asyncpg-plain",
    "sqlalchemy-pysqlite-session", "sqlalchemy-psycopg-session", "sqlalchemy-psycopg2-session",
    "django-sqlite", "django-postgres",
)  # fmt: skip
async def test_an_error_of_any_library_is_told_by_what_the_driver_says(
    kind: Kind, store: Store, statement: str, *, expected: bool
) -> None:
    table = store.table("violated")
    connection = await kind.connect(store)
    await connection.begin()
    for one in STATEMENTS:
        await connection.execute(one.format(table))

    with pytest.raises(Exception, match=r"(?i)unique|null") as caught:
        await connection.execute(statement.format(table))

    await connection.rollback()
    assert is_unique_violation(caught.value) == expected


def test_psycopg2_needs_no_library_around_it(postgres_url: str) -> None:
    connection = psycopg2.connect(postgres_url)
    with connection.cursor() as cursor, pytest.raises(psycopg2.IntegrityError) as caught:
        cursor.execute("create temp table v (id integer unique); insert into v values (1), (1)")
    connection.close()

    assert is_unique_violation(caught.value)


def test_what_was_raised_from_a_violation_is_one_and_what_merely_came_after_is_none() -> None:
    violation = sqlite3.IntegrityError()
    violation.sqlite_errorcode = 2067
    booked, other, circle = LookupError(), ValueError(), ValueError()
    booked.__cause__ = violation
    other.__context__ = violation
    with suppress(ValueError):
        circle.__cause__ = circle

    assert is_unique_violation(booked)
    assert not is_unique_violation(other)
    assert not is_unique_violation(circle)
