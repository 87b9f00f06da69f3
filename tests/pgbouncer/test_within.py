"""The scenario of `within`, on callers' connections through PgBouncer."""

from collections.abc import Iterator
from typing import Any

import pytest

from onefold import Onefold
from tests.borrowed.test_scenario import *  # noqa: F403 - the tests themselves
from tests.fixtures.colours import Coloured, Store
from tests.fixtures.connection import Kind
from tests.fixtures.connections import effects
from tests.fixtures.pgbouncer import PgBouncer
from tests.pgbouncer.kinds import POOLED

__all__ = ["effects"]


class PooledStore(Store):
    """What is opened there prepares nothing."""

    def open(self, **options: Any) -> Onefold:
        return super().open(prepared_statements=False, **options)


@pytest.fixture(params=POOLED, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def store(pgbouncer: PgBouncer, postgres_schema: str) -> Iterator[Store]:
    store = PooledStore("postgres", pgbouncer.url, postgres_schema)
    store.open().migrate()
    yield store
    store.close()


@pytest.fixture
def onefold(store: Store, kind: Kind) -> Coloured:
    return Coloured(store.open(), kind.colour)


async def test_many_transactions_of_one_connection_leave_nothing_prepared(
    kind: Kind, store: Store, onefold: Coloured, pgbouncer: PgBouncer
) -> None:
    connection = await kind.connect(store)

    for number in range(20):
        await connection.begin()
        assert await connection.fetch(f"select {number % 2}") == [(number % 2,)]
        await onefold.within(connection.raw).enqueue("mail", unique_key=f"{number}")
        await connection.commit()

    assert len((await onefold.find(kind="mail")).jobs) == 20
    assert not any(pgbouncer.ask("select name from pg_prepared_statements").values())
