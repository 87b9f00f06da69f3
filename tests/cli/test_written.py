from datetime import UTC, datetime, timedelta, timezone

import pytest

from onefold import InvalidInput
from onefold.cli import parsers
from onefold.worker.settings import read_queues


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("30s", 30),
        ("0.5", 0.5),
        ("250ms", 0.25),
        ("5m", 300),
        ("1.5 h", 5400),
        (" 7d ", 604800),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert parsers.duration(text, "lease") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "s", "-5s", "5 weeks", "1e3", "5s5s", "999999999999d"])
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parsers.duration(text, "lease")

    assert caught.value.field == "lease"


def test_a_moment_is_a_day_or_a_time_in_utc_unless_it_says_otherwise() -> None:
    berlin = timezone(timedelta(hours=2))

    assert parsers.moment("2026-03-29", "ended_from") == datetime(2026, 3, 29, tzinfo=UTC)
    assert parsers.moment("2026-03-29T12:00:00+02:00", "ended_from") == datetime(
        2026, 3, 29, 12, tzinfo=berlin
    )


def test_a_moment_may_be_so_long_ago() -> None:
    before = datetime.now(UTC)

    found = parsers.moment("2h", "ended_from")

    assert before <= found + timedelta(hours=2) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("text", "said"), [("9999999d", "is before the year 1"), ("yesterday", "must be a time")]
)
def test_what_is_no_moment_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"ended_from {said}"):
        parsers.moment(text, "ended_from")


def test_queues_are_names_some_with_a_number() -> None:
    assert read_queues("email, default:5,eu:mail:10,a:b") == {
        "email": None,
        "default": 5,
        "eu:mail": 10,
        "a:b": None,
    }
