"""`manage.py test`: test databases are emptied, cloned and destroyed although Onefold uses them."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from django.test.utils import override_settings

from onefold import Onefold
from onefold.operations.migrations import Identity
from tests.fixtures.colours import Store
from tests.fixtures.django_connections import add_database, database_settings, remove_database
from tests.http.django.project import Project

MakeProject = Callable[..., Project]

JOBS = """
from onefold.django import get_onefold

@get_onefold().job
def pay(order_id: int):
    from shop.models import Payment
    Payment.objects.create(order_id=order_id)

@get_onefold().job
async def pay_later(order_id: int):
    from shop.models import Payment
    await Payment.objects.acreate(order_id=order_id)
"""

MODELS = """
from django.db import models

class Payment(models.Model):
    order_id = models.IntegerField()
"""

TESTS = """
import asyncio
from datetime import timedelta

from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from onefold.django import get_onefold
from shop.jobs import pay, pay_later
from shop.models import Payment

onefold = get_onefold()


def use_everything():
    assert len(onefold.find()) == len(onefold.schedules.find()) == 0
    assert Payment.objects.count() == 0
    enqueued = [pay.enqueue(7), pay_later.enqueue(8)]
    onefold.enqueue("email", unique_key="a key")
    assert onefold.enqueue("email", unique_key="a key").duplicate
    onefold.schedules.save("daily", "0 0 * * *", kind="email")
    with onefold.once("import", "a key") as claim:
        assert claim.won
        claim.result = 1
    asyncio.run(work(enqueued))
    assert Payment.objects.count() == 2


async def work(enqueued):
    async with onefold.worker():
        for each in enqueued:
            await each.aresult(timeout=timedelta(seconds=60))


class Committed(TransactionTestCase):
    def test_1(self):
        use_everything()

    test_2 = test_1


class Serialized(Committed):
    serialized_rollback = True


class Cleared(Committed):
    available_apps = ["onefold.django", "shop"]


class RolledBack(TestCase):
    def test_1(self):
        assert len(onefold.find()) == len(onefold.schedules.find()) == 0
        with transaction.atomic():
            onefold.within(connection).enqueue("email", unique_key="a key")

    test_2 = test_1
"""


@pytest.fixture
def project(make_project: MakeProject, store: Store) -> Project:
    """With tests that leave jobs, keys and open connections behind."""
    project = make_project(
        INSTALLED_APPS=["onefold.django", "shop"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    )
    database = project.settings["DATABASES"]["default"]
    # A connection of Django's in a handler's thread is as good as one of ours.
    database["CONN_MAX_AGE"] = None
    if store.dialect == "sqlite":
        database["TEST"] = {"NAME": str(project.folder / "test.sqlite3")}
    project.configure()
    project.write("shop/__init__.py", "")
    project.write("shop/models.py", MODELS)
    project.write("shop/jobs.py", JOBS)
    project.write("shop/tests.py", TESTS)
    return project


@pytest.mark.prove
def test_each_test_finds_empty_tables_and_no_database_is_left(
    project: Project, store: Store
) -> None:
    assert "OK" in project.manage("test", "--noinput")
    assert leftovers(project, store) == []


@pytest.mark.prove
def test_clones_are_made_kept_and_made_anew(project: Project, store: Store) -> None:
    for options in (["--keepdb"], ["--keepdb"], ["--noinput"]):
        assert "OK" in project.manage("test", "--parallel", "2", *options)

    assert leftovers(project, store) == []


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


def leftovers(project: Project, store: Store) -> list[str]:
    """Test databases that are still there."""
    if store.dialect == "sqlite":
        return [path.name for path in Path(project.folder).glob("test*")]
    name = store.url.rpartition("/")[2]
    with psycopg.connect(store.url) as connection:
        query = "select datname from pg_database where datname like %s"
        return [row[0] for row in connection.execute(query, [f"test_{name}%"])]
