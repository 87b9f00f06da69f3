"""Prepared statements behind a pooler that does not carry them: said in a sentence."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from uuid import uuid4

import psycopg
import pytest

from onefold import DatabaseUnavailable, JobNotFound, Onefold
from onefold.databases.postgres import PostgresDatabase
from tests.fixtures.pgbouncer import PgBouncer, PgBouncers
from tests.pgbouncer.places import PooledPlace

ENOUGH = 30
"""Uses of a statement, until it has been prepared and met every session."""
NAME = "_pg3_0"
"""What psycopg calls the first statement of each connection."""


@pytest.fixture
def own(pgbouncers: PgBouncers, postgres_url: str) -> PgBouncer:
    """One whose sessions nobody else has prepared anything in."""
    return pgbouncers.start(postgres_url)


@pytest.fixture
def preparing(own: PgBouncer, place: PooledPlace) -> Iterator[Onefold]:
    """An Onefold that has not been told of the pooler."""
    with Onefold(own.url, schema=place.schema, prepared_statements=True) as onefold:
        yield onefold


def use(onefold: Onefold) -> None:
    with suppress(JobNotFound):
        onefold.cancel(str(uuid4()))


def use_often(onefold: Onefold) -> None:
    for _ in range(ENOUGH):
        use(onefold)


def use_until_prepared(own: PgBouncer, onefold: Onefold) -> None:
    """psycopg prepares what it has seen a few times."""
    while not any(own.ask("select name from pg_prepared_statements").values()):
        use(onefold)


def prepare_something_else(own: PgBouncer) -> None:
    """What another client of psycopg does, in each session where the name is free."""
    with ExitStack() as stack:
        for _ in range(own.pool):
            client = stack.enter_context(psycopg.connect(own.url, prepare_threshold=None))
            if not client.execute("select name from pg_prepared_statements").fetchall():
                client.execute(f"prepare {NAME} as select $1::int".encode())


def missing(own: PgBouncer, onefold: Onefold) -> None:
    use_until_prepared(own, onefold)


def in_the_way(own: PgBouncer, onefold: Onefold) -> None:
    prepare_something_else(own)


def of_somebody_else(own: PgBouncer, onefold: Onefold) -> None:
    use_until_prepared(own, onefold)
    prepare_something_else(own)


@pytest.mark.parametrize("arrange", [missing, in_the_way, of_somebody_else])
def test_a_statement_of_another_session_names_the_setting(
    own: PgBouncer, preparing: Onefold, arrange: Callable[[PgBouncer, Onefold], None]
) -> None:
    arrange(own, preparing)

    with pytest.raises(DatabaseUnavailable, match="prepared_statements=False") as caught:
        use_often(preparing)

    assert isinstance(caught.value.__cause__, psycopg.Error)


def test_nothing_of_the_call_is_stored(
    own: PgBouncer, place: PooledPlace, preparing: Onefold
) -> None:
    answered: list[str] = []

    with pytest.raises(DatabaseUnavailable):
        # What was answered until then is kept.
        answered.extend(preparing.enqueue("mail").id for _ in range(ENOUGH))

    with place.open() as onefold:
        assert [job.id for job in onefold.find(kind="mail")] == answered


@pytest.mark.parametrize("setting", [None, False], ids=["left out", "switched off"])
def test_without_them_the_same_calls_are_answered(
    own: PgBouncer, place: PooledPlace, *, setting: bool | None
) -> None:
    with Onefold(own.url, schema=place.schema, prepared_statements=setting) as onefold:
        use_often(onefold)
        prepare_something_else(own)
        use_often(onefold)


def test_without_a_pooler_they_are_used(postgres_url: str, place: PooledPlace) -> None:
    with Onefold(postgres_url, schema=place.schema) as onefold:
        use_often(onefold)
        database = onefold.context.database
        assert isinstance(database, PostgresDatabase)
        pool, connection = database.get_connection()
        prepared = connection.execute("select count(*) from pg_prepared_statements").fetchone()
        pool.putconn(connection)

    assert prepared is not None
    assert prepared[0] > 0
