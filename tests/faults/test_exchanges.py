"""The connection of a worker's exchanges: what it sends, and what it makes of failures."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from inspect import signature
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import uvloop

from onefold import NewJob, Onefold
from onefold.databases import Exchanges
from onefold.databases.postgres.exchanges import PostgresExchanges
from onefold.operations.statement import Operation, Rows, Sql, Statement
from tests.faults.servers import reached, state_of, until
from tests.fixtures.patience import HANG
from tests.fixtures.place import Place
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.proof import proved
from tests.fixtures.shards import SHARDS, found

NAME = f"exchanges_{uuid4().hex[:12]}"
"""Of this process: others may run the same tests on the same server."""
LEASE = timedelta(minutes=10)
"""Longer than any test waits: a job that stays leased to no worker is not run again."""

Play = Callable[[PostgresExchanges], Awaitable[None]]


LOOPS = [*proved(asyncio.new_event_loop), uvloop.new_event_loop]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def perform(request: pytest.FixtureRequest, postgres_place: Place) -> Callable[[Play], None]:
    """Runs a play with an open connection."""
    return performing(request.param, postgres_place)


def performing(
    new_loop: Callable[[], asyncio.AbstractEventLoop], place: Place
) -> Callable[[Play], None]:
    async def whole(play: Play) -> None:
        async with place.open(name=NAME) as onefold:
            database = onefold.context.database
            await database.aidentity()
            exchanges = database.exchanges()
            assert isinstance(exchanges, PostgresExchanges)
            await answer(exchanges, "select 1")
            await play(exchanges)
            await exchanges.close()

    def run(play: Play) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(whole(play))

    return run


def played(play: Callable[..., Awaitable[None]]) -> Any:
    """A test that has an open connection, and another one to observe it if it wants that."""

    def test(perform: Callable[[Play], None], observer: psycopg.Connection) -> None:
        observes = "observer" in signature(play).parameters
        perform(partial(play, observer=observer) if observes else play)

    test.__name__ = play.__name__
    return test


def asked(text: str, **given: Any) -> Statement:
    return Statement("asked", text, given, alone=True, waits=False)


def send(exchanges: Exchanges, *statements: Statement) -> asyncio.Future[list[Rows] | None] | None:
    """Send statements, one after the other; None if they cannot be sent."""
    answered: asyncio.Future[list[Rows] | None] = asyncio.get_running_loop().create_future()

    def operation(_: Sql) -> Operation[list[Rows]]:
        rows: dict[int, Rows] = {}
        for number, statement in enumerate(statements):
            rows[number] = yield statement
        return list(rows.values())

    return answered if exchanges.send(operation, answered.set_result) else None


async def answer(exchanges: Exchanges, text: str, **given: Any) -> Any:
    """The first value that a statement gives, on a new connection if necessary."""
    while (answered := send(exchanges, asked(text, **given))) is None:  # noqa: ASYNC110 - a second
        await asyncio.sleep(0.01)
    rows = await answered
    assert rows is not None
    return rows[0][0][0]


@played
async def test_values_and_rows_pass(exchanges: PostgresExchanges) -> None:
    given = {"words": ["ä", 'say "no"', "\\", ""], "no": [], "number": -(2**62), "none": None}
    text = "select :words::text[], :no::text[], :number::bigint, :none::text, true"
    for _ in range(2):
        answered = send(exchanges, asked(text, **given))
        assert answered is not None
        assert await answered == [[([*given["words"]], [], given["number"], None, True)]]  # type: ignore[misc]


@played
async def test_each_statement_is_a_transaction(exchanges: PostgresExchanges) -> None:
    number = "select pg_current_xact_id()::text"
    answered = send(exchanges, asked(number), asked(number))
    assert answered is not None
    first, second = await answered or []
    assert first != second


@played
async def test_more_than_a_socket_holds_passes(exchanges: PostgresExchanges) -> None:
    many = "x" * 30_000_000
    first = send(exchanges, asked("select :many::text", many=many))
    second = send(exchanges, asked("select length(:many::text)", many=many))
    assert first is not None
    assert second is not None
    assert await first == [[(many,)]]
    assert await second == [[(len(many),)]]


@played
async def test_an_error_ends_only_its_own_exchange(exchanges: PostgresExchanges) -> None:
    pid = "select pg_backend_pid()"
    before = await answer(exchanges, pid)
    division = "select 1 / :by::integer"
    sent = [send(exchanges, asked(division, by=by)) for by in (1, 0, 1)]
    answers = [await answered for answered in sent if answered is not None]
    assert answers == [[[(1,)]], None, [[(1,)]]]
    # Prepared statements may be the reason: they end with the connection.
    assert await answer(exchanges, pid) != before


@played
async def test_a_statement_that_may_wait_is_not_sent(exchanges: PostgresExchanges) -> None:
    for statement in (
        Statement("asked", "select 1", {}, alone=True),
        Statement("asked", "select 1", {}, waits=False),
        asked("select :odd::text", odd=[1, "one"]),
    ):
        assert await answer(exchanges, "select 1") == 1
        answered = send(exchanges, statement)
        assert answered is not None
        assert await answered is None
        # The caller runs it on the pool: it is not to be sent here again.
        assert send(exchanges, statement) is None


@played
async def test_an_operation_that_raises_has_no_result(exchanges: PostgresExchanges) -> None:
    answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def operation(_: Sql) -> Operation[None]:
        yield asked("select 1")
        raise LookupError

    assert exchanges.send(operation, answered.set_result)
    assert await answered is None
    assert await answer(exchanges, "select 1") == 1


@played
async def test_a_backend_that_ends_loses_all_its_responses(
    exchanges: PostgresExchanges, observer: psycopg.Connection
) -> None:
    pid = "select pg_backend_pid()"
    before = await answer(exchanges, pid)
    sent = [send(exchanges, asked("select pg_sleep(60)::text")) for _ in range(2)]
    observer.execute("select pg_terminate_backend(%s)", [before])
    assert [await answered for answered in sent if answered is not None] == [None, None]
    assert await answer(exchanges, pid) != before


@played
async def test_a_backend_that_ends_while_a_request_is_written_is_replaced(
    exchanges: PostgresExchanges, observer: psycopg.Connection
) -> None:
    pid = "select pg_backend_pid()"
    before = await answer(exchanges, pid)
    sleeping = send(exchanges, asked("select pg_sleep(60)::text"))
    written = send(exchanges, asked("select :many::text", many="x" * 30_000_000))
    observer.execute("select pg_terminate_backend(%s)", [before])
    assert [await each for each in (sleeping, written) if each is not None] == [None, None]
    assert await answer(exchanges, pid) != before


@pytest.mark.prove
@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_server_that_crashes_before_it_has_read_a_request_loses_all_its_responses(
    own_postgres: PostgresServer, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """It sends a warning before it closes the connection. The socket then has an error, too."""
    place = Place(own_postgres.url)
    found(place, 1)

    async def play(exchanges: PostgresExchanges) -> None:
        sleeping = send(exchanges, asked("select pg_sleep(60)::text"))
        sleeps = "select 1 from pg_stat_activity where wait_event = 'PgSleep'"
        await reached(lambda: place.rows(sleeps))
        unread = send(exchanges, asked("select 1"))
        await asyncio.to_thread(own_postgres.crash)
        for answered in (sleeping, unread):
            assert answered is not None
            assert await asyncio.wait_for(answered, HANG) is None

    performing(new_loop, place)(play)


@played
async def test_a_connection_that_ends_while_it_is_idle_is_replaced(
    exchanges: PostgresExchanges, observer: psycopg.Connection
) -> None:
    pid = "select pg_backend_pid()"
    before = await answer(exchanges, pid)
    observer.execute("select pg_terminate_backend(%s)", [before])
    alive = "select 1 from pg_stat_activity where pid = %s"
    await reached(lambda: not observer.execute(alive, [before]).fetchall())
    while (answered := send(exchanges, asked(pid))) is not None:
        await answered
    assert await answer(exchanges, pid) != before


@played
async def test_a_closed_one_sends_nothing(exchanges: PostgresExchanges) -> None:
    await exchanges.close()
    assert send(exchanges, asked("select 1")) is None


async def test_a_connection_that_is_being_opened_is_closed_too(
    postgres_place: Place, observer: psycopg.Connection
) -> None:
    async with postgres_place.open(name=NAME) as onefold:
        await onefold.context.database.aidentity()
        for turns in range(8):
            exchanges = onefold.context.database.exchanges()
            assert exchanges is not None
            assert send(exchanges, asked("select 1")) is None
            for _ in range(turns):
                await asyncio.sleep(0)
            await exchanges.close()
    count = "select count(*) from pg_stat_activity where application_name = %s"
    until(lambda: observer.execute(count, [NAME]).fetchall() == [(0,)])


async def test_a_server_that_refuses_is_left_to_the_pool(postgres_place: Place) -> None:
    tries: list[None] = []

    async def refused() -> psycopg.AsyncConnection[Any]:
        tries.append(None)
        raise psycopg.OperationalError("too many connections")

    exchanges = PostgresExchanges(refused, Sql("postgres"), None)
    for _ in range(20):
        assert send(exchanges, asked("select 1")) is None
        await asyncio.sleep(0)
    await exchanges.close()
    assert len(tries) == 1


@pytest.mark.parametrize(
    ("shards", "prepared", "available"), [(1, None, True), (1, False, False), (SHARDS, None, False)]
)
def test_where_there_are_none(
    postgres_url: str,
    postgres_schema: str,
    shards: int,
    prepared: bool | None,  # noqa: FBT001 - a parameter of the test
    available: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    found(Place(postgres_url, postgres_schema), shards)

    async def play() -> bool:
        async with Onefold(
            postgres_url, schema=postgres_schema, prepared_statements=prepared
        ) as onefold:
            await onefold.context.database.aidentity()
            return onefold.context.database.exchanges() is not None

    assert asyncio.run(play()) == available


# --- workers --------------------------------------------------------------------------------------


@pytest.mark.prove
async def test_a_worker_whose_backends_end_again_and_again_runs_each_job_once(
    postgres_place: Place, observer: psycopg.Connection
) -> None:
    begun: list[int] = []
    jobs, ends = 1_500, 12

    def has_begun(number: int) -> bool:
        return len(begun) > number

    with postgres_place.open() as other:
        async with postgres_place.open(name=NAME) as onefold:

            @onefold.job(kind="work")
            async def work(number: int) -> None:
                begun.append(number)
                await asyncio.sleep(0)

            other.enqueue_many([NewJob("work", {"number": n}) for n in range(jobs)])
            async with onefold.worker(concurrency=10, lease=LEASE, chores=False):
                for end in range(1, ends):
                    await reached(partial(has_begun, end * jobs // ends))
                    observer.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity"
                        " where application_name = %s",
                        [NAME],
                    )
                await reached(
                    lambda: {job.state for job in other.find(limit=jobs)} == {"completed"}
                )
        assert {job.attempt for job in other.find(limit=jobs)} == {1}
    assert sorted(begun) == list(range(jobs))


async def test_a_worker_that_is_cancelled_during_an_exchange_leaves_no_job_leased(
    postgres_place: Place, observer: psycopg.Connection
) -> None:
    waiting = (
        "select 1 from pg_stat_activity where application_name = %s and wait_event = 'relation'"
    )

    with postgres_place.open() as other:
        async with postgres_place.open(name=NAME) as onefold:

            @onefold.job(kind="work")
            async def work() -> None:
                await asyncio.sleep(0)

            worker = asyncio.create_task(onefold.worker(lease=LEASE, chores=False).run())
            first = other.enqueue("work")
            await reached(lambda: state_of(other, first.id) == "completed")
            with psycopg.connect(postgres_place.url) as blocker:
                blocker.execute(f'lock table "{postgres_place.schema}".job'.encode())
                observer.execute(
                    "select pg_notify(%s, 'default')", [f'"{postgres_place.schema}".job']
                )
                await reached(lambda: observer.execute(waiting, [NAME]).fetchall())
                worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
        assert {job.state for job in other.find()} <= {"completed", "ready"}
