"""`manage.py flush`, which the test runner of Django calls (tests/testing/test_django.py)."""

import pytest
from django.core.management import call_command
from django.test.utils import override_settings

from onefold import Onefold
from onefold.operations.migrations import Identity
from tests.fixtures.colours import Store
from tests.fixtures.django_connections import add_database, database_settings, remove_database


@pytest.mark.parametrize("schema", ["onefold", "jobs"])
def test_flush_empties_the_tables_and_keeps_the_installation(
    project_onefold: Onefold, store: Store, schema: str
) -> None:
    with Onefold(store.url, schema=schema) as onefold:
        onefold.migrate()
        onefold.enqueue("email", unique_key="a key", idempotency_key="a key")
        onefold.schedules.save("daily", "0 0 * * *", kind="email")
        before = identity(store, schema)

        with override_settings(ONEFOLD={"SCHEMA": schema}):
            call_command("flush", interactive=False)

        assert len(onefold.find()) == len(onefold.schedules.find()) == 0
        assert onefold.enqueue("email", unique_key="a key", idempotency_key="a key").inserted
        assert onefold.migrate() == []
        assert identity(store, schema) == before


def test_flush_of_a_database_that_onefold_does_not_use_leaves_its_tables_alone(
    project_onefold: Onefold, store: Store
) -> None:
    enqueued = project_onefold.enqueue("email")

    with override_settings(ONEFOLD={"DATABASE": store.url}):
        call_command("flush", interactive=False)

    assert project_onefold.get(enqueued.id) is not None


def test_flush_before_the_first_migrate_finds_nothing_to_empty(store: Store) -> None:
    alias = add_database(database_settings(store))

    with override_settings(ONEFOLD={"DATABASE": alias}):
        call_command("flush", interactive=False, database=alias)
    remove_database(alias)


def identity(store: Store, schema: str) -> Identity:
    """Of the installation, as a new process reads it."""
    with Onefold(store.url, schema=schema) as onefold:
        return onefold.context.database.identity()
