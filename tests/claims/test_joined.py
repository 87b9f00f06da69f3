"""`once` inside the caller's transaction: the claim, the work and the result commit together."""

import asyncio
import sqlite3
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from onefold import (
    Busy,
    Conflict,
    ConflictingOptions,
    InvalidInput,
    OutcomeUnknown,
    UsageError,
)
from onefold.claims import Done, Unknown, Won
from tests.fixtures.colours import Clock, Coloured, Dialect, Store
from tests.fixtures.connection import Connection, Kind
from tests.fixtures.connections import Effects
from tests.fixtures.patience import LOCK

MINUTE = timedelta(minutes=1)


async def connect(kind: Kind, store: Store, onefold: Coloured) -> tuple[Connection, Coloured]:
    """A connection with a transaction open, and Onefold within it."""
    connection = await kind.connect(store)
    await connection.begin()
    return connection, onefold.within(connection.raw)


async def test_f030_f031_f032_f039_each_consumer_handles_a_message_once_and_in_one_commit(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    for number, consumer in enumerate(("inbox", "mail")):
        for expected in ("won", "replayed"):
            connection, within = await connect(kind, store, onefold)
            async with within.once(consumer, "m1") as claim:
                assert getattr(claim, expected)
                if claim.won:
                    assert claim.guarantee == "exactly once"
                    await connection.execute(effects.insert(number))
                    await within.enqueue(consumer, unique_key="m1")
                    claim.result = {"number": number}
            assert claim.result == {"number": number}
            if store.dialect == "postgres" and expected == "won":
                assert len(effects.numbers) == len(effects.claims) == len(effects.jobs) == number
            await connection.commit()

    assert (effects.numbers, effects.claims) == ([0, 1], [("m1", 1), ("m1", 1)])
    assert effects.jobs == [("inbox", "m1"), ("mail", "m1")]


async def test_f033_of_two_workers_the_second_is_told_busy_and_then_skips(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    """PostgreSQL tells at once; SQLite waits for the file as the connection says."""
    first, within_first = await connect(kind, store, onefold)
    async with within_first.once("inbox", "m1") as claim:
        await first.execute(effects.insert(1))
        claim.result = "first"

        second, within_second = await connect(kind, store, onefold)
        if kind.dialect == "sqlite":
            await second.execute("pragma busy_timeout = 1000")
        with pytest.raises(Busy):
            async with within_second.once("inbox", "m1"):
                pytest.fail("two at once")
        await second.rollback()
    await first.commit()

    await second.begin()
    async with onefold.within(second.raw).once("inbox", "m1") as again:
        assert again.result == "first"
    await second.commit()
    assert effects.numbers == [1]


async def test_an_error_that_the_caller_catches_and_commits_frees_the_key(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    """A joined claim has no lease: held, it would be unknown for ever if the caller commits."""
    connection, within = await connect(kind, store, onefold)
    with pytest.raises(ZeroDivisionError):
        async with within.once("inbox", "m1"):
            raise ZeroDivisionError
    with pytest.raises(InvalidInput) as caught:
        async with within.once("inbox", "m2") as claim:
            claim.result = object()
    await connection.execute(effects.insert(1))
    await connection.commit()

    assert caught.value.field == "result"
    assert effects.numbers == [1]
    for key in ("m1", "m2"):
        assert isinstance(await onefold.claim("inbox", key), Won)


async def test_f038_a_message_that_breaks_a_constraint_costs_only_itself(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    """In PostgreSQL the broken statement has ended the transaction up to the savepoint."""
    connection, within = await connect(kind, store, onefold)
    for message, number in (("a", 1), ("b", 1), ("c", 2)):
        await connection.execute("savepoint item")
        duplicate = (
            pytest.raises(Exception, match=r"(?i)unique") if message == "b" else nullcontext()
        )
        with duplicate:
            async with within.once("inbox", message):
                await connection.execute(effects.insert(number))
        if message == "b":
            await connection.execute("rollback to savepoint item")
    await connection.commit()

    assert effects.numbers == [1, 2]
    assert effects.claims == [("a", 1), ("c", 1)]


async def test_f017_the_same_key_again_in_one_transaction_never_waits_for_itself(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection, within = await connect(kind, store, onefold)

    async with within.once("inbox", "m1") as outer:
        with pytest.raises(Busy):
            async with within.once("inbox", "m1"):
                pytest.fail("reentered")
        with pytest.raises(Busy):
            async with onefold.within(connection.raw).once("inbox", "m1"):
                pytest.fail("reentered")
        await connection.execute(effects.insert(1))
        outer.result = "outer"
    await connection.commit()

    assert (effects.numbers, effects.claims) == ([1], [("m1", 1)])
    assert (await onefold.claim("inbox", "m1")).result == "outer"


async def test_a_joined_claim_has_no_lock_and_no_not_done_and_is_unknown_if_committed_unsettled(
    kind: Kind, store: Store, onefold: Coloured, clock: Clock
) -> None:
    connection, within = await connect(kind, store, onefold)
    with pytest.raises(UsageError, match=r"within\(connection\)\.guard\(lock\)"):
        within.lock("nightly")
    with pytest.raises(ConflictingOptions, match="not_done"):
        await within.once("inbox", "m1", not_done=()).__aenter__()
    await within.claim("inbox", "m1")
    await connection.commit()
    clock.advance(timedelta(days=3650))

    assert isinstance(await onefold.claim("inbox", "m1"), Unknown)
    assert await onefold.deliveries.sweep() == 0


async def test_an_unknown_outcome_is_verified_inside_the_transaction(
    kind: Kind, store: Store, onefold: Coloured, clock: Clock
) -> None:
    for key in ("m1", "m2"):
        await onefold.claim("inbox", key, lease=MINUTE)
    clock.advance(MINUTE)
    connection, within = await connect(kind, store, onefold)

    def found(_key: str) -> Done:
        return Done("found")

    with pytest.raises(OutcomeUnknown):
        async with within.once("inbox", "m1"):
            pytest.fail("an attempt with an unknown outcome was repeated")
    async with within.once("inbox", "m2", verify=found) as claim:
        assert claim.result == "found"
    await connection.rollback()

    assert isinstance(await onefold.claim("inbox", "m2"), Unknown), "the verdict was rolled back"


async def test_f034_f039_a_failed_statement_is_the_error_that_is_raised_and_takes_all_with_it(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    """In PostgreSQL the transaction is dead then, and no word of ours may hide why."""
    connection, within = await connect(kind, store, onefold)
    await connection.execute(effects.insert(1))
    await within.enqueue("invoice.mail", {"number": 1}, unique_key="invoice:1")

    with pytest.raises(Exception, match=r"(?i)unique") as caught:
        async with within.once("inbox", "m1"):
            await connection.execute(effects.insert(1))

    assert not isinstance(caught.value, Conflict)
    await connection.rollback()
    assert (effects.numbers, effects.claims, effects.jobs) == ([], [], [])


@pytest.mark.parametrize("dialect", ["sqlite"])
@pytest.mark.parametrize("colour", ["sync"])
@pytest.mark.parametrize("isolation", ["", None])
async def test_a_transaction_that_sqlite_rolled_back_raises_what_ended_it(
    store: Store, onefold: Coloured, effects: Effects, isolation: str | None
) -> None:
    raw = sqlite3.connect(store.path)
    raw.isolation_level = isolation  # type: ignore[assignment] # typeshed forgot ""
    raw.execute("begin")
    raw.execute(effects.insert(1))

    with pytest.raises(sqlite3.IntegrityError):
        async with onefold.within(raw).once("inbox", "m1"):
            raw.execute(effects.insert(1).replace("insert", "insert or rollback"))

    raw.rollback()
    raw.close()
    assert (effects.numbers, effects.claims) == ([], [])


async def test_a_decorated_function_joins_the_transaction(
    kind: Kind, store: Store, onefold: Coloured
) -> None:
    connection, within = await connect(kind, store, onefold)
    calls: list[int] = []

    def handle(number: int) -> int:
        calls.append(number)
        return number

    decorated = within.once("inbox")(within.function(handle))

    assert [await decorated(1), await decorated(1), await decorated(2)] == [1, 1, 2]
    await connection.commit()
    assert calls == [1, 2]


async def test_f010_a_dropped_connection_frees_the_key_at_once(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection, within = await connect(kind, store, onefold)
    async with within.once("inbox", "m1"):
        await connection.execute(effects.insert(1))
    await connection.close()

    # No lease has to end; but a server takes its moment to notice.
    async with onefold.once("inbox", "m1", wait=LOCK) as claim:
        assert claim.won
    assert effects.numbers == []


async def test_f011_nothing_is_left_on_the_session_for_a_pooler_to_trip_over(
    kind: Kind, store: Store, onefold: Coloured
) -> None:
    """Locks and settings end with the transaction: a pooler in transaction mode may be between."""
    connection, within = await connect(kind, store, onefold)
    async with within.once("inbox", "m1"):
        pass
    await within.enqueue("mail", unique_key="k", idempotency_key="K")
    await connection.commit()
    if store.dialect == "sqlite":
        assert not connection.raw.in_transaction
        return

    held = (
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        " union all select count(*) from pg_listening_channels()"
        " union all select count(*) from pg_settings where name = 'lock_timeout' and setting <> '0'"
    )
    await connection.begin()
    assert await connection.fetch(held) == [(0,), (0,), (0,)]
    await connection.rollback()


@pytest.mark.parametrize("dialect", ["postgres"])
def test_f011_our_own_sessions_keep_nothing_either(
    store: Store,
) -> None:
    onefold = store.open()
    onefold.claim("inbox", "m1")
    with onefold.lock("nightly"):
        pass

    with psycopg.connect(store.url) as connection:
        left = connection.execute(
            "select count(*) from pg_locks join pg_stat_activity using (pid)"
            " where locktype = 'advisory' and state = 'idle'"
        ).fetchone()
    assert left == (0,)


async def test_a_task_started_in_the_body_is_not_the_body(store: Store, kind: Kind) -> None:
    """It inherits the context of the body, and outlives it."""
    if kind.colour == "sync":
        return
    onefold = store.open()
    connection = await kind.connect(store)
    left = asyncio.Event()

    async def later() -> Any:
        await left.wait()
        await connection.begin()
        async with onefold.within(connection.raw).once("inbox", "m1") as again:
            assert again is not None
        await connection.rollback()
        return again.result

    await connection.begin()
    async with onefold.within(connection.raw).once("inbox", "m1") as claim:
        assert claim is not None
        task = asyncio.create_task(later())
        claim.result = "first"
    await connection.commit()
    left.set()

    assert await task == "first"


@pytest.mark.parametrize("dialect", ["postgres"])
def test_two_installations_in_one_database_do_not_lock_each_other_out(
    store: Store, dialect: Dialect
) -> None:
    """Advisory locks belong to the whole database, keys to a schema of it."""
    beside = Store("postgres", store.url, f"{store.schema[:40]}_beside")
    with psycopg.connect(store.url) as ours, psycopg.connect(store.url) as theirs:
        onefold, other = store.open(), beside.open()
        other.migrate()
        with onefold.within(ours).once("inbox", "m1") as claim:
            assert claim is not None

            assert isinstance(other.within(theirs).claim("inbox", "m1"), Won)

        theirs.rollback()
        theirs.execute(f'drop schema "{beside.schema}" cascade'.encode())
    beside.close()
