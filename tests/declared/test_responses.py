"""`Defer.from_response`: what a pressed server asks for, whichever library brought the answer."""

from datetime import UTC, datetime, timedelta
from email.message import Message
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import pytest
from starlette.responses import Response

from onefold import Defer

NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)


def after(retry_after: str | None, **more: str) -> Any:
    headers = more if retry_after is None else {"Retry-After": retry_after, **more}
    deferred = Defer.from_response(SimpleNamespace(status=429, headers=headers), now=NOW)
    assert deferred is not None
    return deferred.after


@pytest.mark.parametrize("status", [200, 301, 400, 404, 429, 500, 502, 503, 504, 529])
def test_a_pressed_server_is_left_alone_and_no_other(status: int) -> None:
    response = SimpleNamespace(status_code=status, headers={"retry-AFTER": "7"})

    deferred = Defer.from_response(response)

    assert (deferred is not None) == (status in {429, 503, 529})
    assert deferred is None or deferred.after == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("0", 0),
        (" 120 ", 120),
        ("1.5", 2),
        ("999999999999", 86400),
        (None, 60),
        ("Tue, 01 Jan 2030 12:00:30 GMT", 30),
        ("Tue, 01 Jan 2030 11:00:00 GMT", 0),
        ("Sat, 01 Jan 2050 00:00:00 GMT", 86400),
        # What cannot be understood says nothing.
        *((text, 60) for text in ("", "soon", "-5", "1e400", "nan", "inf", "1_0", "٣")),
        ("Tue, 01 Jan 2030 12:00:30 -0000", 60),
        ("Tue, 99 Jan 2030 12:00:30 GMT", 60),
    ],
)
def test_retry_after_is_seconds_or_a_date_within_reason(said: str | None, meant: float) -> None:
    assert after(said) == timedelta(seconds=meant)


def test_a_date_is_compared_with_that_of_the_same_response_or_the_clock_of_this_machine() -> None:
    until = "Tue, 01 Jan 2030 12:00:30 GMT"

    assert after(until, date="Tue, 01 Jan 2030 12:00:20 GMT") == timedelta(seconds=10)
    assert after(until, date="today") == timedelta(seconds=30)
    response = SimpleNamespace(status=503, headers={"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"})
    deferred = Defer.from_response(response)
    assert deferred is not None
    assert deferred.after == timedelta(0)


def message() -> Message:
    headers = Message()
    headers["Retry-After"] = "7"
    return headers


@pytest.mark.parametrize(
    "response",
    [
        Response(status_code=429, headers={"Retry-After": "7"}),
        HTTPError("https://example.org", 503, "Busy", message(), None),
        SimpleNamespace(status="429 TOO MANY", status_code=429, headers={"Retry-After": "7"}),
    ],
    ids=["starlette", "urllib", "werkzeug"],
)
def test_the_response_of_any_library_will_do(response: Any) -> None:
    deferred = Defer.from_response(response)

    assert deferred is not None
    assert deferred.after == timedelta(seconds=7)


def test_what_is_made_is_of_the_class_that_was_asked() -> None:
    class Later(Defer):
        pass

    assert isinstance(Later.from_response(SimpleNamespace(status=429, headers={})), Later)
