"""Rule 12: a commit whose answer was lost is asked for again, and nothing happens twice."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from onefold import DatabaseUnavailable, NewJob, Onefold
from onefold.claims import Replay, Won
from tests.faults.callers import Caller, MakeCaller
from tests.faults.proxy import Proxy
from tests.faults.servers import PATIENCE, until
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.proof import proved

LEASE = timedelta(minutes=1)


@pytest.fixture
def caller(proxy: Proxy, migrated: str, make_caller: MakeCaller) -> Caller:
    """Onefold behind the wire, with a connection that has been used."""
    caller = make_caller(Onefold(proxy.url, schema=migrated))
    caller("find")
    return caller


@pytest.fixture
def count(observer: psycopg.Connection, migrated: str) -> Callable[[str], int]:
    """How many rows a table has."""

    def count(table: str) -> int:
        query = sql.SQL("select count(*) from {}").format(sql.Identifier(migrated, table))
        row = observer.execute(query).fetchone()
        assert row is not None
        return int(row[0])

    return count


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unique_key": "k"},
        {"idempotency_key": "K"},
        *proved(
            {"unique_key": "k", "idempotency_key": "K"},
            {"unique_key": "k", "on_duplicate": "raise"},
            {"unique_key": "k", "on_duplicate": "replace"},
            {"unique_key": "k", "on_duplicate": "rerun"},
            {"unique_key": "k", "idempotency_key": "K", "on_mismatch": "raise"},
        ),
    ],
    ids=lambda options: ", ".join(options.values()) or "no key",
)
@pytest.mark.parametrize("answers", [1, *proved(2)])
def test_an_enqueue_makes_one_job_and_calls_it_new(
    caller: Caller, proxy: Proxy, count: Callable[[str], int], options: dict[str, str], answers: int
) -> None:
    proxy.lose_answers(answers)

    enqueued = caller("enqueue", "mail", {"n": 1}, **options)

    # A transaction of several statements is not sent again: the server knows that it is stored.
    assert 1 <= proxy.lost <= answers
    assert not enqueued.duplicate
    assert count("job") == 1
    assert count("duplicate") == 0
    assert caller("get", enqueued.id).payload == {"n": 1}


def test_a_batch_is_stored_once(caller: Caller, proxy: Proxy, count: Callable[[str], int]) -> None:
    known = caller("enqueue", "mail", unique_key="known")
    proxy.lose_answers()

    answers = caller(
        "enqueue_many",
        [
            NewJob("mail", unique_key="known"),
            NewJob("mail", unique_key="new"),
            NewJob("mail", unique_key="new"),
            NewJob("mail", idempotency_key="K"),
            NewJob("mail"),
        ],
    )

    assert proxy.lost == 1
    assert [answer.duplicate for answer in answers] == [True, False, True, False, False]
    assert answers[0].id == known.id
    assert answers[1].id == answers[2].id
    assert count("job") == 4


def test_a_claim_is_won(caller: Caller, proxy: Proxy, count: Callable[[str], int]) -> None:
    proxy.lose_answers()

    answer = caller("claim", "pay", "k", lease=LEASE)

    assert proxy.lost == 1
    assert isinstance(answer, Won)
    assert count("claim") == 1
    caller("keys.settle", answer.claim, "paid")
    assert caller("claim", "pay", "k") == Replay("paid", answer.claim.id)


def test_a_takeover_is_won(caller: Caller, proxy: Proxy) -> None:
    first = caller("claim", "pay", "k", lease=timedelta(microseconds=1), takeover="resume")
    proxy.lose_answers()

    answer = caller("claim", "pay", "k", lease=LEASE, takeover="resume")

    assert proxy.lost == 1
    assert isinstance(answer, Won)
    assert answer.claim.fence > first.claim.fence


@pytest.mark.parametrize(
    ("word", "options", "state"),
    [
        ("finish", {}, "completed"),
        ("retry", {}, "retrying"),
        ("defer", {"after": LEASE}, "scheduled"),
        ("bury", {"reason": "no"}, "dead"),
        ("hand_back", {}, "ready"),
    ],
)
def test_a_word_about_a_delivery_counts_once(
    caller: Caller, proxy: Proxy, word: str, options: dict[str, object], state: str
) -> None:
    caller("enqueue", "mail")
    (job,) = caller("deliveries.take", worker="w", lease=LEASE)
    proxy.lose_answers()

    (ended,) = caller(f"deliveries.{word}", [job], **options)

    assert proxy.lost == 1
    assert ended.status in {"accepted", "already"}
    assert ended.state == state
    assert caller("get", job.id).attempt == (0 if word in {"defer", "hand_back"} else 1)


CALLS: dict[str, tuple[Callable[[Caller], Any], Callable[[Caller, Any], object]]] = {
    "cancel": (lambda on: on("enqueue", "mail"), lambda on, made: on("cancel", made.id)),
    "delete many": (
        lambda on: on("enqueue", "mail"),
        lambda on, _: on("dead.delete", state="ready") == 1,
    ),
    "replay many": (
        lambda on: on("cancel", on("enqueue", "mail").id),
        lambda on, _: on("dead.replay", state="cancelled").inserted == 1,
    ),
    "release": (
        lambda on: on("claim", "pay", "k", lease=LEASE),
        lambda on, won: on("keys.release", won.claim),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_answers_what_it_has_done(caller: Caller, proxy: Proxy, name: str) -> None:
    """What it did cannot be done again: a second try of the same would find nothing to do."""
    prepare, call = CALLS[name]
    made = prepare(caller)
    proxy.lose_answers()

    assert call(caller, made) is True
    assert proxy.lost == 1


def test_a_commit_that_never_arrived_is_not_taken_for_one(
    caller: Caller, proxy: Proxy, observer: psycopg.Connection
) -> None:
    """The server has the transaction open, and ends it when it notices that its client is gone."""
    enqueued = caller("enqueue", "mail")
    proxy.swallow_commit()
    asked = (
        "select 1 from pg_stat_activity"
        " where query like '%pg_xact_status%' and pid <> pg_backend_pid()"
    )

    def let_the_server_notice() -> None:
        until(lambda: proxy.lost and observer.execute(asked).fetchall())
        proxy.drop_swallowed()

    with ThreadPoolExecutor(1) as thread:
        noticed = thread.submit(let_the_server_notice)
        assert caller("cancel", enqueued.id)
        noticed.result(PATIENCE)

    assert proxy.lost == 1
    assert caller("get", enqueued.id).state == "cancelled"


@pytest.mark.prove
def test_another_server_does_not_know_the_commit(
    proxy: Proxy,
    migrated: str,
    make_caller: MakeCaller,
    observer: psycopg.Connection,
    *,
    own_postgres: PostgresServer,
    postgres_url: str,
) -> None:
    """As after a failover: it has committed a transaction of the same number, which is another."""
    with Onefold(own_postgres.url, schema=migrated) as first:
        first.migrate()
    with psycopg.connect(own_postgres.url) as connection:
        newest = _newest_transaction(connection)
    until(lambda: any(_newest_transaction(observer) > newest + 100 for _ in range(200)))
    proxy.lead_to(own_postgres.url)
    caller = make_caller(Onefold(proxy.url, schema=migrated))
    caller("find")
    proxy.lose_answers()
    proxy.lead_to(postgres_url)

    stored = caller("enqueue_many", [NewJob("mail", unique_key="k"), NewJob("mail")])

    assert proxy.lost == 1
    assert {job.id for job in caller("find")} == {job.id for job in stored}


@pytest.mark.prove
def test_a_number_that_is_used_again_after_a_crash_is_not_taken_for_the_commit(
    proxy: Proxy, migrated: str, make_caller: MakeCaller, *, own_postgres: PostgresServer
) -> None:
    """The transaction was open when the server crashed, and nothing of it was written."""
    with Onefold(own_postgres.url, schema=migrated) as first:
        first.migrate()
    proxy.lead_to(own_postgres.url)
    jobs = [NewJob("mail", unique_key="k"), NewJob("mail")]

    def crash() -> None:
        until(lambda: proxy.lost)
        proxy.refuse()
        own_postgres.crash()
        own_postgres.start()
        with psycopg.connect(own_postgres.url, autocommit=True) as connection:
            for _ in range(100):
                _newest_transaction(connection)
        proxy.pick_up()

    onefold = Onefold(proxy.url, schema=migrated, busy_timeout=timedelta(minutes=1))
    caller = make_caller(onefold)
    caller("find")
    with ThreadPoolExecutor(1) as thread:
        proxy.swallow_commit()
        crashed = thread.submit(crash)
        stored = caller("enqueue_many", jobs)
        crashed.result(PATIENCE)
        assert {job.id for job in caller("find")} == {job.id for job in stored}


def _newest_transaction(connection: psycopg.Connection) -> int:
    ((number,),) = connection.execute("select pg_current_xact_id()::text::bigint").fetchall()
    return int(number)


def test_a_commit_that_stays_open_is_given_up(
    proxy: Proxy, migrated: str, make_caller: MakeCaller
) -> None:
    caller = make_caller(Onefold(proxy.url, schema=migrated, busy_timeout=timedelta(seconds=1)))
    enqueued = caller("enqueue", "mail")
    proxy.swallow_commit()

    with pytest.raises(DatabaseUnavailable, match="not known"):
        caller("cancel", enqueued.id)

    proxy.drop_swallowed()


def test_a_wire_that_is_cut_between_calls_is_laid_anew(
    caller: Caller, proxy: Proxy, count: Callable[[str], int]
) -> None:
    before = proxy.accepted
    proxy.cut()

    enqueued = caller("enqueue", "mail", unique_key="k")

    assert not enqueued.duplicate
    assert count("job") == 1
    assert proxy.accepted > before
