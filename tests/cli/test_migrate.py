import json
import sqlite3
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from onefold import Onefold, ShardsDiffer
from tests.cli.conftest import Run, run_apart
from tests.fixtures.place import Place
from tests.fixtures.proof import both_databases


def test_a_sqlite_file_is_migrated_once(onefold_command: Run, tmp_path: Path) -> None:
    first = onefold_command("migrate", "--database", "sqlite:///app.db")
    second = onefold_command("migrate", ONEFOLD_DATABASE="sqlite:///app.db")

    assert (first.returncode, second.returncode) == (0, 0)
    assert "Applied 0001 initial." in first.stdout
    assert "now up to date" in first.stdout
    assert "Applied" not in second.stdout
    assert "up to date" in second.stdout
    assert (tmp_path / "app.db").exists()


def test_the_printed_sql_makes_a_sqlite_file_with_its_shards(
    onefold_command: Run, tmp_path: Path
) -> None:
    path = tmp_path / "app.db"
    where = ("--database", "sqlite:///elsewhere.db")
    printed = onefold_command("migrate", *where, "--shards", "4", "--sql")

    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(printed.stdout)

    with Onefold(f"sqlite:///{path}", shards=2) as onefold, pytest.raises(ShardsDiffer):
        onefold.enqueue("email")
    with Onefold(f"sqlite:///{path}", shards=4) as onefold:
        assert onefold.migrate() == []
        assert onefold.enqueue("email", unique_key="k").inserted
    assert not (tmp_path / "elsewhere.db").exists()


def test_the_printed_sql_makes_a_postgres_schema(
    onefold_command: Run, postgres_url: str, postgres_schema: str
) -> None:
    printed = onefold_command(
        "migrate", "--database", "postgresql://", "--schema", postgres_schema, "--sql"
    )

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(printed.stdout.encode())

    with Onefold(postgres_url, schema=postgres_schema) as onefold:
        assert onefold.migrate() == []
        assert onefold.enqueue("email", unique_key="k").inserted


def test_a_postgres_schema_is_migrated_once_with_its_shards(
    onefold_command: Run, postgres_url: str, postgres_schema: str
) -> None:
    arguments = ("migrate", "--database", postgres_url, "--schema", postgres_schema)

    first = onefold_command(*arguments, "--shards", "4")
    again = onefold_command(*arguments)
    other = onefold_command(*arguments, "--shards", "2")

    assert (first.returncode, again.returncode, other.returncode) == (0, 0, 2)
    assert "Applied 0001 initial." in first.stdout
    assert "Applied" not in again.stdout
    assert "has 4 shards, and this process requests 2" in other.stderr
    assert "Traceback" not in other.stderr
    with Onefold(postgres_url, schema=postgres_schema, shards=4) as onefold:
        assert onefold.enqueue("email").inserted


@both_databases
def test_tables_of_an_unreleased_version_are_emptied_after_a_question(
    onefold_command: Run, place: Place
) -> None:
    with place.open() as onefold:
        onefold.enqueue("email", unique_key="k")
    with place.connection() as connection:
        connection.execute(f"create table {place.effects} (note text)")
        (text,) = connection.execute(f"select value from {place.table('meta')}").fetchone()
        older = json.dumps({**json.loads(text), "digests": ["of an older copy"]})
        connection.execute(f"update {place.table('meta')} set value = '{older}'")
        connection.execute(f"alter table {place.table('job')} drop column pushed")
    before = place.contents(place.effects)
    where = ("--database", place.url, "--schema", place.schema)

    for command in (("jobs", "list"), ("migrate",), ("doctor",), ("serve",)):
        done = onefold_command(*command, *where)
        assert done.returncode == 1
        assert "made by an unreleased version" in done.stdout + done.stderr
        assert "--fresh`" in done.stdout + done.stderr
    assert onefold_command("migrate", *where, "--fresh", stdin="n\n").returncode == 1
    assert place.contents(place.effects) == before

    done = onefold_command("migrate", *where, "--fresh", stdin="y\n")

    assert "Delete all jobs" in done.stdout
    assert "Applied 0001 initial." in done.stdout
    assert place.rows("select * from {job}") == place.rows(f"select * from {place.effects}") == []
    with place.open() as onefold:
        assert onefold.enqueue("email", unique_key="k").inserted
    assert "exclude each other" in onefold_command("migrate", "--fresh", "--sql").stderr


def test_a_number_of_shards_that_cannot_be_is_refused(onefold_command: Run, tmp_path: Path) -> None:
    for number in ("0", "4097"):
        for more in ((), ("--sql",)):
            arguments = ("migrate", "--database", "sqlite:///app.db", "--shards", number, *more)
            done = onefold_command(*arguments)
            assert done.returncode == 2
            assert "from 1 to 4096" in done.stderr
    assert not (tmp_path / "app.db").exists()


def test_two_printed_scripts_are_two_installations(onefold_command: Run) -> None:
    arguments = ("migrate", "--database", "sqlite:///app.db", "--sql")

    assert onefold_command(*arguments).stdout != onefold_command(*arguments).stdout


def test_the_sql_for_postgres_is_printed_without_its_driver() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "sys.argv = ['onefold', 'migrate', '--database', 'postgresql://', '--sql']\n"
        "from onefold.cli import main; main()"
    )

    done = run_apart(sys.executable, "-c", program)

    assert done.returncode == 0
    assert done.stdout.startswith("begin;\n")
    assert done.stdout.endswith("commit;\n")


def test_a_user_without_rights_is_told_so_in_a_sentence(
    onefold_command: Run, postgres_url: str, postgres_schema: str
) -> None:
    role = f"{postgres_schema}_role"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create role {role} login".encode())
        try:
            done = onefold_command(
                "migrate",
                "--database",
                postgres_url,
                "--schema",
                postgres_schema,
                PGOPTIONS=f"-c role={role}",
            )
        finally:
            connection.execute(f"drop role {role}".encode())

    assert done.returncode == 1
    assert "may not use" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_rights_that_the_docs_ask_for_are_enough(
    postgres_url: str, postgres_schema: str
) -> None:
    role = sql.Identifier(f"{postgres_schema}_role")
    schema = sql.Identifier(postgres_schema)
    with Onefold(postgres_url, schema=postgres_schema) as owner:
        owner.migrate()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for statement in (
            "create role {role}",
            "grant usage on schema {schema} to {role}",
            "grant select, insert, update, delete on all tables in schema {schema} to {role}",
        ):
            connection.execute(sql.SQL(statement).format(role=role, schema=schema))
        try:
            options = f"options=-c%20role%3D{postgres_schema}_role"
            separator = "&" if "?" in postgres_url else "?"
            with Onefold(f"{postgres_url}{separator}{options}", schema=postgres_schema) as onefold:
                use_everything(onefold)
        finally:
            connection.execute(sql.SQL("drop owned by {role}").format(role=role))
            connection.execute(sql.SQL("drop role {role}").format(role=role))


def use_everything(onefold: Onefold) -> None:
    for _ in range(2):
        onefold.enqueue("email", unique_key="k", idempotency_key="p")
    (job,) = onefold.deliveries.take(worker="w", lease=timedelta(seconds=60))
    onefold.deliveries.heartbeat([job], lease=timedelta(seconds=60))
    onefold.deliveries.finish([job])
    onefold.replay(job.id, fresh=True)
    onefold.cancel(job.id)
    with onefold.once("import", "x"), onefold.lock("y"):
        pass
    onefold.deliveries.rescue()
    onefold.deliveries.prune()
    onefold.deliveries.sweep()
    onefold.deliveries.fold()
    onefold.delete(job.id)
    onefold.keys.erase(key="p")
