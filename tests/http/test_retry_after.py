"""Retry-After, as others write it and as we do."""

from datetime import UTC, datetime, timedelta

import pytest

from onefold.model.retry import LONGEST, parse_retry_after, whole_seconds

NOW = datetime(1999, 12, 31, 23, 59, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("120", 120), ("0", 0), ("007", 7), (" 5\t", 5)),  # H205
        ("Fri, 31 Dec 1999 23:58:59 GMT", 0),  # H206
        ("Fri, 31 Dec 1999 23:59:00 GMT", 0),
        ("Sat, 01 Jan 2000 00:00:00 GMT", 60),  # H207
        ("Saturday, 01-Jan-00 00:00:00 GMT", 60),
        ("Sat Jan  1 00:00:00 2000", 60),
    ],
)
def test_h205_h206_h207_it_is_seconds_or_a_date_in_any_spelling(text: str, seconds: int) -> None:
    assert parse_retry_after(text, now=NOW) == timedelta(seconds=seconds)


def test_h207_it_counts_from_the_date_of_the_response() -> None:
    def wait(date: str) -> timedelta | None:
        return parse_retry_after("Sat, 01 Jan 2000 00:00:00 GMT", now=NOW, date=date)

    assert wait("Fri, 31 Dec 1999 23:50:00 GMT") == 10 * MINUTE
    assert wait("Sat, 01 Jan 2000 00:01:00 GMT") == timedelta(0)
    assert wait("yesterday") == MINUTE


@pytest.mark.parametrize(
    "text",
    [
        *("-1", "1.5", "nan", "inf", "Infinity", "1e3", "+5", "", " ", "٣", "1_000", "0x10"),
        *("5 seconds", "5, 6", "soon", "Fri", "\uff11\uff12"),
        "Fri, 99 Dec 1999 23:59:59 GMT",
        "Sat, 01 Jan 2000 00:00:00 GMT" + " " * 100 + "x",
        "Sat, 01 Jan 0000 00:00:00 GMT",
        "Sat, 01 Jan 2000 00:00:00 +0100",
        "Sat, 01 Jan 2000 00:00:00",
        "Sat, 01 Jan 2000 99:99:99 GMT",
        "Sat, 01 Xxx 2000 00:00:00 GMT",
        "Sat, 01 Jan 2000 ::::::::: GMT",
        "Sat, 01 Jan 2000 :::::::: GMT",
    ],
)
def test_h208_anything_else_is_no_answer(text: str) -> None:
    assert parse_retry_after(text, now=NOW) is None


@pytest.mark.parametrize(("text", "seconds"), [("120.1", 121), ("120.6", 121), ("0.0", 0)])
def test_h208_fractions_are_rounded_up_where_that_is_wished(text: str, seconds: int) -> None:
    assert parse_retry_after(text, now=NOW, fractions=True) == timedelta(seconds=seconds)
    assert parse_retry_after(text, now=NOW) is None
    for other in (".5", "5.", "-0.5", "1.5e3", "nan"):
        assert parse_retry_after(other, now=NOW, fractions=True) is None


@pytest.mark.parametrize("text", ["99999999999", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_h209_an_enormous_wait_is_cut_to_a_bound(text: str) -> None:
    assert parse_retry_after(text, now=NOW) == LONGEST
    assert parse_retry_after(text, now=NOW, longest=MINUTE) == MINUTE


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        (timedelta(milliseconds=1), 1),
        (timedelta(seconds=2, microseconds=1), 3),
        (timedelta(seconds=-5), 1),
        (0, 1),
        (1.5, 2),
        (float("inf"), 86400),
        (float("nan"), 1),
        (timedelta.max, 86400),
    ],
)
def test_h204_ours_is_a_whole_number_of_seconds(wait: timedelta | float, seconds: int) -> None:
    assert whole_seconds(wait) == seconds
    assert whole_seconds(0, least=0) == whole_seconds(-3, least=-5) == 0
    assert whole_seconds(90, most=MINUTE) == 60
