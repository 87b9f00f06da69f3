"""Migrations: numbered files, and the identity that says how far a database has come."""

import pytest

from onefold.operations.migrations import (
    Identity,
    Migration,
    latest,
    pending,
    read_identity,
    script,
)
from onefold.operations.statement import Dialect

DIALECTS: tuple[Dialect, ...] = ("postgres", "sqlite")


def test_an_identity_of_a_later_version_is_read_where_older_code_runs_on_it() -> None:
    text = '{"installation":"me","version":99,"oldest":1,"colour":"blue"}'

    identity = read_identity(text, "sqlite", "here")

    assert identity == Identity("me", version=99, oldest=1)
    assert identity.migrated("sqlite") == identity


@pytest.mark.parametrize(
    ("text", "oldest"),
    [
        ("-- Add a column.\nalter table job;", 7),
        ("-- Add a column.\n-- Code of schema 5 runs on this one.\nalter table job;", 5),
    ],
)
def test_a_migration_says_whose_code_runs_on_what_it_has_changed(text: str, oldest: int) -> None:
    assert Migration(7, "a_column", text).oldest == oldest


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_migrated_database_says_whose_code_runs_on_it(dialect: Dialect) -> None:
    migrated = Identity("me", shards=4).migrated(dialect)

    assert (migrated.version, migrated.shards) == (latest(dialect), 4)
    assert migrated.oldest == max(migration.oldest for migration in pending(dialect, 0))


def test_a_script_has_the_migrations_and_the_identity() -> None:
    identity = Identity("it's me", version=1)

    text = script("postgres", pending("postgres", 0, schema="app"), identity, schema="app")

    assert 'create table "app".job' in text
    assert "insert into \"app\".migration (number, name) values (1, 'initial');" in text
    assert 'insert into "app".meta (name, value)' in text
    assert "it''s me" in text
