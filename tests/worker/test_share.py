"""How many jobs each queue may give, where none may have all places."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from onefold.worker.queue_monitor import QueueDemand, allot


def one(*, places: int, used: int = 0, most: int | None = None, others: int = 0) -> int:
    """What a queue that asks alone is given, beside others that hold so many."""
    room = places - used - others
    return allot([QueueDemand("a", most, used)], room, places=places, spread=2).get("a", 0)


def test_a_queue_that_is_alone_has_nearly_all_places() -> None:
    assert one(places=200) == 175
    assert one(places=200, used=170) == 5
    assert one(places=200, used=175) == 0
    assert one(places=200, most=64) == 64
    assert [one(places=places) for places in (1, 2, 8)] == [1, 2, 7]
    # Beside others it has half of what stays free.
    assert one(places=200, others=20) == 60
    assert one(places=200, used=60, others=20) == 0
    assert one(places=200, others=199) == 1
    assert one(places=200, others=200) == 0


def test_queues_that_ask_together_are_given_the_same_and_who_holds_much_takes_nothing() -> None:
    demands = [QueueDemand(str(number), 64, 0) for number in range(8)]
    assert Counter(allot(demands, 200, places=200, spread=2).values()) == {20: 8}

    demands = [QueueDemand("much", 64, 60), QueueDemand("full", 4, 4), QueueDemand("none", 64, 0)]
    assert allot(demands, 90, places=200, spread=2) == {"none": 30}

    # Of endpoints that die one after the other each leaves a place.
    places, held = 200, 0
    for _ in range(13):
        held += one(places=places, most=64, others=held)

    assert held < places


@given(
    st.integers(1, 300).flatmap(
        lambda places: st.tuples(
            st.just(places),
            st.lists(
                st.tuples(st.none() | st.integers(1, places), st.integers(0, places)), max_size=12
            ),
            st.integers(0, places),
        )
    )
)
def test_no_more_is_given_than_there_is_and_who_has_none_is_given_some(
    case: tuple[int, list[tuple[int | None, int]], int],
) -> None:
    places, queues, others = case
    room = places - others - sum(used for _, used in queues)
    demands = [QueueDemand(str(number), *queue) for number, queue in enumerate(queues)]

    given = allot(demands, room, places=places, spread=2)

    assert sum(given.values()) <= max(room, 0)
    assert all(number > 0 for number in given.values())
    hungry = {wish.queue for wish in demands if wish.used == 0}
    assert not hungry or room < 1 or hungry & given.keys()
