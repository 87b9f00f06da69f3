"""What is Django's alone: atomic blocks, requests, broken transactions, threads and event loops."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import cache
from django.db import DatabaseError, connection, connections, transaction
from django.db.transaction import TransactionManagementError
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path
from django.utils.connection import ConnectionProxy

from onefold import (
    NoTransaction,
    Onefold,
    SerializationConflict,
    WouldDeadlock,
    WrongConnection,
)
from tests.fixtures.colours import Dialect, Store
from tests.fixtures.connections import Effects
from tests.fixtures.django_connections import add_database, database_settings, remove_database


@pytest.fixture(params=["sqlite", "postgres"])
def dialect(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def alias(store: Store, dialect: Dialect, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database of Django's that is the store's."""
    monkeypatch.delenv("DJANGO_ALLOW_ASYNC_UNSAFE", raising=False)
    alias = add_database(database_settings(store))
    yield alias
    remove_database(alias)


def enqueue(onefold: Onefold, alias: str, key: str) -> None:
    onefold.within(connections[alias]).enqueue("email", unique_key=key)


# --- blocks ---------------------------------------------------------------------------------------


def test_outside_atomic_there_is_no_transaction(store: Store, alias: str, effects: Effects) -> None:
    onefold = store.open()
    with pytest.raises(NoTransaction, match=r"django\.db\.backends"):
        onefold.within(connections[alias])

    with transaction.atomic(using=alias):
        within = onefold.within(connections[alias])
        within.enqueue("email")

    with pytest.raises(NoTransaction):
        within.enqueue("email")
    assert len(effects.jobs) == 1


def test_a_nested_block_that_fails_takes_its_job_with_it(
    store: Store, alias: str, effects: Effects
) -> None:
    onefold = store.open()
    with transaction.atomic(using=alias):
        enqueue(onefold, alias, "outer")
        with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):  # noqa: PT012
            enqueue(onefold, alias, "gone")
            raise ZeroDivisionError
        with transaction.atomic(using=alias):
            enqueue(onefold, alias, "inner")

    assert effects.jobs == [("email", "inner"), ("email", "outer")]


def test_a_block_that_must_be_left_is_told_so_by_django(
    store: Store, alias: str, effects: Effects
) -> None:
    onefold = store.open()
    with transaction.atomic(using=alias):
        within = onefold.within(connections[alias])
        within.enqueue("email")
        transaction.set_rollback(True, using=alias)

        with pytest.raises(TransactionManagementError, match="until the end of the 'atomic' block"):
            onefold.within(connections[alias])
        with pytest.raises(TransactionManagementError):
            within.enqueue("email")

    assert effects.jobs == []


def test_what_is_done_on_commit_comes_after_the_job(store: Store, alias: str) -> None:
    onefold = store.open()
    seen: list[int] = []
    with transaction.atomic(using=alias):
        transaction.on_commit(lambda: seen.append(len(onefold.find())), using=alias)
        enqueue(onefold, alias, "k")

    assert seen == [1]


def test_the_connection_of_the_thread_stands_for_a_database(
    store: Store, alias: str, effects: Effects
) -> None:
    """As `django.db.connection` does, for the one that is called default."""
    onefold, proxy = store.open(), ConnectionProxy(connections, alias)
    with transaction.atomic(using=alias):
        onefold.within(proxy).enqueue("email", unique_key="k")

    assert isinstance(connection, ConnectionProxy)
    assert effects.jobs == [("email", "k")]


# --- requests -------------------------------------------------------------------------------------


class Shop:
    """The views of a project, and what they enqueue with."""

    onefold: Onefold
    alias: str


def order(request: HttpRequest) -> HttpResponse:
    enqueue(Shop.onefold, Shop.alias, request.GET["key"])
    if "fail" in request.GET:
        raise ZeroDivisionError
    return HttpResponse("ordered")


def unprotected(request: HttpRequest) -> HttpResponse:
    enqueue(Shop.onefold, Shop.alias, "never")
    return HttpResponse("not reached")


urlpatterns = [path("order", order), path("unprotected", unprotected)]


@pytest.fixture
def shop(store: Store, dialect: Dialect) -> Iterator[Client]:
    """A client of a project that has ATOMIC_REQUESTS."""
    Shop.onefold = store.open()
    Shop.alias = add_database(database_settings(store) | {"ATOMIC_REQUESTS": True})
    with override_settings(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"]):
        yield Client(raise_request_exception=False)
    remove_database(Shop.alias)


def test_a_request_commits_its_job_or_takes_it_back(shop: Client, effects: Effects) -> None:
    kept = shop.get("/order", {"key": "kept"})
    gone = shop.get("/order", {"key": "gone", "fail": "1"})
    again = shop.get("/order", {"key": "kept"})

    assert (kept.status_code, gone.status_code, again.status_code) == (200, 500, 200)
    assert effects.jobs == [("email", "kept")]


def test_a_view_that_is_not_atomic_has_no_transaction(shop: Client, effects: Effects) -> None:
    transaction.non_atomic_requests(using=Shop.alias)(unprotected)

    with pytest.raises(NoTransaction):
        Client().get("/unprotected")

    assert effects.jobs == []


# --- statements -----------------------------------------------------------------------------------


def test_django_sees_our_statements(store: Store, alias: str) -> None:
    onefold = store.open()
    payload = {"text": "100 % %s %(x)s :x $1 ?"}
    with (
        CaptureQueriesContext(connections[alias]) as seen,
        transaction.atomic(using=alias),
    ):
        job = onefold.within(connections[alias]).enqueue("email", payload)

    assert any("insert into" in query["sql"] for query in seen.captured_queries)
    stored = onefold.get(job.id)
    assert stored is not None
    assert stored.payload == payload


def test_a_driver_error_is_djangos_as_the_caller_expects(store: Store, alias: str) -> None:
    onefold = store.open()
    table = store.table("job")
    with transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            cursor.execute(f"alter table {table} rename to {table.split('.')[-1]}_away")
        with (
            pytest.raises(DatabaseError),
            transaction.atomic(using=alias),
        ):
            enqueue(onefold, alias, "k")
        transaction.set_rollback(True, using=alias)

    with transaction.atomic(using=alias):
        enqueue(onefold, alias, "k")
    assert len(onefold.find()) == 1


@pytest.mark.parametrize("dialect", ["postgres"])
def test_a_refusal_by_isolation_is_ours_whatever_django_makes_of_it(
    store: Store, alias: str
) -> None:
    onefold = store.open()
    with pytest.raises(SerializationConflict), transaction.atomic(using=alias):  # noqa: PT012
        with connections[alias].cursor() as cursor:
            cursor.execute("set transaction isolation level serializable")
            cursor.execute("select 1")
        store.open().enqueue("email", unique_key="k")
        enqueue(onefold, alias, "k")


@pytest.mark.parametrize("dialect", ["sqlite"])
def test_a_block_that_began_by_reading_is_refused_after_another_commit(
    store: Store, alias: str
) -> None:
    onefold = store.open()
    refused = pytest.raises(SerializationConflict, match="began by reading")
    with refused, transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            cursor.execute("select count(*) from onefold_job").fetchall()
        store.open().enqueue("email", unique_key="other")
        enqueue(onefold, alias, "k")


@pytest.mark.parametrize("dialect", ["sqlite"])
def test_a_plain_enqueue_inside_a_block_of_this_thread_is_an_error(
    store: Store, alias: str
) -> None:
    onefold = store.open()
    with transaction.atomic(using=alias):
        enqueue(onefold, alias, "k")
        with pytest.raises(WouldDeadlock):
            onefold.enqueue("email", unique_key="k")
    assert onefold.enqueue("email", unique_key="k").duplicate


# --- what is refused ------------------------------------------------------------------------------


def test_what_only_looks_like_a_connection_is_refused(store: Store, alias: str) -> None:
    onefold = store.open()
    with pytest.raises(WrongConnection, match=r"connections\['default'\]"):
        onefold.within(connections)
    with pytest.raises(WrongConnection, match="is not a connection"):
        onefold.within(cache)
    with pytest.raises(WrongConnection, match="this Onefold is on"):
        onefold.within(connection)  # no DATABASES: Django's dummy


def test_a_connection_that_is_closed_inside_its_block_is_refused(
    store: Store, alias: str, effects: Effects
) -> None:
    onefold = store.open()
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):  # noqa: PT012
        enqueue(onefold, alias, "gone")
        connections[alias].close()
        with pytest.raises(WrongConnection, match="is not open"):
            onefold.within(connections[alias])
        raise ZeroDivisionError

    assert effects.jobs == []


def test_a_connection_that_was_closed_between_blocks_is_opened_again(
    store: Store, alias: str, effects: Effects
) -> None:
    onefold = store.open()
    for key in ("1", "2"):
        with transaction.atomic(using=alias):
            enqueue(onefold, alias, key)
        connections[alias].close()

    assert len(effects.jobs) == 2


def test_the_connection_of_another_thread_is_refused_by_django(store: Store, alias: str) -> None:
    onefold, mine, said = store.open(), connections[alias], list[BaseException]()

    def elsewhere() -> None:
        try:
            onefold.within(mine).enqueue("email")
        except DatabaseError as error:
            said.append(error)

    with transaction.atomic(using=alias):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    assert "created in thread" in f"{said[0]}"


# --- async views ----------------------------------------------------------------------------------


def test_an_event_loop_is_told_to_use_a_thread(store: Store, alias: str, effects: Effects) -> None:
    onefold = store.open(busy_timeout=timedelta(seconds=1))

    async def view() -> None:
        with pytest.raises(WrongConnection, match="sync_to_async"):
            onefold.within(connections[alias])

    def pay() -> None:
        with transaction.atomic(using=alias):
            enqueue(onefold, alias, "k")
        connections[alias].close()

    async def better_view() -> None:
        await sync_to_async(pay)()

    asyncio.run(view())
    asyncio.run(better_view())
    assert effects.jobs == [("email", "k")]
