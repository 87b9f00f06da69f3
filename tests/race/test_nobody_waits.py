"""Who does not wait for an open transaction, on PostgreSQL. On SQLite the wait is for the file.

A call that had to wait would fail: the transaction stays open until the call has returned.
"""

from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from onefold import NewJob, Onefold, SerializationConflict
from tests.fixtures.place import Place
from tests.race.waiting import Second, until

HOUR = timedelta(hours=1)
FIRST: Any = {"worker": "first", "lease": HOUR}

ENDS = pytest.mark.parametrize("end", ["commit", "rollback"])


def test_a_duplicate_in_an_open_transaction_keeps_nobody_waiting(
    onefold: Onefold, caller: Any
) -> None:
    holder = onefold.enqueue("a", unique_key="k", idempotency_key="p")
    taken = onefold.deliveries.take(**FIRST)
    assert onefold.within(caller).enqueue("a", unique_key="k").duplicate
    assert onefold.within(caller).enqueue("a", idempotency_key="p").duplicate

    assert onefold.enqueue("a", unique_key="k").id == holder.id
    assert onefold.enqueue("a", idempotency_key="p").id == holder.id
    assert not onefold.deliveries.heartbeat(taken, lease=HOUR)[0].lost
    assert onefold.keys.duplicates(holder.id).count == 2
    assert onefold.deliveries.fold() == 2
    assert onefold.deliveries.finish(taken)[0].status == "accepted"
    assert onefold.enqueue("a", unique_key="k").inserted
    caller.execute("commit")
    assert onefold.keys.duplicates(holder.id).count == 4


@ENDS
@pytest.mark.parametrize("on_duplicate", ["replace", "rerun"])
def test_a_take_passes_over_a_holder_that_is_being_changed(
    onefold: Onefold, caller: Any, on_duplicate: Any, end: str
) -> None:
    onefold.enqueue("a", "old", unique_key="k")
    other = onefold.enqueue("a", "other")
    onefold.within(caller).enqueue("a", "new", unique_key="k", on_duplicate=on_duplicate)
    assert [job.id for job in onefold.deliveries.take(limit=9, **FIRST)] == [other.id]
    caller.execute(end)
    expected = "new" if end == "commit" else "old"
    assert [job.payload for job in onefold.deliveries.take(limit=9, **FIRST)] == [expected]


@ENDS
def test_a_finish_waits_for_one_locked_row_and_not_with_the_others(
    postgres_place: Place, onefold: Onefold, caller: Any, end: str
) -> None:
    ids = [
        answer.id
        for answer in onefold.enqueue_many([NewJob("a", n, unique_key=f"{n}") for n in range(5)])
    ]
    taken = onefold.deliveries.take(limit=5, **FIRST)
    onefold.within(caller).enqueue("a", "next", unique_key="2", on_duplicate="rerun")
    with Second(postgres_place, lambda other: other.deliveries.finish(taken)) as second:
        second.is_waiting()
        states = {job.id: job.state for job in onefold.find()}
        assert [states[job_id] for job_id in ids] == [
            "completed", "completed", "running", "completed", "completed",
        ]  # fmt: skip
        caller.execute(end)
        assert {ended.status for ended in second.answer()} == {"accepted"}
    after = [job.payload for job in onefold.deliveries.take(limit=9, **FIRST)]
    assert after == (["next"] if end == "commit" else [])


def test_the_next_jobs_are_taken_although_a_finish_has_to_wait(
    postgres_place: Place, onefold: Onefold, caller: Any
) -> None:
    onefold.enqueue("a", unique_key="k")
    taken = onefold.deliveries.take(**FIRST)
    after = onefold.enqueue("b")
    onefold.within(caller).enqueue("a", unique_key="k", on_duplicate="rerun")
    with Second(
        postgres_place,
        lambda other: other.deliveries.finish_and_take(taken, **FIRST),
    ) as second:
        second.is_waiting()
        until(lambda: onefold.find(state="running", kind="b"), "for the next job to be taken")
        caller.execute("commit")
        ended, (job,) = second.answer()
    assert (ended[0].status, job.id) == ("accepted", after.id)


def test_an_open_enqueue_keeps_no_other_key_waiting(onefold: Onefold, caller: Any) -> None:
    onefold.within(caller).enqueue("a", unique_key="k", idempotency_key="p")
    assert onefold.enqueue("a", unique_key="another", idempotency_key="another").inserted
    assert onefold.enqueue("b", unique_key="k").inserted
    assert onefold.tenant("t").enqueue("a", unique_key="k", idempotency_key="p").inserted
    assert len(onefold.deliveries.take(limit=9, **FIRST)) == 3


def test_chores_pass_over_what_a_transaction_has_locked(
    postgres_place: Place, onefold: Onefold, caller: Any
) -> None:
    """A rescue, prune, sweep or fold is nobody's business to wait for, and waits for nobody."""
    with onefold.once("scope", "settled"):
        pass
    onefold.enqueue("a", unique_key="k")
    onefold.deliveries.take(worker="first", lease=timedelta(microseconds=1))
    caller.execute(f"select * from {postgres_place.table('job')} for update")
    assert onefold.deliveries.rescue().total == 0
    assert onefold.deliveries.prune().total == 0
    assert onefold.deliveries.fold() == 0
    assert onefold.deliveries.sweep() == 0
    caller.execute("commit")
    assert onefold.deliveries.rescue().requeued == 1


def test_of_two_callers_who_cross_two_keys_one_is_told_of_the_deadlock(
    postgres_place: Place, onefold: Onefold, caller: Any
) -> None:
    """Two calls in one transaction cannot be ordered for the caller; the docs say enqueue_many."""
    locked = Event()

    def crossed(other: Onefold) -> int:
        with postgres_place.connection() as connection:
            connection.execute("begin")
            other.within(connection).enqueue("a", unique_key="2")
            locked.set()
            return _refused(other, connection, "1")

    onefold.within(caller).enqueue("a", unique_key="1")
    with Second(postgres_place, crossed) as second:
        assert locked.wait(20)
        refused = _refused(onefold, caller, "2")
        assert refused + second.answer() == 1


def _refused(onefold: Onefold, connection: Any, key: str) -> int:
    try:
        onefold.within(connection).enqueue("a", unique_key=key)
    except SerializationConflict:
        return 1
    finally:
        connection.execute("rollback")
    return 0


def test_a_deadlock_of_our_own_is_retried_and_nobody_hears_of_it(
    postgres_place: Place, onefold: Onefold, caller: Any
) -> None:
    """The caller has key 1 and asks for key 0; our batch has key 0 and waits for key 1."""
    onefold.within(caller).enqueue("a", unique_key="1")
    jobs = [NewJob("a", unique_key="0"), NewJob("a", unique_key="1")]
    with Second(postgres_place, lambda other: other.enqueue_many(jobs)) as second:
        second.is_waiting()
        answer = onefold.within(caller).enqueue("a", unique_key="0")
        caller.execute("commit")
        batch = second.answer()
    # If somebody must lose, it is us, who can try again.
    assert answer.inserted
    assert batch.inserted == 0
    assert batch[0].id == answer.id
    assert len(onefold.find()) == 2
