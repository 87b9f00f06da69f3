"""A PostgreSQL whose tables are missing, and what is imported when."""

import subprocess
import sys
from collections.abc import Iterator

import asyncpg
import psycopg
import pytest

from onefold import Onefold, SchemaOutdated, WrongConnection
from onefold.operations.migrations import latest
from tests.fixtures.patience import HANG


@pytest.fixture
def onefold(postgres_url: str, postgres_schema: str) -> Iterator[Onefold]:
    """On a schema that nobody has migrated."""
    with Onefold(postgres_url, schema=postgres_schema) as onefold:
        yield onefold


def test_the_error_names_the_command_and_leaves_the_transaction_alive(
    onefold: Onefold, postgres_url: str, postgres_schema: str
) -> None:
    with psycopg.connect(postgres_url) as raw:
        within = onefold.within(raw)
        raw.execute("create temporary table effect (number integer)")

        with pytest.raises(SchemaOutdated, match="Run `onefold migrate") as caught:
            within.enqueue("email")

        assert raw.execute("select count(*) from effect").fetchone() == (0,)
        raw.rollback()
        # The same objects work once the schema is there.
        onefold.migrate()
        job = within.enqueue("email")
        raw.commit()
    assert onefold.get(job.id) is not None
    assert (caught.value.found, caught.value.needed) == (0, latest("postgres"))
    assert postgres_schema in f"{caught.value}"


async def test_the_async_drivers_are_told_the_same(onefold: Onefold, postgres_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url) as raw:
        with pytest.raises(SchemaOutdated):
            await onefold.within(raw).aenqueue("email")
    plain = await asyncpg.connect(postgres_url)
    async with plain.transaction():
        with pytest.raises(SchemaOutdated):
            await onefold.within(plain).aenqueue("email")
        assert await plain.fetchval("select 1") == 1
    await plain.close()


def test_a_fresh_schema_in_between_is_noticed_by_new_connections(
    onefold: Onefold, postgres_url: str, postgres_schema: str
) -> None:
    """Dropped and made anew, it is another installation; an old Onefold must not mix the two."""
    onefold.migrate()
    onefold.enqueue("email")
    with psycopg.connect(postgres_url) as raw:
        raw.execute(f"drop schema {postgres_schema} cascade".encode())
    with Onefold(postgres_url, schema=postgres_schema) as fresh:
        fresh.migrate()
        with psycopg.connect(postgres_url) as raw:
            assert fresh.within(raw).enqueue("email").inserted
            with pytest.raises(WrongConnection):
                onefold.within(raw).enqueue("email")


PROGRAM = """
import sys
from onefold import Onefold, Unique, NewJob
import onefold.claims

{body}

known = {{"psycopg", "psycopg_pool", "psycopg2", "asyncpg", "aiosqlite", "sqlalchemy", "django"}}
drivers = sorted(set(sys.modules) & known)
print(*drivers)
"""


BODIES = {
    "psycopg psycopg_pool": """
onefold = Onefold({postgres!r}, schema={schema!r})
onefold.migrate()
import psycopg
with psycopg.connect({postgres!r}) as connection:
    onefold.within(connection).enqueue("email")
onefold.close()
""",
    "sqlalchemy": """
from sqlalchemy import create_engine
onefold = Onefold({sqlite!r})
engine = create_engine({sqlite!r})
with engine.begin() as connection:
    onefold.within(connection).enqueue("email")
engine.dispose()
onefold.close()
""",
    "django": """
import django
from django.conf import settings
default = {{"ENGINE": "django.db.backends.sqlite3", "NAME": {path!r}}}
settings.configure(DATABASES={{"default": default}})
django.setup()
from django.db import connection, transaction
onefold = Onefold({sqlite!r})
with transaction.atomic():
    onefold.within(connection).enqueue("email")
assert len(onefold.find()) == 1
connection.close()
onefold.close()
""",
}
"""By what they import of drivers and libraries, and nothing else."""


@pytest.mark.parametrize("drivers", BODIES)
def test_using_one_library_imports_no_other(
    postgres_url: str, postgres_schema: str, sqlite_url: str, drivers: str
) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    body = BODIES[drivers].format(
        postgres=postgres_url, schema=postgres_schema, sqlite=sqlite_url, path=path
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM.format(body=body)],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG,
    )
    assert done.stdout.split() == drivers.split()
