"""A clock that is set back: what was counted by it before must not stand in the way for long."""

from datetime import UTC, datetime, timedelta

import pytest

from onefold import Limit, NewJob
from tests.fixtures.colours import Clock
from tests.fixtures.place import Place

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("group", [None, "a"])
def test_a_clock_that_is_set_back_costs_no_more_than_a_period(
    place: Place, group: str | None
) -> None:
    clock = Clock(datetime(2026, 3, 1, tzinfo=UTC))
    with place.open(clock=clock) as onefold:
        rate = Limit(rate="3/m")
        if group is None:
            onefold.queues.set_limits("mine", limit=rate)
        else:
            onefold.queues.set_limits("mine", group_limit=rate)
        onefold.enqueue_many([NewJob("work", queue="mine", group_key=group) for _ in range(9)])

        def take() -> tuple[int, int | None]:
            taken = onefold.deliveries.take_limited("mine", limit=9, worker="w", lease=HOUR)
            return len(taken.jobs), taken.wait

        clock.advance(HOUR)
        assert take() == (3, 20_000_000)
        clock.advance(-HOUR)
        assert take() == (0, 20_000_000)
        clock.advance(timedelta(minutes=1))
        assert take() == (3, 20_000_000)
