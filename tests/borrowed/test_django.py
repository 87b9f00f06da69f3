"""What is Django's alone: atomic blocks, broken transactions, closed connections, event loops."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import cache
from django.db import connection, connections, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from onefold import Onefold, WrongConnection
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
