"""Migrating through PgBouncer: the migrators' lock is the transaction's, not the session's."""

import psycopg
import pytest

from onefold import Onefold
from tests.fixtures.pgbouncer import POOL, PgBouncer
from tests.pgbouncer.places import PooledPlace
from tests.race.crew import together


@pytest.fixture
def empty(pgbouncer: PgBouncer, postgres_schema: str) -> PooledPlace:
    """Nothing is there yet."""
    return PooledPlace(pgbouncer.url, postgres_schema)


def test_many_migrators_on_few_sessions_migrate_once(empty: PooledPlace) -> None:
    applied: list[int] = []

    def migrate() -> None:
        with empty.open() as onefold:
            applied.append(len(onefold.migrate()))

    together(*[migrate] * (4 * POOL))

    assert sorted(applied, reverse=True) == [max(applied)] + [0] * (4 * POOL - 1)
    assert max(applied) > 0
    assert empty.rows("select count(*) from {job}") == [(0,)]


def test_what_was_migrated_directly_is_used_through_it_and_the_reverse(
    empty: PooledPlace, postgres_url: str
) -> None:
    with Onefold(postgres_url, schema=empty.schema) as direct, empty.open() as pooled:
        direct.migrate()
        assert pooled.migrate() == []
        assert direct.enqueue("mail", unique_key="k").inserted
        assert pooled.enqueue("mail", unique_key="k").duplicate
        # One installation, two ways to it: a caller's connection may have come by either.
        with psycopg.connect(postgres_url) as connection:
            assert pooled.within(connection).enqueue("mail", unique_key="k").duplicate
