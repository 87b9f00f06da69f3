"""What goes wrong behind PgBouncer and in it, and the sentence that says so."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from onefold import DatabaseBusy, DatabaseError, DatabaseUnavailable
from tests.faults.callers import Caller, MakeCaller
from tests.faults.conftest import colour, make_caller, observer
from tests.faults.servers import PATIENCE, key_held, until, url_as
from tests.fixtures.pgbouncer import PgBouncer, PgBouncers
from tests.fixtures.postgres import PostgresServer
from tests.pgbouncer.places import PooledPlace

__all__ = ["colour", "make_caller", "observer"]

SHORT = timedelta(seconds=1)


@pytest.fixture
def caller(pgbouncer: PgBouncer, place: PooledPlace, make_caller: MakeCaller) -> Iterator[Caller]:
    """Onefold behind PgBouncer, with a connection that has been used."""
    caller = make_caller(place.open())
    caller("find")
    yield caller
    # The next test wants as many sessions as there were.
    pgbouncer.ask("select 1")


@pytest.fixture
def single(pgbouncers: PgBouncers, postgres_url: str) -> PgBouncer:
    """A pool of one session, and a short wait for it."""
    return pgbouncers.start(postgres_url, pool=1, query_wait_timeout=1)


@pytest.fixture
def taken(single: PgBouncer) -> Iterator[psycopg.Connection]:
    """Somebody's open transaction, which has the only session."""
    with psycopg.connect(single.url, prepare_threshold=None) as connection:
        connection.execute("select 1")
        yield connection


def test_a_session_that_is_ended_in_mid_operation_makes_one_job(
    caller: Caller, place: PooledPlace, postgres_url: str, observer: psycopg.Connection
) -> None:
    answers: list[bool] = []
    with key_held(postgres_url, place.schema, "k"):
        waiting = threading.Thread(
            target=lambda: answers.append(caller("enqueue", "mail", unique_key="k").inserted)
        )
        waiting.start()
        until(
            lambda: observer.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where wait_event_type = 'Lock' and position(%s in query) > 0",
                [place.schema],
            ).fetchone()
        )
    waiting.join(PATIENCE)

    assert answers == [True]
    assert len(caller("find")) == 1


@pytest.mark.prove
def test_a_server_that_starts_again_behind_it_is_waited_for(
    own_postgres: PostgresServer, pgbouncers: PgBouncers, make_caller: MakeCaller
) -> None:
    place = PooledPlace(pgbouncers.start(own_postgres.url).url)
    caller = make_caller(place.open())
    caller("migrate")
    caller("enqueue", "before")

    own_postgres.stop()
    own_postgres.start()

    assert caller("enqueue", "after").inserted
    assert [job.kind for job in caller("find")] == ["before", "after"]


@pytest.mark.prove
def test_a_server_that_stays_away_behind_it_is_said(
    own_postgres: PostgresServer, pgbouncers: PgBouncers, make_caller: MakeCaller
) -> None:
    place = PooledPlace(pgbouncers.start(own_postgres.url, query_wait_timeout=1).url)
    caller = make_caller(place.open(busy_timeout=SHORT))
    caller("migrate")
    own_postgres.stop()

    # PgBouncer says that it cannot connect, or lets us wait in vain.
    with pytest.raises(DatabaseError, match=r"cannot be reached|PostgreSQL behind it is away"):
        caller("enqueue", "mail")


def test_a_pooler_that_is_away_is_said(
    postgres_url: str, place: PooledPlace, pgbouncers: PgBouncers, make_caller: MakeCaller
) -> None:
    own = pgbouncers.start(postgres_url)
    caller = make_caller(PooledPlace(own.url, place.schema).open(busy_timeout=SHORT))
    caller("find")
    own.stop()

    with pytest.raises(DatabaseUnavailable, match="cannot be reached"):
        caller("enqueue", "mail")


def test_a_pool_without_a_free_session_is_busy(
    place: PooledPlace, single: PgBouncer, taken: psycopg.Connection, make_caller: MakeCaller
) -> None:
    caller = make_caller(PooledPlace(single.url, place.schema).open(busy_timeout=SHORT))

    with pytest.raises(DatabaseBusy, match="default_pool_size"):
        caller("enqueue", "mail")
    taken.rollback()

    assert caller("enqueue", "mail").inserted


def test_within_needs_no_second_session_once_the_database_is_known(
    place: PooledPlace, single: PgBouncer, taken: psycopg.Connection
) -> None:
    with PooledPlace(single.url, place.schema).open() as onefold:
        taken.rollback()
        onefold.find()

        taken.execute("select 1")
        assert onefold.within(taken).enqueue("mail").inserted
        taken.commit()


def test_a_pooler_that_accepts_nobody_else_is_said(
    postgres_url: str, place: PooledPlace, pgbouncers: PgBouncers
) -> None:
    full = pgbouncers.start(postgres_url, pool=1, max_client_conn=1)
    with (
        psycopg.connect(full.url),
        PooledPlace(full.url, place.schema).open() as onefold,
        pytest.raises(DatabaseUnavailable, match="max_client_conn"),
    ):
        onefold.enqueue("mail")


def test_a_database_that_does_not_exist_is_said(pgbouncer: PgBouncer) -> None:
    url = url_as(pgbouncer.url, dbname="no_such_database")
    with (
        PooledPlace(url).open() as onefold,
        pytest.raises(DatabaseUnavailable, match="Create it first"),
    ):
        onefold.enqueue("mail")
