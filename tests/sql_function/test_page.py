"""The SQL of the how-to page runs, in a new database."""

from typing import Any

import psycopg

from onefold import Onefold
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "how-to/enqueue-from-sql.md"


def test_the_sql_of_the_page_runs(postgres_database: str) -> None:
    with Onefold(postgres_database) as onefold:
        onefold.migrate()
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            for text in blocks(PAGE, "sql"):
                connection.execute(text.encode())
            connection.execute("insert into invoice values (8)")
        kinds = sorted(job.kind for job in onefold.find())
    assert kinds == ["digest", "invoice.email", "invoice.index"]


def test_the_page_names_every_argument(postgres_database: str) -> None:
    with Onefold(postgres_database) as onefold:
        onefold.migrate()
    with psycopg.connect(postgres_database) as connection:
        cursor: psycopg.Cursor[Any] = connection.execute(
            "select distinct unnest(p.proargnames) from pg_proc as p"
            " where p.oid::regprocedure::text like 'onefold.onefold_enqueue(%'"
        )
        names = {name for (name,) in cursor.fetchall()}
    page = PAGE.read_text()
    assert {"kind", "clock", "mismatch"} < names
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
