"""Two calls for one key, one of them in a transaction that is still open, on both databases.

Rule 6: the second waits; the first commits → duplicate; rolls back → new.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar, cast

import pytest

from onefold import DatabaseBusy, Enqueued, NewJob, Onefold, WouldDeadlock
from onefold.claims import Replay, Won
from tests.fixtures.patience import BRIEF
from tests.fixtures.place import Place
from tests.race.waiting import Second, take_within

T = TypeVar("T")
U = TypeVar("U")

HOUR = timedelta(hours=1)
INSTANT = timedelta(microseconds=1)
FIRST: Any = {"worker": "first", "lease": HOUR}

ENDS = pytest.mark.parametrize("end", ["commit", "rollback"])


@pytest.fixture
def onefold(place: Place) -> Iterator[Onefold]:
    with place.open() as opened:
        yield opened


def enqueuing(**options: Any) -> Callable[[Any], Enqueued]:
    """An enqueue of the same request, under these keys."""
    return lambda onefold: cast("Enqueued", onefold.enqueue("a", {"n": 1}, **options))


by_unique_key = enqueuing(unique_key="k")
by_publish_key = enqueuing(idempotency_key="k")
by_both_keys = enqueuing(idempotency_key="k", unique_key="k")
by_window = enqueuing(unique_key="k", unique_for=HOUR)


def by_batch(onefold: Any) -> Enqueued:
    jobs = [NewJob("a", {"n": 1}, unique_key=key) for key in ("j", "k", "l")]
    answer: Enqueued = onefold.enqueue_many(jobs)[1]
    return answer


def one_after_the_other(
    place: Place, onefold: Onefold, end: str, first: Callable[[Any], T], second: Callable[[Any], U]
) -> tuple[T, U]:
    """A call in an open transaction, and another call that waits for the end of it."""
    with place.connection() as connection:
        connection.execute(place.begin)
        answer = first(onefold.within(connection))
        with Second(place, second) as waiting:
            waiting.is_waiting()
            connection.execute(end)
            return answer, waiting.answer()


@ENDS
@pytest.mark.parametrize("by", [by_unique_key, by_publish_key, by_both_keys, by_batch])
def test_the_second_waits_for_the_first_and_is_its_duplicate_or_new(
    place: Place, onefold: Onefold, by: Callable[[Any], Enqueued], end: str
) -> None:
    first, answer = one_after_the_other(place, onefold, end, by, by)
    assert first.inserted
    if end == "commit":
        assert (answer.id, answer.duplicate) == (first.id, True)
    else:
        assert answer.inserted
        assert onefold.get(first.id) is None
    assert onefold.get(answer.id) is not None


@ENDS
@pytest.mark.parametrize("by", [by_both_keys, by_batch])
def test_a_publish_or_a_batch_waits_for_an_open_holder_of_its_unique_key(
    place: Place, onefold: Onefold, by: Callable[[Any], Enqueued], end: str
) -> None:
    """The publish key then stands for the holder, or for the new job."""
    first, answer = one_after_the_other(place, onefold, end, by_unique_key, by)
    assert answer.duplicate == (end == "commit")
    assert (answer.id == first.id) == (end == "commit")
    assert by(onefold).id == answer.id
    assert {job.id for job in onefold.find(unique_key="k")} == {answer.id}


@ENDS
def test_of_two_who_meet_a_window_that_is_over_one_is_new(
    place: Place, onefold: Onefold, end: str
) -> None:
    old = onefold.enqueue("a", unique_key="k", unique_for=INSTANT)
    first, answer = one_after_the_other(place, onefold, end, by_window, by_window)
    assert first.inserted
    assert answer.id != old.id
    assert answer.duplicate == (end == "commit")
    assert len(onefold.find(unique_key="k")) == 2


@ENDS
@pytest.mark.parametrize("order", ["enqueue, replay", "replay, enqueue", "replay, replay"])
def test_replays_and_enqueues_of_one_key_wait_for_each_other_and_there_is_no_gap(
    place: Place, onefold: Onefold, end: str, order: str
) -> None:
    """The replay's placeholder is gone before its transaction is; the key is not free meanwhile."""
    dead = by_unique_key(onefold).id
    onefold.deliveries.bury(onefold.deliveries.take(**FIRST), reason="for the test")

    def replay(other: Any) -> Enqueued:
        return cast("Enqueued", other.replay(dead))

    calls = [replay if word == "replay" else by_unique_key for word in order.split(", ")]
    first, answer = one_after_the_other(place, onefold, end, *calls)
    assert first.inserted
    assert (first.id == dead) == order.startswith("replay")
    assert answer.duplicate == (end == "commit")
    if answer.duplicate:
        assert answer.id == first.id
    else:
        assert (answer.id == dead) == order.endswith("replay")
    (holder,) = onefold.find(unique_key="k", state="ready")
    assert holder.id == answer.id


@ENDS
@pytest.mark.parametrize("scope", ["queued", "active"])
def test_a_take_wins_against_a_replace(
    place: Place, onefold: Onefold, end: str, scope: Any
) -> None:
    def replace(other: Onefold) -> Enqueued:
        return other.enqueue("a", "new", unique_key="k", unique_while=scope, on_duplicate="replace")

    holder = onefold.enqueue("a", "old", unique_key="k", unique_while=scope)
    taken, answer = one_after_the_other(place, onefold, end, take_within, replace)
    assert [job.id for job in taken] == [holder.id]
    job = onefold.get(holder.id)
    assert job is not None
    if end == "rollback":
        assert (answer.id, answer.replaced, job.payload) == (holder.id, True, "new")
    elif scope == "active":
        assert (answer.id, answer.state, answer.replaced) == (holder.id, "running", False)
        assert job.payload == "old"
    else:
        # Once taken, a `queued` key is free for good: the debounce starts again.
        assert answer.inserted
        assert job.payload == "old"


@ENDS
def test_a_trigger_that_meets_an_open_take_is_not_lost(
    place: Place, onefold: Onefold, end: str
) -> None:
    def trigger(other: Onefold) -> Enqueued:
        return other.enqueue("a", "new", unique_key="k", on_duplicate="rerun")

    holder = onefold.enqueue("a", "old", unique_key="k")
    taken, answer = one_after_the_other(place, onefold, end, take_within, trigger)
    assert answer.id == holder.id
    if end == "commit":
        onefold.deliveries.finish(taken)
    assert [job.payload for job in onefold.deliveries.take(limit=9, **FIRST)] == ["new"]


def test_our_own_call_gives_up_in_time_and_names_within(place: Place, onefold: Onefold) -> None:
    with place.connection() as connection:
        connection.execute(place.begin)
        by_unique_key(onefold.within(connection))
        # In a thread of its own, so that nobody can tell whose transaction it waits for.
        with Second(place, by_unique_key, busy_timeout=BRIEF) as second:
            with pytest.raises(DatabaseBusy, match="within") as refused:
                second.answer()
            assert refused.value.waited >= BRIEF
        connection.execute("commit")
    assert by_unique_key(onefold).duplicate


def test_a_call_that_waits_for_its_own_thread_is_told_so(place: Place) -> None:
    with place.open(busy_timeout=BRIEF) as onefold, place.connection() as connection:
        connection.execute(place.begin)
        first = by_unique_key(onefold.within(connection))
        with pytest.raises((DatabaseBusy, WouldDeadlock), match="within"):
            by_unique_key(onefold)
        # The caller's transaction has not been touched.
        assert by_unique_key(onefold.within(connection)).id == first.id
        connection.execute("commit")
        assert by_unique_key(onefold).id == first.id


@ENDS
def test_on_sqlite_a_leased_claim_waits_for_a_joined_one(sqlite_url: str, end: str) -> None:
    place = Place(sqlite_url)
    with place.open() as onefold, place.connection() as connection:
        onefold.migrate()
        connection.execute(place.begin)
        joined = onefold.within(connection)
        first = joined.claim("scope", "k")
        assert isinstance(first, Won)
        joined.keys.settle(first.claim, "done")
        with Second(place, lambda other: other.claim("scope", "k", lease=HOUR)) as second:
            second.is_waiting()
            connection.execute(end)
            answer = second.answer()
    assert isinstance(answer, Replay if end == "commit" else Won)
