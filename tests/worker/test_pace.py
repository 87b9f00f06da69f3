"""How many jobs wait beside those that run: pure, and learnt from flight to flight."""

from hypothesis import example, given
from hypothesis import strategies as st

from onefold.worker.queue_monitor import Prefetch


def _after(flights: list[tuple[int, float, float]], *, most: int = 200) -> int:
    """The number after flights, each with the jobs that ended, its length, and the time between."""
    prefetch, now = Prefetch(None, most), 0.0
    for ended, took, between in flights:
        for _ in range(ended):
            prefetch.ended += 1
        now += between
        prefetch.exchanged(took, now)
    return prefetch.size


def test_quick_jobs_are_held_ahead_and_slow_ones_left_to_others() -> None:
    assert Prefetch(None, 200).size == 0, "nothing is known"
    # A hundred jobs end every five milliseconds, and a flight takes four.
    assert _after([(100, 0.004, 0.005)] * 10) > 100
    # Twenty jobs end every ten seconds.
    assert _after([(20, 0.004, 10.0)] * 10) == 0


def test_a_number_that_somebody_has_fixed_stays_and_as_many_wait_for_long() -> None:
    prefetch = Prefetch(7, 7)
    prefetch.exchanged(1.0, 1.0)
    prefetch.ended += 1
    prefetch.exchanged(1.0, 2.0)
    assert prefetch.size == 7
    prefetch.begin_check()
    assert prefetch.surplus(7) == 0


@example([(0, 0.0, 0.0), (2, 0.0, 1.1125369292536007e-308)], 0)
@given(
    st.lists(st.tuples(st.integers(0, 500), st.floats(0, 60), st.floats(0, 3600)), max_size=20),
    st.integers(0, 500),
)
def test_it_is_never_more_than_the_most_and_never_less_than_none(
    flights: list[tuple[int, float, float]], most: int
) -> None:
    assert 0 <= _after(flights, most=most) <= most


def test_waiting_jobs_stay_where_as_many_end_until_the_next_check() -> None:
    prefetch = Prefetch(None, 400)
    prefetch.begin_check()
    prefetch.ended += 300
    assert prefetch.surplus(300) == 0


def test_waiting_jobs_go_back_where_slow_ones_follow_quick_ones() -> None:
    prefetch, now = Prefetch(None, 400), 0.0
    for _ in range(10):
        prefetch.ended += 100
        now += 0.005
        prefetch.exchanged(0.005, now)
    assert prefetch.size > 100
    prefetch.begin_check()
    prefetch.ended += 3
    assert prefetch.surplus(200) == 197
    assert prefetch.size == 0
