"""`manage.py migrate` makes Onefold's tables, and `manage.py flush` empties them."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test.utils import override_settings

from onefold import Onefold
from onefold.operations.migrations import Identity
from tests.fixtures.colours import Store
from tests.fixtures.django_connections import add_database, database_settings, remove_database
from tests.http.django.project import Project

MakeProject = Callable[..., Project]

TESTS = """
from django.test import TestCase
from onefold.django import get_onefold

class Tests(TestCase):
    def test_onefold_is_used(self):
        get_onefold().find()
"""

EARLY = """
from onefold.django import get_onefold

@get_onefold().job
def email(): ...
"""


def names(folder: str) -> set[str]:
    found = files("onefold").joinpath(folder).iterdir()
    return {entry.name.partition(".")[0] for entry in found if entry.name[:4].isdigit()}


def test_each_migration_of_onefold_has_one_of_the_same_name_for_django() -> None:
    ours = names("sql/postgres/migrations")

    assert names("django/migrations") == ours
    assert names("sql/sqlite/migrations") == ours


@pytest.mark.prove
def test_migrate_makes_the_tables(make_project: MakeProject, store: Store) -> None:
    project = make_project()

    assert "onefold.0001_initial... OK" in project.manage("migrate")
    assert "No migrations to apply" in project.manage("migrate")
    assert "No changes detected" in project.manage("makemigrations", "--check", "onefold")
    assert "IrreversibleError" in project.refused("migrate", "onefold", "zero")
    with Onefold(store.url) as onefold:
        assert onefold.migrate() == []
        assert onefold.enqueue("email").inserted


@pytest.mark.prove
def test_migrate_finds_that_onefold_migrate_was_there_before(
    make_project: MakeProject, store: Store
) -> None:
    with Onefold(store.url) as onefold:
        onefold.migrate()
        enqueued = onefold.enqueue("email")

        make_project().manage("migrate")

        assert onefold.get(enqueued.id) is not None


@pytest.mark.prove
def test_another_alias_can_be_named(make_project: MakeProject, store: Store) -> None:
    project = make_project()
    databases = {
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(project.folder / "d.db")},
        "queue": project.settings["DATABASES"]["default"],
    }
    project.configure(DATABASES=databases, ONEFOLD={"DATABASE": "queue"})

    project.manage("migrate", "--database", "queue")
    project.manage("migrate", "--database", "default")

    with Onefold(store.url) as onefold:
        assert onefold.migrate() == []
    said = project.manage("shell", "-v", "0", "-c", LIST_TABLES)
    assert "django_migrations" in said
    assert "onefold" not in said, "another database has no tables of ours"


LIST_TABLES = """
from django.db import connections
print(connections["default"].introspection.table_names())
"""


@pytest.mark.prove
def test_tests_in_memory_run_until_they_need_onefold(tmp_path: Path) -> None:
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "real.sqlite3")}
    apps = ["onefold.django", "shop"]
    project = Project(tmp_path / "project", database, INSTALLED_APPS=apps)
    project.write("shop/__init__.py", "")
    project.write("shop/jobs.py", EARLY)
    project.write("shop/tests.py", TESTS)
    project.write("shop/harmless/__init__.py", "")
    project.write("shop/harmless/tests.py", HARMLESS)

    assert "OK" in project.manage("test", "shop.harmless")
    said = project.start("test", "shop.tests").communicate()[1]
    assert 'For tests, name a file: DATABASES["default"]["TEST"]' in said


HARMLESS = """
from django.test import TestCase

class Tests(TestCase):
    def test_something_else(self): ...
"""


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
