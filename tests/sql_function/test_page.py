"""The SQL of the how-to page runs, in a new database."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from onefold import Onefold
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "how-to/enqueue-from-sql.md"


@pytest.fixture
def dsn(postgres_url: str) -> Iterator[str]:
    name = f"page_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def test_the_sql_of_the_page_runs(dsn: str) -> None:
    with Onefold(dsn) as onefold:
        onefold.migrate()
        with psycopg.connect(dsn, autocommit=True) as connection:
            for text in blocks(PAGE, "sql"):
                connection.execute(text.encode())
            connection.execute("insert into invoice values (8)")
        kinds = sorted(job.kind for job in onefold.find())
    assert kinds == ["digest", "invoice.email", "invoice.index"]


def test_the_page_names_every_argument(dsn: str) -> None:
    with Onefold(dsn) as onefold:
        onefold.migrate()
    with psycopg.connect(dsn) as connection:
        cursor: psycopg.Cursor[Any] = connection.execute(
            "select distinct unnest(p.proargnames) from pg_proc as p"
            " where p.oid::regprocedure::text like 'onefold.onefold_enqueue(%'"
        )
        names = {name for (name,) in cursor.fetchall()}
    page = PAGE.read_text()
    assert {"kind", "clock", "mismatch"} < names
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
