"""The examples of the how-to page, through a real PgBouncer: tests/docs run them without one."""

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from sybil import Document
from sybil.parsers.markdown import PythonCodeBlockParser

from tests.docs.pages import DOCS
from tests.faults.servers import url_as
from tests.fixtures.pgbouncer import PgBouncer, PgBouncers


@pytest.fixture
def own(pgbouncers: PgBouncers, postgres_url: str) -> Iterator[tuple[PgBouncer, str]]:
    """One before an empty database, and the URL that leads there."""
    name = f"docs_{uuid4().hex}"
    pgbouncer = pgbouncers.start(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield pgbouncer, url_as(pgbouncer.url, dbname=name)
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def test_the_examples_run_behind_it_and_leave_nothing(own: tuple[PgBouncer, str]) -> None:
    pgbouncer, dsn = own
    page = DOCS / "how-to/run-behind-pgbouncer.md"
    document = Document.parse(str(page), PythonCodeBlockParser())
    document.namespace["dsn"] = dsn

    for example in document.examples():
        example.evaluate()

    left = pgbouncer.ask("select name from pg_prepared_statements", url=dsn)
    assert not any(left.values())
