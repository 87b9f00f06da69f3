"""What responses mean."""

from datetime import UTC, datetime, timedelta

import pytest

from onefold.push.endpoint_health import hold_after
from onefold.push.response_policy import (
    NoResponse,
    PushOutcome,
    PushResponse,
    excerpt_of,
    exchange_error,
    outcome_of,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def answer(status: int, *headers: tuple[str, str]) -> PushResponse:
    return PushResponse(status, headers, "", 0.25)


DONE, FAILED = PushOutcome("finish"), PushOutcome("fail", endpoint_failed=False)
DOWN, GONE = PushOutcome("fail", endpoint_failed=True), PushOutcome("pause")


@pytest.mark.parametrize(
    ("statuses", "outcome", "in_ack_mode"),
    [
        ((200, 201, 202, 204, 299), DONE, PushOutcome("await_ack")),
        ((100, 101, 199, 300, 301, 304, 308, 400, 401, 404, 408, 422), FAILED, FAILED),
        ((500, 501, 502, 504, 520, 599), DOWN, DOWN),
        ((410,), GONE, GONE),
    ],
)
def test_a_status_says_what_becomes_of_the_job(
    statuses: tuple[int, ...], outcome: PushOutcome, in_ack_mode: PushOutcome
) -> None:
    for status in statuses:
        exchange = answer(status, ("Retry-After", "5"))
        assert outcome_of(exchange, mode="standard", now=NOW) == outcome, status
        assert outcome_of(exchange, mode="ack", now=NOW) == in_ack_mode, status


def test_no_answer_is_a_failure_of_the_endpoint() -> None:
    exchange = NoResponse("no answer within 15 s", 15.0)

    assert outcome_of(exchange, mode="ack", now=NOW) == DOWN


@pytest.mark.parametrize("status", [429, 503, 529])
@pytest.mark.parametrize(
    ("headers", "after"),
    [
        ((), MINUTE),
        ((("Retry-After", "5"),), timedelta(seconds=5)),
        ((("retry-after", "0"),), timedelta(seconds=1)),
        # Its clock is an hour late, and it counts from that.
        (
            (
                ("Date", "Sun, 01 Mar 2026 11:00:00 GMT"),
                ("Retry-After", "Sun, 01 Mar 2026 11:00:30 GMT"),
            ),
            timedelta(seconds=30),
        ),
    ],
)
def test_pressure_is_deferred_for_as_long_as_it_says(
    status: int, headers: tuple[tuple[str, str], ...], after: timedelta
) -> None:
    exchange = answer(status, *headers)

    assert outcome_of(exchange, mode="standard", now=NOW) == PushOutcome("defer", after)


@pytest.mark.parametrize(
    ("exchange", "sort", "message"),
    [
        (answer(500), "PushFailed", "answered 500"),
        (answer(302), "PushFailed", "answered 302, and redirects are not followed"),
        (answer(429), "PushDeferred", "answered 429: no pushes for 60 s"),
        (answer(410), "PushDeferred", "answered 410: the queue is paused"),
        (NoResponse("it hung", 2.0), "PushFailed", "it hung"),
    ],
)
def test_a_failure_tells_what_happened(
    exchange: PushResponse | NoResponse, sort: str, message: str
) -> None:
    error = exchange_error(exchange, outcome_of(exchange, mode="standard", now=NOW))

    assert (error["type"], error["message"]) == (sort, message)
    assert error["duration"] == exchange.duration
    assert error.get("status") == getattr(exchange, "status", None)


@pytest.mark.parametrize(
    ("start", "shown"),
    [
        (b"", ""),
        (b"line\r\n\tnext", "line\n\tnext"),
        (b"\x00\x1b[2J\x7f\xc2\x85bell\x07", "[2Jbell"),
        ("zwö".encode()[:3], "zw\N{REPLACEMENT CHARACTER}"),
        (b"\xff\xfe", "\N{REPLACEMENT CHARACTER}" * 2),
    ],
)
def test_an_excerpt_can_be_stored_and_shown(start: bytes, shown: str) -> None:
    assert excerpt_of(start) == shown


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(0, 0), (1, 0), (4, 0), (5, 1), (6, 2), (7, 4), (10, 32), (11, 60), (12, 60), (10_000, 60)],
)
def test_the_longer_an_endpoint_is_down_the_longer_it_is_left_alone(
    failures: int, seconds: int
) -> None:
    assert hold_after(failures).total_seconds() == seconds
