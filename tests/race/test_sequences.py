"""The sequences in which a prototype of the storage went wrong, step by step, on both databases."""

import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from time import time_ns
from typing import Any

import pytest

from onefold import AlreadyEnqueued, Enqueued, LeaseLost, NewJob, Onefold, SerializationConflict
from onefold.claims import Won
from onefold.model.claim import claim_key, want
from onefold.model.job import OnDuplicate
from onefold.model.new_job import prepare_all
from onefold.operations import claims
from onefold.operations.enqueue import enqueue, policy
from tests.fixtures.place import Place

HOUR = timedelta(hours=1)
INSTANT = timedelta(microseconds=1)
FIRST: Any = {"worker": "first", "lease": HOUR}


@pytest.fixture
def onefold(place: Place) -> Iterator[Onefold]:
    with place.open() as opened:
        yield opened


WORDS: dict[str, Callable[[Onefold, Any], object]] = {
    "retry": lambda onefold, jobs: onefold.deliveries.retry(jobs, after=timedelta(0)),
    "defer": lambda onefold, jobs: onefold.deliveries.defer(jobs, after=timedelta(0)),
    "hand back": lambda onefold, jobs: onefold.deliveries.hand_back(jobs),
    "rescue": lambda onefold, jobs: onefold.deliveries.rescue(),
}


@pytest.mark.parametrize("word", WORDS)
def test_a_queued_key_is_free_for_good_once_the_job_was_taken(onefold: Onefold, word: str) -> None:
    first = onefold.enqueue("a", "first", unique_key="k", unique_while="queued")
    taken = onefold.deliveries.take(worker="first", lease=INSTANT)
    second = onefold.enqueue("a", "second", unique_key="k", unique_while="queued")
    assert second.inserted

    WORDS[word](onefold, taken)
    states = {job.id: job.state for job in onefold.find()}
    state = "retrying" if word in {"retry", "rescue"} else "ready"
    assert states == {first.id: state, second.id: "ready"}
    # The second one has the key, whatever became of the first; and a replay does not take it back.
    assert onefold.enqueue("a", unique_key="k").id == second.id
    onefold.cancel(second.id)
    onefold.cancel(first.id)
    assert onefold.replay(first.id).inserted
    assert onefold.enqueue("a", unique_key="k").inserted


def test_a_queued_key_that_was_never_given_up_is_taken_again_by_a_replay(onefold: Onefold) -> None:
    first = onefold.enqueue("a", unique_key="k", unique_while="queued")
    onefold.cancel(first.id)
    assert onefold.replay(first.id).inserted
    assert onefold.enqueue("a", unique_key="k").id == first.id


@pytest.mark.parametrize("options", [{}, {"unique_while": "exists"}, {"unique_for": HOUR}])
def test_no_trigger_is_stale(onefold: Onefold, options: dict[str, Any]) -> None:
    """Trigger 1 waits behind a running holder that is retried; trigger 2 meets it queued."""
    trigger: dict[str, Any] = {"unique_key": "k", "on_duplicate": "rerun", **options}
    onefold.enqueue("a", "first", **trigger)
    taken = onefold.deliveries.take(**FIRST)
    onefold.enqueue("a", "trigger 1", **trigger)
    onefold.deliveries.retry(taken, after=timedelta(0))
    onefold.enqueue("a", "trigger 2", **trigger)

    ran: list[str] = []
    while taken := onefold.deliveries.take(**FIRST):
        ran += [job.payload for job in taken]
        onefold.deliveries.finish(taken)
    assert ran == ["trigger 2"]


ENDS: dict[str, Callable[[Onefold, Any], object]] = {
    "finish": lambda onefold, jobs: onefold.deliveries.finish(jobs),
    "bury": lambda onefold, jobs: onefold.deliveries.bury(jobs, reason="for the test"),
    "cancel": lambda onefold, jobs: onefold.cancel(jobs[0].id),
    "last failure": lambda onefold, jobs: onefold.deliveries.retry(jobs),
    "rescue": lambda onefold, jobs: onefold.deliveries.rescue(),
    "delete": lambda onefold, jobs: onefold.delete(jobs[0].id),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("options", [{}, {"unique_while": "exists"}, {"unique_for": HOUR}])
def test_however_a_holder_ends_its_successor_runs_and_has_the_key(
    onefold: Onefold, end: str, options: dict[str, Any]
) -> None:
    holder = onefold.enqueue("a", "first", unique_key="k", max_attempts=1, **options)
    taken = onefold.deliveries.take(worker="first", lease=INSTANT)
    assert not onefold.enqueue(
        "a", "next", unique_key="k", on_duplicate="rerun", **options
    ).inserted
    ENDS[end](onefold, taken)
    (successor,) = onefold.deliveries.take(**FIRST)
    assert (successor.payload, successor.id != holder.id) == ("next", True)
    assert onefold.enqueue("a", unique_key="k").id == successor.id


def test_a_publish_key_that_met_a_held_unique_key_stands_for_the_holder(onefold: Onefold) -> None:
    holder = onefold.enqueue("a", unique_key="k")
    second = onefold.enqueue("a", unique_key="k", idempotency_key="p")
    assert (second.id, second.duplicate) == (holder.id, True)
    onefold.deliveries.finish(onefold.deliveries.take(**FIRST))
    # The unique key is free, but this publish has been answered.
    again = onefold.enqueue("a", unique_key="k", idempotency_key="p")
    assert (again.id, again.duplicate, again.state) == (holder.id, True, "completed")


def test_a_refused_call_leaves_nothing_even_if_its_caller_commits(
    place: Place, onefold: Onefold
) -> None:
    onefold.enqueue("a", unique_key="held")
    before = place.contents()
    jobs = [
        NewJob("a", unique_key="new", idempotency_key="p1"),
        NewJob("a", idempotency_key="p2"),
        NewJob("a", unique_key="held", idempotency_key="p3"),
    ]
    with place.transaction() as connection:
        with pytest.raises(AlreadyEnqueued) as refused:
            onefold.within(connection).enqueue_many(jobs, on_duplicate="raise")
        assert refused.value.item == 2
    assert place.contents() == before
    assert onefold.enqueue_many(jobs).inserted == 2


def lost_answer(onefold: Onefold, jobs: list[NewJob], how: OnDuplicate) -> list[list[Enqueued]]:
    """The same prepared call twice, as after a commit whose answer was lost (rule 12)."""
    items = prepare_all(jobs, "", now=time_ns() // 1000)
    database = onefold.context.database
    return [database.transact(lambda sql: enqueue(sql, items, policy(how))) for _ in range(2)]


@pytest.mark.parametrize("how", ["keep", "raise", "replace", "rerun"])
def test_the_same_call_twice_is_one_job_and_no_duplicate(onefold: Onefold, how: Any) -> None:
    jobs = [
        NewJob("a", unique_key="k"),
        NewJob("a", idempotency_key="p"),
        NewJob("a", unique_key="u", unique_while="queued", idempotency_key="q"),
        NewJob("a"),
    ]
    first, second = lost_answer(onefold, jobs, how)
    assert [answer.id for answer in first] == [answer.id for answer in second]
    assert not any(answer.duplicate for answer in first + second)
    assert len(onefold.find()) == 4


def test_a_lost_answer_is_found_by_id_although_the_job_has_run_meanwhile(onefold: Onefold) -> None:
    items = prepare_all(
        [NewJob("a", unique_key="k", idempotency_key="p")], "", now=time_ns() // 1000
    )
    database = onefold.context.database
    (first,) = database.transact(lambda sql: enqueue(sql, items, policy()))
    onefold.deliveries.finish(onefold.deliveries.take(**FIRST))
    newer = onefold.enqueue("a", unique_key="k")
    assert newer.inserted
    (again,) = database.transact(lambda sql: enqueue(sql, items, policy()))
    assert (again.id, again.duplicate, again.state) == (first.id, False, "completed")


def test_a_claim_whose_answer_was_lost_is_won_again_under_the_same_fence(onefold: Onefold) -> None:
    wanted = want(claim_key("", "once", "scope", "k"), lease=HOUR)
    database = onefold.context.database
    first, again = (database.transact(lambda sql: claims.claim(sql, wanted)) for _ in range(2))
    assert isinstance(first, Won)
    assert isinstance(again, Won)
    assert first.claim.fence == again.claim.fence
    onefold.keys.settle(again.claim, "done")
    onefold.keys.settle(again.claim, "done")  # and so is a settle


def test_a_fence_grows_although_its_claim_was_swept_meanwhile(onefold: Onefold) -> None:
    first = onefold.claim("scope", "k", lease=HOUR, retention=INSTANT)
    assert isinstance(first, Won)
    onefold.keys.settle(first.claim)
    assert onefold.deliveries.sweep() == 1
    second = onefold.claim("scope", "k", lease=HOUR)
    assert isinstance(second, Won)
    assert second.claim.fence > first.claim.fence
    with pytest.raises(LeaseLost):
        onefold.keys.settle(first.claim, "too late")


def test_a_legacy_sqlite_transaction_covers_the_first_statement(
    tmp_path: Any, sqlite_url: str
) -> None:
    """Python's own begin would come too late for a statement that it does not know as a write."""
    with Place(sqlite_url).open() as onefold:
        onefold.migrate()
        connection = sqlite3.connect(tmp_path / "onefold.db")
        answer = onefold.within(connection).enqueue("a", unique_key="k")
        connection.rollback()
        assert onefold.get(answer.id) is None
        onefold.within(connection).claim("scope", "k")
        connection.rollback()
        assert isinstance(onefold.claim("scope", "k"), Won)
        connection.close()


def test_a_sqlite_transaction_that_began_by_reading_is_refused_as_a_whole(
    sqlite_url: str,
) -> None:
    place = Place(sqlite_url)
    with place.open() as onefold, place.connection() as connection:
        onefold.enqueue("a")
        connection.execute("begin")
        connection.execute("select count(*) from onefold_job").fetchall()
        onefold.enqueue("a")
        for _ in range(2):
            with pytest.raises(SerializationConflict, match="BEGIN IMMEDIATE"):
                onefold.within(connection).enqueue("a", unique_key="k")
        connection.execute("rollback")
        connection.execute("begin immediate")
        assert onefold.within(connection).enqueue("a", unique_key="k").inserted
        connection.execute("commit")
