"""What is SQLite's alone: one writer per file, and Python's ways of opening transactions."""

import gc
import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from onefold import DatabaseBusy, NewJob, Onefold, WouldDeadlock
from onefold.app.onefold import Within
from onefold.claims import Replay
from tests.fixtures.colours import Store
from tests.fixtures.connections import Effects

SHORT = timedelta(milliseconds=200)


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def raw(store: Store) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(store.path)
    yield connection
    connection.close()


async def test_a_plain_call_beside_an_open_transaction_of_this_thread_is_an_error(
    store: Store, raw: sqlite3.Connection
) -> None:
    onefold = store.open()
    onefold.within(raw).enqueue("email", unique_key="k")

    with pytest.raises(WouldDeadlock, match=r"Use within\(connection\)"):
        onefold.enqueue("email", unique_key="k")
    with pytest.raises(WouldDeadlock):
        await onefold.aenqueue("email", unique_key="k")
    with pytest.raises(WouldDeadlock):
        onefold.claim("import", "sha")
    with pytest.raises(WouldDeadlock):
        onefold.lock("nightly").acquire()
    with pytest.raises(WouldDeadlock):
        onefold.deliveries.take(limit=1, worker="w", lease=SHORT)

    raw.commit()
    assert onefold.enqueue("email", unique_key="k").duplicate


def test_reading_beside_an_open_transaction_of_this_thread_is_fine(
    store: Store, raw: sqlite3.Connection
) -> None:
    onefold = store.open()
    job = onefold.within(raw).enqueue("email")

    assert onefold.get(job.id) is None

    raw.commit()
    assert onefold.get(job.id) is not None


def test_a_connection_that_was_closed_is_forgotten(store: Store, effects: Effects) -> None:
    """Another connection has the file; that a closed one once had it is no matter."""
    onefold = store.open(busy_timeout=SHORT)
    closed = sqlite3.connect(store.path)
    onefold.within(closed).enqueue("email")
    closed.commit()
    closed.close()
    stranger = sqlite3.connect(store.path)
    stranger.execute("begin immediate")

    with pytest.raises(DatabaseBusy):
        onefold.enqueue("email")

    stranger.rollback()
    stranger.close()


# Python 3.13 warns of a connection that is dropped open, which is what this caller does.
@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_connection_that_the_caller_drops_is_not_kept_alive(store: Store) -> None:
    """Its transaction ends with it, as it would without us; else the file would stay locked."""
    onefold = store.open(busy_timeout=SHORT)

    def forget_to_commit() -> None:
        forgotten = sqlite3.connect(store.path)
        onefold.within(forgotten).enqueue("email", unique_key="k")

    forget_to_commit()
    gc.collect()

    assert onefold.enqueue("email", unique_key="k").inserted


OPERATIONS: list[Callable[[Within, str], object]] = [
    lambda within, job: within.enqueue("email"),
    lambda within, job: within.enqueue("email", unique_key="k", on_duplicate="rerun"),
    lambda within, job: within.enqueue_many([NewJob("a", idempotency_key="K"), NewJob("b")]),
    lambda within, job: within.cancel(job),
    lambda within, job: within.delete(job),
    lambda within, job: within.claim("import", "sha"),
    lambda within, job: within.keys.force_release("import", "held"),
    lambda within, job: within.keys.force_settle("import", "held"),
]


@pytest.mark.parametrize("isolation", ["", "DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
def test_no_statement_commits_by_itself_in_legacy_transactions(
    store: Store, effects: Effects, isolation: Any
) -> None:
    """Python's legacy mode begins only before some statements, and would commit the others."""
    onefold = store.open()
    job = onefold.enqueue("email", unique_key="k").id
    onefold.claim("import", "held")
    before = _everything(store)
    for operate in OPERATIONS:
        raw = sqlite3.connect(store.path, isolation_level=isolation)
        operate(onefold.within(raw), job)
        assert raw.in_transaction
        raw.rollback()
        raw.close()

        assert _everything(store) == before


def _everything(store: Store) -> list[Any]:
    connection = sqlite3.connect(store.path)
    tables = ("job", "claim", "duplicate", "duplicate_tally")
    found = [connection.execute(f"select * from onefold_{name}").fetchall() for name in tables]
    connection.close()
    return found


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_fresh_file_is_migrated_in_the_callers_transaction(sqlite_url: str, end: str) -> None:
    """The first use of all may be inside a transaction that has the file locked already."""
    path = sqlite_url.removeprefix("sqlite:///")
    raw = sqlite3.connect(path)
    raw.execute("create table invoice (number integer)")
    raw.commit()
    raw.execute("insert into invoice values (7)")
    with Onefold(sqlite_url, busy_timeout=SHORT) as onefold:
        first = onefold.within(raw).enqueue("invoice.email", unique_key="inv:7")
        assert onefold.within(raw).enqueue("invoice.email", unique_key="inv:7").id == first.id
        getattr(raw, end)()

        again = onefold.within(raw).enqueue("invoice.email", unique_key="inv:7")
        raw.commit()

        assert again.duplicate == (end == "commit")
        assert onefold.get(again.id) is not None
    raw.close()


def test_a_fresh_file_is_migrated_where_the_caller_has_no_transaction_yet(sqlite_url: str) -> None:
    raw = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    with Onefold(sqlite_url) as onefold:
        job = onefold.within(raw).enqueue("email")
        raw.rollback()

        assert onefold.get(job.id) is None
        assert onefold.within(raw).enqueue("email").inserted
        raw.commit()
    raw.close()


def test_a_look_begins_no_transaction(store: Store, raw: sqlite3.Connection) -> None:
    onefold = store.open()
    job = onefold.enqueue("email", unique_key="k")

    assert onefold.within(raw).get(job.id) is not None
    assert [found.id for found in onefold.within(raw).find()] == [job.id]

    assert not raw.in_transaction


def test_what_came_before_a_failed_statement_is_undone(
    store: Store, raw: sqlite3.Connection
) -> None:
    onefold = store.open()
    onefold.migrate()
    raw.execute("create table invoice (id integer)")
    raw.execute(
        "create trigger refuse before insert on onefold_job when new.kind = 'bad'"
        " begin select raise(abort, 'refused by the test'); end"
    )
    with raw:
        raw.execute("insert into invoice values (7)")
        with pytest.raises(sqlite3.IntegrityError, match="refused by the test"):
            onefold.within(raw).enqueue("bad", idempotency_key="p")

    assert raw.execute("select count(*) from invoice").fetchone() == (1,)
    # Its publish key was recorded before the job was refused.
    assert raw.execute("select count(*) from onefold_claim").fetchone() == (0,)


@pytest.mark.parametrize("isolation_level", ["", None])
def test_a_statement_of_the_callers_may_still_be_open(store: Store, isolation_level: Any) -> None:
    onefold = store.open()
    onefold.migrate()
    connection = sqlite3.connect(store.path, isolation_level=isolation_level)
    connection.execute("create table invoice (id integer)")
    if isolation_level is None:
        connection.execute("begin")
    cursor = connection.execute("insert into invoice values (7), (8) returning id")

    with onefold.within(connection).once("invoice", "7") as claim:
        assert claim is not None
        for (number,) in cursor:
            onefold.within(connection).enqueue("email", {"id": number})
    connection.commit()
    connection.close()

    assert {job.payload["id"] for job in onefold.find()} == {7, 8}
    assert isinstance(onefold.claim("invoice", "7"), Replay)
