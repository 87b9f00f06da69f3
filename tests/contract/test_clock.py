"""The clock that tests of applications hold in their hands."""

from datetime import UTC, datetime, timedelta

import pytest

from onefold import InvalidInput
from onefold.testing import Clock

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)


def test_it_stands_still_until_it_is_told_to_move() -> None:
    clock = Clock(NOON)
    assert clock() == clock() == clock.now == NOON


def test_it_moves_by_as_much_as_it_is_told() -> None:
    clock = Clock(NOON)
    assert clock.advance(timedelta(minutes=5)) == NOON + timedelta(minutes=5)
    clock.set(NOON + timedelta(hours=1))
    assert clock() == NOON + timedelta(hours=1)


def test_it_never_goes_back() -> None:
    clock = Clock(NOON)
    with pytest.raises(InvalidInput, match="duration"):
        clock.advance(timedelta(seconds=-1))
    with pytest.raises(InvalidInput, match="moment"):
        clock.set(NOON - timedelta(seconds=1))
    assert clock() == NOON


def test_it_needs_a_time_zone() -> None:
    with pytest.raises(InvalidInput, match="start"):
        Clock(NOON.replace(tzinfo=None))


def test_it_shows_its_time() -> None:
    assert repr(Clock(NOON)) == "Clock(2030-06-01T12:00:00+00:00)"
