"""Time as it is stored."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.errors import InvalidInput
from onefold.model.timestamps import EPOCH, from_micros, to_micros

zones = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)


@given(st.datetimes(timezones=zones, min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 30)))  # noqa: DTZ001
def test_a_moment_comes_back_to_the_microsecond_in_utc(moment: datetime) -> None:
    back = from_micros(to_micros(moment, "run_at"))

    assert back == moment
    assert back.tzinfo is UTC


@given(st.integers(-(10**16), 10**16))
def test_microseconds_are_counted_from_the_epoch(micros: int) -> None:
    moment = from_micros(micros)

    assert to_micros(moment, "run_at") == micros
    assert moment == EPOCH + timedelta(microseconds=micros)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12))),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=12))),
    ],
)
def test_a_moment_that_utc_cannot_show_is_refused(moment: datetime) -> None:
    with pytest.raises(InvalidInput, match="run_at must be in the years 1 to 9999 of UTC"):
        to_micros(moment, "run_at")


def test_a_stored_moment_is_always_shown() -> None:
    """A delay may lead beyond the last datetime; looking at the job must not fail."""
    for bound in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        assert from_micros(to_micros(bound, "run_at")) == bound
    assert from_micros(2**63 - 1) == datetime.max.replace(tzinfo=UTC)
    assert from_micros(-(2**63)) == datetime.min.replace(tzinfo=UTC)
