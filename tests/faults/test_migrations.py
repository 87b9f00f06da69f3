"""Migrations: applied once whoever asks, refused by name where missing, apart by schema."""

import json
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from onefold import DatabaseBusy, Onefold, SchemaOutdated, SchemaTooNew
from onefold.operations import migrations
from onefold.operations.migrations import latest
from onefold.operations.statement import Dialect
from tests.faults.callers import Caller, MakeCaller
from tests.faults.servers import PATIENCE, until
from tests.faults.together import at_once
from tests.fixtures.place import Place

PROCESSES = 6

MIGRATE = """
    import sys
    from onefold import Onefold
    onefold = Onefold(sys.argv[1], schema=sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    print(len(onefold.migrate()), onefold.enqueue("mail", unique_key="k").duplicate)
"""


def change_identity(connection: psycopg.Connection, schema: str, members: dict[str, int]) -> None:
    """Change what the installation of a schema says of itself."""
    connection.execute(
        sql.SQL("update {} set value = value::jsonb || %s::jsonb where name = 'identity'").format(
            sql.Identifier(schema, "meta")
        ),
        [json.dumps(members)],
    )


class TestAtOnce:
    @pytest.mark.prove
    def test_concurrent_migrations_of_a_schema_apply_once(
        self, postgres_url: str, postgres_schema: str
    ) -> None:
        said = at_once(MIGRATE, [(postgres_url, postgres_schema)] * PROCESSES)

        applied = sorted(int(number) for number, _ in said)
        assert applied == [0, 0, 0, 0, 0, latest("postgres")]
        assert [duplicate for _, duplicate in said].count("False") == 1


class TestOutdated:
    @pytest.fixture
    def caller(self, url: str, postgres_schema: str, make_caller: MakeCaller) -> Caller:
        return make_caller(Onefold(url, schema=postgres_schema))

    @pytest.fixture
    def url(self, postgres_url: str) -> str:
        return f"{postgres_url}{'&' if '?' in postgres_url else '?'}password=hush"

    def test_a_database_without_tables_is_refused_with_the_command_until_it_is_migrated(
        self, caller: Caller
    ) -> None:
        with pytest.raises(SchemaOutdated, match="onefold migrate") as caught:
            caller("enqueue", "mail")
        assert "has no Onefold tables" in str(caught.value)
        assert "hush" not in str(caught.value)
        assert (caught.value.found, caught.value.needed) == (0, latest("postgres"))

        assert len(caller("migrate")) == latest("postgres")
        assert caller("enqueue", "mail").inserted
        assert caller("migrate") == []

    def test_an_old_schema_is_refused_with_the_command(
        self, caller: Caller, observer: psycopg.Connection, migrated: str
    ) -> None:
        change_identity(observer, migrated, {"version": 0})

        with pytest.raises(SchemaOutdated, match=f"onefold migrate .*{migrated}"):
            caller("enqueue", "mail")

    def test_a_half_migration_leaves_nothing(
        self, postgres_url: str, observer: psycopg.Connection, postgres_schema: str
    ) -> None:
        name = sql.Identifier(postgres_schema)
        observer.execute(sql.SQL("create schema {}").format(name))
        observer.execute(
            sql.SQL("create table {} ()").format(sql.Identifier(postgres_schema, "claim"))
        )

        with Onefold(postgres_url, schema=postgres_schema) as onefold:
            with pytest.raises(psycopg.errors.DuplicateTable):
                onefold.migrate()
            observer.execute(
                sql.SQL("drop table {}").format(sql.Identifier(postgres_schema, "claim"))
            )
            assert onefold.migrate() != []
            assert onefold.enqueue("mail").inserted


LATER = latest("postgres") + 1


@pytest.fixture(params=["postgres", "sqlite"])
def set_identity(
    request: pytest.FixtureRequest, postgres_url: str, migrated: str, tmp_path: Path
) -> tuple[str, str, Callable[[dict[str, int]], None]]:
    """A database that has been migrated, and how to change what it says of itself."""
    if request.param == "sqlite":
        path = tmp_path / "app.db"
        with Onefold(f"sqlite:///{path}") as onefold:
            onefold.migrate()

        def change_row(members: dict[str, int]) -> None:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(
                    "update onefold_meta set value = json_patch(value, ?)", [json.dumps(members)]
                )
                connection.commit()

        return f"sqlite:///{path}", "onefold", change_row

    def change(members: dict[str, int]) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            change_identity(connection, migrated, members)

    return postgres_url, migrated, change


class TestTooNew:
    @pytest.mark.parametrize("said", [{"oldest": LATER}, {"oldest": 0}])
    @pytest.mark.parametrize("call", ["enqueue", "migrate"])
    def test_a_schema_that_older_code_cannot_use_is_refused(
        self,
        set_identity: tuple[str, str, Callable[[dict[str, int]], None]],
        make_caller: MakeCaller,
        call: str,
        said: dict[str, int],
    ) -> None:
        url, schema, change = set_identity
        change({"version": LATER} | said)
        caller = make_caller(Onefold(url, schema=schema))

        with pytest.raises(SchemaTooNew, match="Upgrade Onefold") as caught:
            caller(call, *(["mail"] if call == "enqueue" else []))

        assert (caught.value.found, caught.value.known) == (LATER, LATER - 1)

    def test_a_schema_that_older_code_can_use_is_used(
        self,
        set_identity: tuple[str, str, Callable[[dict[str, int]], None]],
        make_caller: MakeCaller,
    ) -> None:
        url, schema, change = set_identity
        change({"version": LATER, "oldest": LATER - 1})
        caller = make_caller(Onefold(url, schema=schema))

        assert caller("enqueue", "mail").inserted
        assert caller("migrate") == []

    def test_a_borrowed_connection_is_refused_too(
        self, set_identity: tuple[str, str, Callable[[dict[str, int]], None]]
    ) -> None:
        url, schema, change = set_identity
        change({"version": LATER, "oldest": LATER})

        with Onefold(url, schema=schema) as onefold:
            connection = (
                sqlite3.connect(url.removeprefix("sqlite:///"))
                if url.startswith("sqlite")
                else psycopg.connect(url)
            )
            with closing(connection):
                connection.execute("begin")
                with pytest.raises(SchemaTooNew):
                    onefold.within(connection).enqueue("mail")


class TestFresh:
    def test_our_tables_are_made_anew_and_others_are_kept(self, place: Place) -> None:
        with place.open() as onefold, place.connection() as connection:
            onefold.enqueue("mail", unique_key="k")
            connection.execute(f"create table {place.effects} (note text)")
            connection.execute(f"insert into {place.effects} values ('kept')")

            applied = onefold.context.database.migrate(fresh=True)

            assert [migration.number for migration in applied] == [1]
            assert place.rows("select * from {job}") == []
            assert place.rows(f"select * from {place.effects}") == [("kept",)]
            assert onefold.enqueue("mail", unique_key="k").inserted


class TestInUse:
    @pytest.fixture
    def a_column(self, monkeypatch: pytest.MonkeyPatch) -> int:
        """A migration that has to lock a table for itself."""
        text = "-- Add a column.\nalter table onefold.job add column extra integer;"
        known = (*migrations._all("postgres"), migrations.Migration(LATER, "a_column", text))

        def with_it(dialect: Dialect) -> tuple[migrations.Migration, ...]:
            del dialect
            return known

        monkeypatch.setattr(migrations, "_all", with_it)
        return LATER

    def test_an_idle_reader_does_not_make_calls_wait_for_a_migration(
        self, postgres_url: str, migrated: str, a_column: int
    ) -> None:
        with (
            psycopg.connect(postgres_url) as reader,
            Onefold(postgres_url, schema=migrated) as migrating,
            psycopg.connect(postgres_url, autocommit=True) as other,
            ThreadPoolExecutor(1) as thread,
        ):
            job = sql.Identifier(migrated, "job")
            reader.execute(sql.SQL("select count(*) from {}").format(job))
            other.execute(f"set statement_timeout = '{PATIENCE:g}s'".encode())
            applied = thread.submit(migrating.migrate)

            # Each waits for the migration only while that waits for its lock.
            for _ in range(3):
                _wait_for_a_waiting_lock(other, migrated)
                assert other.execute(sql.SQL("select count(*) from {}").format(job)).fetchone()
            assert not applied.done()

            reader.rollback()
            assert [migration.number for migration in applied.result(PATIENCE)] == [a_column]
            assert migrating.enqueue("mail").inserted

    def test_a_reader_that_stays_is_named(
        self, postgres_url: str, migrated: str, a_column: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        del a_column
        monkeypatch.setattr(
            "onefold.databases.postgres.database.MIGRATION_PATIENCE", timedelta(milliseconds=1)
        )
        with (
            psycopg.connect(postgres_url) as reader,
            Onefold(postgres_url, schema=migrated) as onefold,
        ):
            reader.execute(
                sql.SQL("select count(*) from {}").format(sql.Identifier(migrated, "job"))
            )

            with pytest.raises(DatabaseBusy, match="idle in transaction"):
                onefold.migrate()


def _wait_for_a_waiting_lock(connection: psycopg.Connection, schema: str) -> None:
    query = (
        "select 1 from pg_locks where not granted"
        " and relation = to_regclass(%s) and mode = 'AccessExclusiveLock'"
    )
    until(lambda: bool(connection.execute(query, [f"{schema}.job"]).fetchall()))
