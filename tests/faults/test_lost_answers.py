"""Rule 12: a commit whose answer was lost is asked for again, and nothing happens twice."""

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql

from onefold import NewJob, Onefold
from onefold.claims import Replay, Won
from tests.faults.callers import Caller
from tests.faults.proxy import Proxy

LEASE = timedelta(minutes=1)


@pytest.fixture
def caller(proxy: Proxy, migrated: str, make_caller: Callable[[Onefold], Caller]) -> Caller:
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
        {"unique_key": "k", "idempotency_key": "K"},
        {"unique_key": "k", "on_duplicate": "raise"},
        {"unique_key": "k", "on_duplicate": "replace"},
        {"unique_key": "k", "on_duplicate": "rerun"},
        {"unique_key": "k", "idempotency_key": "K", "on_mismatch": "raise"},
    ],
    ids=lambda options: ", ".join(options.values()) or "no key",
)
@pytest.mark.parametrize("answers", [1, 2])
def test_an_enqueue_makes_one_job_and_calls_it_new(
    caller: Caller,
    proxy: Proxy,
    count: Callable[[str], int],
    options: dict[str, str],
    answers: int,
) -> None:
    proxy.lose_answers(answers)

    enqueued = caller("enqueue", "mail", {"n": 1}, **options)

    assert proxy.lost == answers
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
    caller("settle", answer.claim, "paid")
    assert caller("claim", "pay", "k") == Replay("paid", answer.claim.id)


def test_a_takeover_is_won(caller: Caller, proxy: Proxy) -> None:
    first = caller("claim", "pay", "k", lease=timedelta(microseconds=1), takeover="resume")
    proxy.lose_answers()

    answer = caller("claim", "pay", "k", lease=LEASE, takeover="resume")

    assert proxy.lost == 1
    assert isinstance(answer, Won)
    assert answer.claim.fence > first.claim.fence


def test_a_settled_claim_stays_settled(caller: Caller, proxy: Proxy) -> None:
    won = caller("claim", "pay", "k", lease=LEASE)
    proxy.lose_answers()

    caller("settle", won.claim, "paid")

    assert proxy.lost == 1
    assert caller("claim", "pay", "k").result == "paid"


def test_a_lock_is_held_once(caller: Caller, proxy: Proxy) -> None:
    lock = caller("lock", "door")
    proxy.lose_answers()

    caller.wait(lock.acquire())

    assert proxy.lost == 1
    assert not lock.lost
    assert caller.wait(lock.release())


@pytest.mark.parametrize(
    ("word", "options", "state"),
    [
        ("finish", {}, "completed"),
        ("retry", {}, "queued"),
        ("defer", {"after": LEASE}, "queued"),
        ("bury", {"reason": "no"}, "dead"),
        ("hand_back", {}, "queued"),
    ],
)
def test_a_word_about_a_delivery_counts_once(
    caller: Caller, proxy: Proxy, word: str, options: dict[str, object], state: str
) -> None:
    caller("enqueue", "mail")
    (job,) = caller.engine("take", worker="w", lease=LEASE)
    proxy.lose_answers()

    (ended,) = caller.engine(word, [job], **options)

    assert proxy.lost == 1
    assert ended.status in {"accepted", "already"}
    assert ended.state == state
    assert caller("get", job.id).attempt == (0 if word in {"defer", "hand_back"} else 1)


def test_a_rerun_leaves_one_successor(
    caller: Caller, proxy: Proxy, count: Callable[[str], int]
) -> None:
    first = caller("enqueue", "mail", unique_key="k")
    (job,) = caller.engine("take", worker="w", lease=LEASE)
    proxy.lose_answers()

    again = caller("enqueue", "mail", {"n": 2}, unique_key="k", on_duplicate="rerun")
    caller.engine("finish", [job])

    assert proxy.lost == 1
    assert (again.id, again.duplicate) == (first.id, True)
    assert count("job") == 2


def test_a_replayed_job_is_queued_once(caller: Caller, proxy: Proxy) -> None:
    enqueued = caller("enqueue", "mail", unique_key="k")
    caller("cancel", enqueued.id)
    proxy.lose_answers()

    replayed = caller("replay", enqueued.id)

    assert proxy.lost == 1
    assert (replayed.id, replayed.state) == (enqueued.id, "queued")


def test_a_wire_that_is_cut_between_calls_is_laid_anew(
    caller: Caller, proxy: Proxy, count: Callable[[str], int]
) -> None:
    before = proxy.accepted
    proxy.cut()

    enqueued = caller("enqueue", "mail", unique_key="k")

    assert not enqueued.duplicate
    assert count("job") == 1
    assert proxy.accepted > before
