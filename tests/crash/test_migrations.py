"""SIGKILL before every statement of a migration: the tables are there as a whole, or not at all."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from onefold import Onefold
from tests.crash.injector import kill_before
from tests.crash.scenario import Scenario
from tests.fixtures.place import Place
from tests.fixtures.postgres import drop_schema
from tests.fixtures.proof import proved, repetitions


class Migrate(Scenario):
    migrated = False

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.migrate()


@pytest.fixture
def new_schemas(postgres_url: str) -> Iterator[list[str]]:
    names: list[str] = []
    yield names
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name in names:
            drop_schema(connection, name)


@pytest.mark.parametrize("database", ["sqlite", *proved("postgres")])
def test_a_migration_that_died_is_begun_again_from_the_start(
    database: str, tmp_path: Path, postgres_url: str, new_schemas: list[str]
) -> None:
    number, finished = 1, False
    while not finished:
        if database == "postgres":
            new_schemas.append(f"test_{uuid4().hex}")
            place = Place(postgres_url, new_schemas[-1])
        else:
            place = Place(f"sqlite:///{tmp_path / str(number)}.db")
        death = kill_before(number, Migrate("migrate"), place)
        finished = death.finished
        assert bool(_tables(place)) == death.committed
        assert death.committed or not finished
        with place.open() as onefold:
            assert bool(onefold.migrate()) != death.committed
            assert onefold.migrate() == []
            assert onefold.enqueue("crash", unique_key="k").inserted
        number += repetitions(9, soak=1)
    assert number > 4


def _tables(place: Place) -> list[tuple[str]]:
    if place.on_postgres:
        schema = f"'{place.schema}'"
        return place.rows(f"select tablename from pg_tables where schemaname = {schema}")
    return place.rows("select name from sqlite_master where type = 'table'")
