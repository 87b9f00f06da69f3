"""The mixin for Django's test cases, `manage.py test`, and `override` with the test client."""

import re
from collections.abc import Callable

import psycopg
import pytest

from tests.fixtures.colours import Store
from tests.http.django.conftest import make_project, pytest_generate_tests, store
from tests.http.django.project import Project

__all__ = ["make_project", "pytest_generate_tests", "store"]

JOBS = """
from onefold.django import get_onefold

@get_onefold().job
def confirm(order_id: int):
    from shop.models import Mail
    if order_id < 0:
        raise ValueError("no such order")
    Mail.objects.create(order_id=order_id)

@get_onefold().job
async def aconfirm(order_id: int):
    from shop.models import Mail
    await Mail.objects.acreate(order_id=order_id)
"""

MODELS = """
from django.db import models

class Mail(models.Model):
    order_id = models.IntegerField()
"""

URLS = """
from django.db import connection, transaction
from django.http import JsonResponse
from django.urls import path
from onefold.django import Idempotency, get_onefold
from shop.jobs import confirm

idempotency = Idempotency()

@transaction.atomic
def order(request, number):
    confirm.within(connection).enqueue(number)
    return JsonResponse({"order": number}, status=201)

@idempotency(principal=lambda _: "alice")
def keyed(request, number):
    confirm.within(connection).enqueue(number)
    return JsonResponse({"order": number}, status=201)

def plain(request, number):
    get_onefold().enqueue("confirm", {"order_id": number})
    return JsonResponse({"order": number}, status=201)

urlpatterns = [
    path("orders/<int:number>", order),
    path("keyed/<int:number>", keyed),
    path("plain/<int:number>", plain),
]
"""

TESTS = """
from datetime import timedelta
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from onefold import UsageError
from onefold.django import get_onefold
from onefold.testing import assert_enqueued, deliver, drain, enqueued
from onefold.testing.django import OnefoldMixin
from shop.jobs import aconfirm, confirm
from shop.models import Mail


class Looking(OnefoldMixin, TestCase):
    def test_jobs_of_the_transaction_of_the_test(self):
        assert self.enqueued() == []
        self.client.post("/orders/7")
        job = self.assert_enqueued("confirm", {"order_id": 7})
        assert (job.state, len(self.enqueued("confirm"))) == ("ready", 1)
        self.refute_enqueued("confirm", {"order_id": 8})
        assert enqueued(get_onefold()) == []

    test_jobs_of_another_test_are_gone = test_jobs_of_the_transaction_of_the_test

    def test_messages_list_what_is_there(self):
        with self.assertRaisesMessage(AssertionError, "There are no jobs."):
            self.assert_enqueued("confirm")
        self.client.post("/orders/7")
        with self.assertRaisesMessage(AssertionError, "confirm {'order_id': 7} (ready)"):
            self.assert_enqueued("confirm", {"order_id": 8})
        with self.assertRaisesMessage(AssertionError, "should be enqueued"):
            self.refute_enqueued("confirm")

    def test_a_joined_view(self):
        for _ in range(2):
            answer = self.client.post("/keyed/7", headers={"Idempotency-Key": "k-1"})
            assert answer.status_code == 201
        assert len(self.enqueued("confirm")) == 1

    test_a_joined_view_again = test_a_joined_view

    def test_a_worker_is_refused_with_a_sentence(self):
        self.client.post("/orders/7")
        with self.assertRaisesMessage(UsageError, "Use TransactionTestCase"):
            self.drain()

    async def test_awaited_calls_look_into_the_transaction_too(self):
        await self.async_client.post("/orders/7")
        job = await self.aassert_enqueued("confirm", {"order_id": 7})
        assert await self.aenqueued("confirm") == [job]
        await self.arefute_enqueued("confirm", {"order_id": 8})
        for call in (self.assert_enqueued, self.refute_enqueued, self.enqueued):
            with self.assertRaisesMessage(UsageError, "with a leading a"):
                call("confirm")

    async def test_an_awaited_worker_is_refused_too(self):
        with self.assertRaisesMessage(UsageError, "Use TransactionTestCase"):
            await self.adrain()


class Running(OnefoldMixin, TransactionTestCase):
    def test_jobs_run_and_are_gone_afterwards(self):
        assert self.enqueued() == []
        assert len(get_onefold().schedules.find()) == Mail.objects.count() == 0
        get_onefold().schedules.save("daily", "0 0 * * *", kind="email")
        with get_onefold().once("import", "a key") as claim:
            assert claim.won
            claim.result = 1
        self.client.post("/orders/7")
        self.client.post("/plain/8")
        aconfirm.enqueue(9)
        assert {job.state for job in self.drain()} == {"completed"}
        assert sorted(Mail.objects.values_list("order_id", flat=True)) == [7, 8, 9]
        assert self.assert_enqueued("confirm", {"order_id": 7}).state == "completed"

    test_again = test_jobs_run_and_are_gone_afterwards

    def test_errors_are_raised(self):
        confirm.using(max_attempts=1).enqueue(-1)
        with self.assertRaisesMessage(ValueError, "no such order"):
            self.drain()
        confirm.enqueue(-2)
        assert [job.state for job in self.drain(raises=False)] == ["retrying"]

    def test_an_open_block_is_looked_into_and_not_drained(self):
        with transaction.atomic():
            confirm.within(connection).enqueue(7)
            self.assert_enqueued("confirm")
            with self.assertRaisesMessage(UsageError, "Run them after the block"):
                self.drain()
            transaction.set_rollback(True)
        self.refute_enqueued("confirm")

    def test_deliveries(self):
        assert deliver(confirm, 7).job.state == "completed"
        assert deliver(aconfirm, 8).job.state == "completed"
        assert Mail.objects.count() == 4

    async def test_an_awaited_worker(self):
        await aconfirm.aenqueue(7)
        assert len(await self.adrain()) == 1
        jobs = [await aconfirm.aenqueue(8), await confirm.aenqueue(9)]
        async with get_onefold().worker():
            for job in jobs:
                await job.aresult(timeout=timedelta(seconds=60))
        assert await Mail.objects.acount() == 3

    def test_another_database_for_onefold(self):
        onefold = get_onefold()
        with onefold.override(f"sqlite:///{self.id()}.db"):
            self.client.post("/plain/7")
            assert_enqueued(onefold, "confirm", {"order_id": 7})
            assert len(drain(onefold)) == 1
        assert Mail.objects.count() == 1
        self.refute_enqueued("confirm")
"""

MORE = """

class Serialized(Running):
    serialized_rollback = True

class Cleared(Running):
    available_apps = ["onefold.django", "shop"]
"""

NAME_OF_TEST = re.compile(r"^    (?:async )?(?:def )?test_", re.MULTILINE)


@pytest.fixture
def project(make_project: Callable[..., Project], store: Store) -> Project:
    project = make_project(
        INSTALLED_APPS=["onefold.django", "shop"],
        MIDDLEWARE=["onefold.django.IdempotencyMiddleware"],
        ROOT_URLCONF="shop.urls",
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
    project.write("shop/urls.py", URLS)
    project.write("shop/tests.py", TESTS)
    return project


def test_the_test_cases_of_a_project(project: Project) -> None:
    said = project.manage("test", "--noinput")

    assert f"Ran {len(NAME_OF_TEST.findall(TESTS))} tests" in said
    assert "OK" in said


@pytest.mark.prove
def test_databases_are_emptied_cloned_kept_and_destroyed(project: Project, store: Store) -> None:
    """Although tests leave jobs, keys and open connections behind."""
    project.write("shop/tests.py", TESTS + MORE)
    clones = ["--parallel", "2"]
    for options in ([], [*clones, "--keepdb"], [*clones, "--keepdb"], clones):
        assert "OK" in project.manage("test", "--noinput", *options)
    if store.dialect == "sqlite":
        left = [path.name for path in project.folder.glob("test*")]
    else:
        name = f"test_{store.url.rpartition('/')[2]}%"
        with psycopg.connect(store.url) as connection:
            query = "select datname from pg_database where datname like %s"
            left = [row[0] for row in connection.execute(query, [name])]
    assert left == []


@pytest.mark.prove
def test_a_database_that_is_named_by_a_url_is_looked_at_directly(
    project: Project, sqlite_url: str
) -> None:
    project.configure(ONEFOLD={"DATABASE": sqlite_url})
    project.write("shop/urls.py", URLS.replace('"alice"', '"alice", takeover="rerun"'))
    project.write(
        "shop/tests.py",
        """
from django.test import TestCase
from onefold.testing.django import OnefoldMixin

class Looking(OnefoldMixin, TestCase):
    def test_jobs_are_found(self):
        self.client.post("/plain/7")
        self.assert_enqueued("confirm", {"order_id": 7})
""",
    )

    assert "OK" in project.manage("test", "--noinput")
