"""A single keyed enqueue is one statement on PostgreSQL: what it does beside open transactions."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from random import Random
from threading import Barrier, Thread
from typing import Any

import psycopg
import pytest

from onefold import Enqueued, NewJob, Onefold, SerializationConflict, WrongState
from onefold.model.new_job import prepare
from onefold.operations.enqueue import KEEP_HOLDER, enqueue
from tests.fixtures.place import Place
from tests.fixtures.soak import repetitions
from tests.race.waiting import Second

HOUR = timedelta(hours=1)
THREADS = 6
CALLS = repetitions(40, soak=300)


@pytest.fixture
def onefold(postgres_place: Place) -> Iterator[Onefold]:
    with postgres_place.open() as opened:
        yield opened


@pytest.fixture
def caller(postgres_place: Place) -> Iterator[Any]:
    with postgres_place.connection() as connection:
        connection.execute("begin")
        yield connection


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
def test_an_open_insert_is_waited_for(
    onefold: Onefold, caller: Any, postgres_place: Place, end: str
) -> None:
    first = onefold.within(caller).enqueue("a", unique_key="k")

    with Second(postgres_place, again) as second:
        second.is_waiting()
        caller.execute(end)
        answer = second.answer()

    assert answer.duplicate is (end == "commit")
    assert (answer.id == first.id) is (end == "commit")


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


def test_a_savepoint_that_is_rolled_back_frees_the_key(onefold: Onefold, caller: Any) -> None:
    within = onefold.within(caller)
    caller.execute("savepoint before")
    within.enqueue("a", unique_key="k")
    caller.execute("rollback to before")

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


@pytest.mark.parametrize(
    "options",
    [
        {"unique_while": "queued"},
        {"unique_while": "active"},
        {"unique_while": "exists"},
        {"unique_for": timedelta(milliseconds=5)},
        {"unique_while": "active", "unique_for": timedelta(milliseconds=3)},
    ],
    ids=str,
)
def test_many_callers_never_get_two_holders_or_a_job_that_was_rolled_back(
    postgres_place: Place, options: dict[str, Any]
) -> None:
    """Threads enqueue, end and roll back jobs of few keys; each answer names a job that exists."""
    answers: list[list[Enqueued]] = [[] for _ in range(THREADS)]
    errors: list[BaseException] = []
    start = Barrier(THREADS)

    def work(rank: int) -> None:
        random = Random(rank)
        try:
            with postgres_place.open() as onefold, postgres_place.connection() as connection:
                start.wait()
                for _ in range(CALLS):
                    answer = _step(onefold, connection, random, options)
                    if answer is not None:
                        answers[rank].append(answer)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [Thread(target=work, args=(rank,)) for rank in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    stored = {str(job_id) for (job_id,) in postgres_place.rows("select id from {job}")}
    named = [answer for some in answers for answer in some]
    assert {answer.id for answer in named} <= stored
    new = [answer.id for answer in named if answer.inserted]
    assert len(new) == len(set(new)) == len(stored)


def _step(
    onefold: Onefold, connection: psycopg.Connection[Any], random: Random, options: dict[str, Any]
) -> Enqueued | None:
    """One random step; returns the answer of an enqueue that was committed."""
    key = f"k{random.randrange(3)}"
    match random.randrange(10):
        case 0 | 1:
            connection.execute("begin")
            answer = onefold.within(connection).enqueue("a", unique_key=key, **options)
            is_kept = random.random() < 0.5
            connection.execute("commit" if is_kept else "rollback")
            return answer if is_kept else None
        case 2 | 3:
            onefold.deliveries.finish(onefold.deliveries.take(worker="w", lease=HOUR))
        case 4:
            for job in onefold.find(unique_key=key, state="ready", limit=1):
                with suppress(WrongState):  # another thread has ended it
                    onefold.cancel(job.id)
        case _:
            return onefold.enqueue("a", unique_key=key, **options)
    return None
