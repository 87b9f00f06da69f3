"""Migrations: numbered files, and the identity that says how far a database has come."""

import pytest

from onefold import SchemaOutdated
from onefold.operations.migrations import (
    Identity,
    Migration,
    latest,
    pending,
    read_identity,
    script,
    write_identity,
)
from onefold.operations.statement import Dialect

DIALECTS: tuple[Dialect, ...] = ("postgres", "sqlite")


def test_an_identity_of_a_later_version_is_read_where_older_code_runs_on_it() -> None:
    digests = (*Identity("me").migrated("sqlite").digests, "of a later one")
    later = Identity("me", version=99, oldest=1, digests=digests)

    identity = read_identity(f'{write_identity(later)[:-1]},"colour":"blue"}}', "sqlite", "here")

    assert identity == later
    assert identity.migrated("sqlite") == identity


@pytest.mark.parametrize("digests", ["[]", '["another"]'])
def test_tables_of_an_unreleased_version_are_refused(digests: str) -> None:
    text = f'{{"installation":"me","version":1,"digests":{digests}}}'

    with pytest.raises(SchemaOutdated, match="--schema app --fresh") as caught:
        read_identity(text, "postgres", "here", schema="app")

    assert caught.value.unreleased


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
