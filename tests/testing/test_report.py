"""How a check runs and what it reports: options, findings, threads, event loops, time, its end."""

import asyncio
import os
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import flask
import pytest

from onefold import Defer, InvalidInput, Onefold, Run, Unique, UsageError
from onefold.testing import (
    Coverage,
    NotIdempotent,
    RouteRequest,
    aassert_idempotent,
    assert_idempotent,
    effect,
    enqueued,
)
from onefold.testing.report import without_times
from tests.testing.zoo import Shop

HERE = Path(__file__)


def _line(text: str) -> int:
    """The number of the one line that has this text."""
    (number,) = [
        number
        for number, line in enumerate(HERE.read_text("utf-8").splitlines(), start=1)
        if line.strip() == text
    ]
    return number


def _rows(shop: Shop) -> dict[str, Any]:
    tables = ("account", "payment", "receipt", "purchase", "visit")
    with shop.connect() as connection:
        found = {
            table: connection.execute(f"select * from {table} order by 1").fetchall()
            for table in tables
        }
    connection.close()
    return found


def test_a_doubled_effect(shop: Shop) -> None:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        effect("charge", order_id)

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad, 7)

    text = str(caught.value)
    number = _line('effect("charge", order_id)')
    assert text.startswith("The handler is not idempotent (2 crash points, ")
    assert (
        "Killed here, and delivered again:\n"
        f"  after \"effect 'charge'\" at {HERE}:{number}\n"
        '      effect("charge", order_id)\n'
        "  + effect, once too many: charge 7\n"
        "  What usually helps: give the receiver a key that is the same in every attempt,"
    ) in text
    assert text.endswith("  The same happens:\n    Delivered twice")


def test_a_lost_row(shop: Shop) -> None:
    @shop.onefold.job
    def bad() -> None:
        with shop.connect() as tx:
            sql = "update purchase set status = 'sent' where id = 7 and status = 'new'"
            is_new = tx.execute(sql).rowcount
        if is_new:
            with shop.connect() as tx:
                tx.execute("insert into receipt values (7, 'sent')")

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad)

    lost = [each for each in caught.value.findings if each.scenario.startswith("Killed")]
    assert lost[0].differences[0].startswith("- row of receipt, once missing: ")
    assert lost[0].advice.startswith("commit everything that belongs together")


def test_one_bug_is_shown_once_with_the_other_points(shop: Shop) -> None:
    @shop.onefold.job
    def bad() -> None:
        for number in range(3):
            effect("mail", number)

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad)
    text = str(caught.value)
    assert len(caught.value.findings) > 3
    assert text.count("What usually helps:") == 1
    # The crash with the fewest differences is the most telling one.
    assert text.count("+ effect, once too many: ") == 1
    assert (
        "  The same happens:\n    Delivered twice\n    Killed here: after \"effect 'mail'\" at "
        in (text)
    )


def test_a_passing_check_says_what_it_has_tried(shop: Shop) -> None:
    @shop.onefold.job
    def good() -> None:
        effect("mail", 7, key="7")

    coverage = assert_idempotent(good)

    assert (coverage.crash_points, coverage.skipped) == (2, 0)
    seconds = f"{coverage.seconds:.1f} s"
    assert str(coverage) == f"2 crash points, {coverage.deliveries} deliveries, {seconds}"


def test_a_sample_of_the_crash_points_says_so(shop: Shop) -> None:
    @shop.onefold.job
    def bad() -> None:
        for number in range(20):
            effect("mail", number)

    def found(seed: int) -> list[str]:
        with pytest.raises(NotIdempotent) as caught:
            assert_idempotent(bad, max_crash_points=5, seed=seed)
        assert "(5 crash points (16 more were not tried: see max_crash_points), " in str(
            caught.value
        )
        return [str(each) for each in caught.value.findings]

    assert found(1) == found(1)
    assert found(1) != found(2)


@pytest.mark.parametrize("fails", [False, True])
def test_the_database_is_as_it_was_before(shop: Shop, *, fails: bool) -> None:
    @shop.onefold.job
    def handler() -> None:
        with shop.connect() as tx:
            tx.execute("insert into payment (order_id, amount) values (1, 2)")
            tx.execute("update account set balance = 0")
        shop.onefold.enqueue("mail")
        if fails:
            raise ZeroDivisionError

    before = _rows(shop)
    with pytest.raises(ZeroDivisionError if fails else NotIdempotent):
        assert_idempotent(handler)

    assert _rows(shop) == before
    assert enqueued(shop.onefold) == []


def test_wrong_input_is_a_sentence(shop: Shop) -> None:
    @shop.onefold.job
    def job() -> None: ...

    def function(connection: Any) -> None: ...

    options: Any = {"max_crashes": 3}
    with pytest.raises(UsageError, match="needs the database of the handler: give database=URL"):
        assert_idempotent(function)
    with pytest.raises(InvalidInput, match=r"handler.* must be a job, a route or a function"):
        assert_idempotent(7, onefold=shop.onefold)
    with pytest.raises(UsageError, match="max_crashes"):
        assert_idempotent(job, **options)


def test_a_handler_that_does_nothing_proves_nothing(shop: Shop) -> None:
    @shop.onefold.job
    def idle() -> None: ...

    with pytest.raises(UsageError, match="proves nothing"):
        assert_idempotent(idle)


def test_work_that_is_deferred_without_end_after_a_crash_is_found(shop: Shop) -> None:
    @shop.onefold.job
    def wait_for_ever(run: Run) -> None:
        effect("mail", key=run.key("mail"))
        if run.attempt > 1:
            raise Defer(timedelta(seconds=1))

    with pytest.raises(NotIdempotent, match=r"the work does not end: .* busy or deferred"):
        assert_idempotent(wait_for_ever)


PAY = "insert into payment (order_id, amount) values (7, 5)"
ONCE = "insert into receipt values (7, 'paid') on conflict do nothing"

on_sqlite = pytest.mark.parametrize("shop", ["sqlite"], indirect=True)


def _transact(shop: Shop, *statements: str) -> None:
    with closing(shop.connect()) as connection:
        for sql in statements:
            connection.execute(sql)
        connection.commit()


# --- options ----------------------------------------------------------------------------------


@on_sqlite
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"given": 3}, "given must be a function"),
        ({"onefold": 3}, "onefold must be an Onefold"),
        ({"database": "mysql://x"}, "database must be a URL of SQLite or PostgreSQL"),
        ({"connect": 3}, "connect must be a function"),
        ({"connect": sqlite3.connect}, "connect is for functions that take a connection"),
        ({"ignore": "updated_at"}, "ignore must be a list of columns"),
        ({"ignore": ["payment.amuont"]}, r"ignore names columns that no table has: .*amuont"),
        ({"recorders": [3]}, "recorders must be a list of lists"),
        ({"followed_by": "x"}, "followed_by must be a list"),
        ({"followed_by": [3]}, "followed_by must be calls of the job"),
        ({"max_crash_points": 0}, "max_crash_points must be a whole number from 1"),
        ({"seed": "x"}, "seed must be a whole number"),
    ],
)
def test_a_wrong_value_of_an_option_is_refused(
    shop: Shop, options: dict[str, Any], said: str
) -> None:
    @shop.onefold.job
    def good() -> None:
        effect("mail", key="7")

    with pytest.raises((InvalidInput, UsageError), match=said):
        assert_idempotent(good, **options)
    assert enqueued(shop.onefold) == []


@on_sqlite
def test_a_route_that_refuses_the_request_proves_nothing(shop: Shop) -> None:
    app = flask.Flask("shop")

    @app.post("/orders")
    def order() -> Any:
        _transact(shop, "select 1 from account")
        return "log in first", 401

    with pytest.raises(UsageError, match=r"status 401: b'log in first'\. The check needs"):
        assert_idempotent(app, RouteRequest("POST", "/orders"), onefold=shop.onefold)


@on_sqlite
def test_an_async_function_prepares_each_scenario(shop: Shop) -> None:
    prepared: list[int] = []

    async def given() -> None:
        prepared.append(1)

    @shop.onefold.job
    def good() -> None:
        effect("mail", key="7")

    assert_idempotent(good, given=given)
    assert len(prepared) > 2


# --- jobs ---------------------------------------------------------------------------------------


def test_a_job_whose_unique_key_is_held_is_checked(shop: Shop) -> None:
    @shop.onefold.job(unique=Unique())
    def good(number: int) -> None:
        effect("mail", number, key="7")

    held = good.enqueue(7)

    delayed = good.using(delay=timedelta(hours=1)).call(7)
    assert assert_idempotent(good, delayed).crash_points == 2
    assert [job.id for job in enqueued(shop.onefold)] == [held.id]


def test_a_job_that_is_delivered_again_after_a_later_one(shop: Shop) -> None:
    """The first delivery has done its work, and died before it could report it."""
    change = shop.sql("update purchase set status = ? where id = 7")

    @shop.onefold.job
    def bad(status: str) -> None:
        with shop.connect() as tx:
            tx.execute(change, (status,))

    @shop.onefold.job
    def good(status: str, run: Run) -> None:
        with run.transaction() as tx:
            tx.execute(change, (status,))

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad, "paid", followed_by=[bad.call("shipped")])
    (found,) = caught.value.findings
    assert found.scenario == "Delivered again after the work that followed it"
    assert "status='paid' instead of 'shipped'" in found.differences[0]
    assert found.advice.startswith("a late duplicate has changed what later work left")
    assert_idempotent(good, "paid", followed_by=[good.call("shipped")])


# --- threads and event loops ----------------------------------------------------------------------


def _in_pool(shop: Shop, sql: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_transact, shop, sql).result()


def _in_thread(shop: Shop, sql: str) -> None:
    thread = threading.Thread(target=_transact, args=(shop, sql))
    thread.start()
    thread.join()


@pytest.mark.parametrize("work", [_in_pool, _in_thread])
def test_the_statements_of_threads_are_seen(shop: Shop, work: Any) -> None:
    @shop.onefold.job
    def bad() -> None:
        work(shop, PAY)

    @shop.onefold.job
    def good() -> None:
        work(shop, ONCE)

    with pytest.raises(NotIdempotent):
        assert_idempotent(bad)
    assert assert_idempotent(good).crash_points == 3


def test_blocking_calls_of_an_async_handler_overlap(shop: Shop) -> None:
    @shop.onefold.job
    async def bad() -> None:
        with closing(shop.connect()) as connection:
            found = connection.execute("select 1 from payment where order_id = 7").fetchone()
        if found is None:
            _transact(shop, PAY)

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad)
    assert {each.scenario.split(",")[0] for each in caught.value.findings} == {"Frozen here"}


# --- SQLite: statements that are not read to their end --------------------------------------------


@on_sqlite
def test_a_crash_ends_statements_that_are_not_read_to_their_end(shop: Shop) -> None:
    """A closed connection of sqlite3 keeps the locks of its statements."""
    path = shop.onefold.context.database.url.removeprefix("sqlite:///")

    @shop.onefold.job
    def good() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("begin immediate")
            if connection.execute(f"{ONCE} returning order_id").fetchone():
                connection.execute(PAY)
            connection.execute("commit")

    assert assert_idempotent(good).crash_points == 4


# --- time -----------------------------------------------------------------------------------------


FORMS = (
    "%Y-%m-%d %H:%M:%S",
    "%s",
    "order %Y%m%d%H%M%S",
    "%Y%m%dT%H%M%SZ",
    "INV-%Y%m%d-%H%M%S.pdf",
    "%a, %d %b %Y %H:%M:%S GMT",
)


@on_sqlite
@pytest.mark.parametrize("form", FORMS)
def test_the_present_time_is_not_compared_also_if_it_has_whole_seconds(
    shop: Shop, form: str
) -> None:
    started = datetime.now(UTC)
    number = 0

    def now() -> str:
        """Two clean runs are in the same second, and later ones are not."""
        moment = started + timedelta(seconds=1 if number > 3 else 0)
        return f"{moment:{form}}"

    @shop.onefold.job
    def good() -> None:
        nonlocal number
        number += 1
        with shop.connect() as tx:
            tx.execute(
                "insert into receipt values (7, ?) on conflict (order_id) do update set"
                " text = excluded.text",
                (now(),),
            )

    assert_idempotent(good)


NOON = datetime(2026, 11, 12, 12, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-12 12:00",
        "2026-11-12T12:00Z",
        "2026-11-12T13:00:05+01:00",
        "20261112120005",
        "20261112_120004",
        "20261112120005123456",
        "12:00:05.25",
        "1794484805",
    ],
)
def test_a_present_time(text: str) -> None:
    """A time to the minute is present during this minute."""
    since = int(NOON.timestamp()) * 1_000_000

    assert without_times(f"at {text}, ", since, since + 2_000_000) == "at *, "


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-12 11:59",
        "2026-11-12 12:01",
        "2026-13-12 12:00",
        "20261112120009",
        "20261312120005",
        "20261112-1200050",
        "12:00:09",
        "12:00:05:10",
        "99:00:05",
        "1794484905",
    ],
)
def test_another_time_is_compared(text: str) -> None:
    since = int(NOON.timestamp()) * 1_000_000

    assert without_times(text, since, since + 2_000_000) == text


# --- its end --------------------------------------------------------------------------------------


def test_a_handler_that_creates_tables_is_checked(shop: Shop) -> None:
    """In any order: on SQLite, tables of the same names are at other places of the file then."""
    calls: list[int] = []

    def archive(statement: str) -> None:
        calls.append(1)
        for name in sorted(("old_order", "old_customer"), reverse=len(calls) % 2 == 0):
            _transact(shop, f"create table if not exists {name} (id integer unique)")
        _transact(shop, statement)

    @shop.onefold.job
    def good() -> None:
        archive("insert into old_order values (7) on conflict do nothing")

    @shop.onefold.job
    def bad() -> None:
        archive("insert into old_order select max(id) + 1 from old_order")

    assert assert_idempotent(good).crash_points == 7
    _transact(shop, "drop table if exists old_order")
    with pytest.raises(NotIdempotent, match=r"row of old_order, once too many"):
        assert_idempotent(bad)


def test_a_check_may_be_the_first_use_of_a_file(tmp_path: Path) -> None:
    with Onefold(f"sqlite:///{tmp_path / 'new.db'}") as onefold:

        @onefold.job
        def send(run: Run) -> None:
            effect("mail", key=run.key("mail"))

        assert_idempotent(send)

        assert enqueued(onefold) == []


@on_sqlite
def test_a_check_does_not_wait_for_the_disk(shop: Shop) -> None:
    found: set[int] = set()

    @shop.onefold.job
    def pay(run: Run) -> None:
        with closing(shop.connect()) as own, run.transaction() as tx:
            for connection in (own, tx):
                found.update(connection.execute("pragma synchronous").fetchone())
            tx.execute(PAY)

    assert_idempotent(pay)

    assert found == {0}


@on_sqlite
def test_an_interrupt_puts_the_rows_back(shop: Shop) -> None:
    calls: list[int] = []

    @shop.onefold.job
    def interrupted() -> None:
        calls.append(1)
        _transact(shop, PAY)
        if len(calls) >= 6:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        assert_idempotent(interrupted)
    with closing(shop.connect()) as connection:
        assert connection.execute("select count(*) from payment").fetchone() == (0,)
    assert enqueued(shop.onefold) == []


@on_sqlite
async def test_a_check_that_is_cancelled_ends_and_puts_the_rows_back(shop: Shop) -> None:
    hangs = asyncio.Event()

    @shop.onefold.job
    async def waits(run: Run) -> None:
        effect("mail", key="7")
        if run.attempt > 1:
            hangs.set()
            await asyncio.Event().wait()

    work = asyncio.ensure_future(aassert_idempotent(waits))
    await hangs.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert enqueued(shop.onefold) == []


@on_sqlite
def test_two_checks_at_the_same_time_run_one_after_the_other(shop: Shop) -> None:
    @shop.onefold.job
    def good() -> None:
        _transact(shop, ONCE)

    async def check() -> tuple[Coverage, Coverage]:
        return await asyncio.gather(aassert_idempotent(good), aassert_idempotent(good))

    before = sqlite3.connect
    first, second = asyncio.run(check())
    assert first.deliveries == second.deliveries
    assert sqlite3.connect is before


@on_sqlite
def test_a_check_inside_of_a_handler_is_refused(shop: Shop) -> None:
    @shop.onefold.job
    def inner() -> None:
        effect("mail", key="7")

    @shop.onefold.job
    def outer() -> None:
        assert_idempotent(inner)

    with pytest.raises(UsageError, match="cannot check another one"):
        assert_idempotent(outer)
