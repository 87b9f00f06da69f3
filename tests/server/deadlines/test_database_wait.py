"""A database that is away: requests and pages wait for it a little, and others then not at all."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest

from onefold import Onefold
from onefold.databases import reach
from onefold.databases.postgres.database import PostgresDatabase
from onefold.databases.postgres.pool import give_back
from onefold.databases.reach import waiting
from onefold.operations.statement import Operation, Sql, Statement
from tests.faults.proxy import Proxy
from tests.fixtures.patience import BRIEF, LOCK, until
from tests.fixtures.place import Place, new_schema, postgres_place
from tests.fixtures.served import Api

__all__ = ["new_schema", "postgres_place"]

NEVER = timedelta(hours=1)


@pytest.fixture
def proxy(postgres_place: Place) -> Iterator[Proxy]:
    with closing(Proxy(postgres_place.url)) as proxy:
        yield proxy


@pytest.mark.parametrize("is_silent", [False, True], ids=["refuses", "is silent"])
async def test_a_request_waits_briefly_and_the_next_ones_not_at_all(
    proxy: Proxy, postgres_place: Place, monkeypatch: pytest.MonkeyPatch, *, is_silent: bool
) -> None:
    onefold = Onefold(
        proxy.url, schema=postgres_place.schema, busy_timeout=NEVER, database_wait=BRIEF
    )
    async with onefold:
        api = Api(onefold, request_timeout=NEVER)
        await api.queue()
        if is_silent:
            proxy.hold()
        else:
            proxy.refuse()

        reply = await api("POST", "/v1/queues/payments/jobs", {"payload": {}})
        reply.problem(503, "unavailable")
        assert reply.headers["retry-after"] == "1"

        # From here on, no wait ends before the database is back.
        onefold.context.database.database_wait = NEVER.total_seconds()
        monkeypatch.setattr(reach, "JUST", NEVER.total_seconds())
        keyed = await api("POST", "/v1/queues/payments/pause", idempotency_key="a key")
        page = await api("GET", "/jobs")
        assert [(each.status, each.headers["retry-after"]) for each in (keyed, page)] == [
            (503, "1"),
            (503, "1"),
        ]
        assert (await api("GET", "/healthz")).status == 200

        monkeypatch.setattr(reach, "JUST", 0.0)
        coming = asyncio.create_task(api("GET", "/v1/jobs"))
        proxy.let_go()
        proxy.pick_up()
        assert (await coming).status == 200


async def test_a_short_restart_is_no_error_and_two_lines_in_the_log(
    proxy: Proxy, postgres_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]

    onefold = Onefold(proxy.url, schema=postgres_place.schema, database_wait=LOCK)
    async with onefold:
        api = Api(onefold)
        paths = ["/v1/jobs", "/v1/queues", "/jobs"] * 4
        await asyncio.gather(*(api("GET", path) for path in paths))
        proxy.refuse()
        asked = [asyncio.create_task(api("GET", path)) for path in paths]
        await asyncio.to_thread(until, lines)
        proxy.pick_up()
        replies = await asyncio.gather(*asked)

    assert {reply.status for reply in replies} == {200}
    away, back = lines()
    assert "The database does not answer" in away
    assert "The database answers again" in back


def test_a_lost_connection_that_is_not_asked_is_no_answer(
    postgres_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with postgres_place.open() as onefold:
        database = onefold.context.database
        assert isinstance(database, PostgresDatabase)
        pool, session = database.get_connection(LOCK.total_seconds())
        database._current().reach.failed("it was stopped")
        with waiting(LOCK.total_seconds()):
            session.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        lines = [each.getMessage() for each in caplog.records]
        give_back(pool, session)

    assert ["does not answer" in line for line in lines] == [True]


@pytest.mark.prove
@pytest.mark.parametrize("blocking", [False, True], ids=["awaited", "blocking"])
async def test_a_slow_answer_is_waited_for_while_the_server_accepts_connections(
    postgres_place: Place, *, blocking: bool
) -> None:
    lock = f"hashtext('{postgres_place.schema}')"

    def slow(sql: Sql) -> Operation[str]:
        del sql
        text = f"select pg_advisory_xact_lock_shared({lock})::text, 'slow'"
        ((_, said),) = yield Statement("slow", text, {})
        return str(said)

    async with postgres_place.open() as onefold:
        database = onefold.context.database
        assert isinstance(database, PostgresDatabase)
        await database.aidentity()
        reached = database._current().reach
        with psycopg.connect(postgres_place.url, autocommit=True) as other:
            other.execute(f"select pg_advisory_lock({lock})".encode())
            # Twice as long as to open a connection: the server is asked after half of it.
            with waiting(2 * BRIEF.total_seconds()):
                reading = asyncio.ensure_future(
                    asyncio.to_thread(database.transact, slow, write=False)
                    if blocking
                    else database.atransact(slow, write=False)
                )
            first = await asyncio.to_thread(until, lambda: reached.answered_at)
            await asyncio.to_thread(until, lambda: reached.answered_at > first)
        assert await reading == "slow"
