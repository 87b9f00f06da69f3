"""A keyed enqueue and a claim are one statement each on PostgreSQL: beside open transactions."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from onefold import Enqueued, NewJob, Onefold, SerializationConflict
from onefold.claims import Busy, Replay, Won
from onefold.model.new_job import prepare
from onefold.operations.enqueue import KEEP_HOLDER, enqueue
from tests.fixtures.place import Place

HOUR = timedelta(hours=1)


def again(onefold: Onefold) -> Enqueued:
    return onefold.enqueue("a", unique_key="k")


def test_a_duplicate_takes_no_transaction_id(onefold: Onefold, caller: Any) -> None:
    """So it writes nothing, and notifies no worker."""
    holder = again(onefold)
    within = onefold.within(caller)
    item = prepare(NewJob("a", unique_key="k"), "", now=within.context.now)

    (answer,) = within.context.store.transact(
        lambda sql: enqueue(sql, [item], KEEP_HOLDER, notes=False)
    )

    assert answer == Enqueued(holder.id, duplicate=True)
    number = caller.execute("select pg_current_xact_id_if_assigned()::text").fetchone()
    assert number == (None,)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_an_open_end_of_the_holder_is_not_waited_for(
    onefold: Onefold, caller: Any, end: str
) -> None:
    holder = again(onefold)
    onefold.within(caller).cancel(holder.id)

    assert again(onefold).id == holder.id

    caller.execute(end)
    assert again(onefold).duplicate is (end == "rollback")


def test_a_call_sees_its_own_open_job_and_its_own_open_end(onefold: Onefold, caller: Any) -> None:
    within = onefold.within(caller)
    first = within.enqueue("a", unique_key="k")
    assert within.enqueue("a", unique_key="k") == Enqueued(first.id, duplicate=True)
    within.cancel(first.id)

    assert within.enqueue("a", unique_key="k").inserted


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_old_snapshot_does_not_answer(
    onefold: Onefold, postgres_place: Place, level: str
) -> None:
    holder = again(onefold)
    with postgres_place.connection() as connection:
        connection.execute(f"begin isolation level {level}")
        within = onefold.within(connection)
        assert within.enqueue("a", unique_key="k").id == holder.id
        onefold.cancel(holder.id)
        other = again(onefold)
        assert other.inserted

        with pytest.raises(SerializationConflict):
            within.enqueue("a", unique_key="k")


def test_the_lock_timeout_of_a_caller_is_left_alone(onefold: Onefold, caller: Any) -> None:
    caller.execute("set local lock_timeout = 1234")
    onefold.within(caller).enqueue("a", unique_key="k")

    assert caller.execute("show lock_timeout").fetchone() == ("1234ms",)


def test_the_lock_timeout_of_our_connection_ends_with_the_statement(onefold: Onefold) -> None:
    again(onefold)
    with onefold.context.database.handler_transaction() as connection:
        assert connection.execute("show lock_timeout").fetchone() == ("0",)


# --- claims ---------------------------------------------------------------------------------------


def claim(onefold: Onefold, connection: Any, key: str) -> Any:
    """In the caller's transaction, or leased without one."""
    return (onefold if connection is None else onefold.within(connection)).claim("race", key)


@pytest.mark.parametrize("is_leased", [True, False])
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_key_of_an_open_transaction_is_busy_until_it_ends(
    postgres_place: Place, ending: str, *, is_leased: bool
) -> None:
    key = uuid4().hex
    with postgres_place.open() as onefold, postgres_place.connection() as first:
        first.execute("begin")
        won = claim(onefold, first, key)
        with postgres_place.connection() as second:
            second.execute("begin")
            # Even told not to wait at all, it has an answer, and its transaction lives.
            second.execute("set local lock_timeout = 1")
            rival = None if is_leased else second
            during = claim(onefold, rival, key)
            assert isinstance(claim(onefold, rival, uuid4().hex), Won)
            onefold.within(first).keys.settle(won.claim, "first")
            first.execute(ending)
            after = claim(onefold, rival, key)

    assert isinstance(won, Won)
    assert isinstance(during, Busy)
    assert isinstance(after, Replay if ending == "commit" else Won)


def test_a_replay_takes_no_transaction_id_and_no_lock(postgres_place: Place) -> None:
    key = uuid4().hex
    with postgres_place.open() as onefold, postgres_place.connection() as caller:
        onefold.keys.settle(claim(onefold, None, key).claim, 1)
        caller.execute("begin")
        answer = claim(onefold, caller, key)
        number = caller.execute("select pg_current_xact_id_if_assigned()").fetchall()
        locks = caller.execute(
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        ).fetchall()

    assert answer.result == 1
    assert (number, locks) == ([(None,)], [(0,)])
