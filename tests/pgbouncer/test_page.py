"""The examples of the how-to page, through a real PgBouncer: tests/docs run them without one."""

from urllib.parse import urlsplit

from sybil import Document
from sybil.parsers.markdown import PythonCodeBlockParser

from tests.docs.pages import DOCS
from tests.faults.servers import url_as
from tests.fixtures.pgbouncer import PgBouncers


def test_the_examples_run_behind_it_and_leave_nothing(
    pgbouncers: PgBouncers, postgres_url: str, postgres_database: str
) -> None:
    # In a database of its own: sessions of other databases go their own way.
    pgbouncer = pgbouncers.start(postgres_url)
    dsn = url_as(pgbouncer.url, dbname=urlsplit(postgres_database).path.removeprefix("/"))
    page = DOCS / "how-to/run-behind-pgbouncer.md"
    document = Document.parse(str(page), PythonCodeBlockParser())
    document.namespace["dsn"] = dsn

    for example in document.examples():
        example.evaluate()

    left = pgbouncer.ask("select name from pg_prepared_statements", url=dsn)
    assert not any(left.values())
