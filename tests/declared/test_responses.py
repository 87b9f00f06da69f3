"""`Defer.from_response`: what a pressed server asks for, whichever library brought the answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.message import Message
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import pytest
from django.http import HttpResponse

from onefold import Defer

NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)


def after(
    retry_after: str | None, *, status: int = 429, name: str = "Retry-After", **more: str
) -> Any:
    headers = more if retry_after is None else {name: retry_after, **more}
    deferred = Defer.from_response(SimpleNamespace(status=status, headers=headers), now=NOW)
    assert deferred is not None
    return deferred.after


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_pressed_server_is_left_alone(status: int) -> None:
    assert after("7", status=status) == timedelta(seconds=7)


@pytest.mark.parametrize("status", [200, 301, 400, 404, 500, 502, 504])
def test_any_other_status_asks_for_nothing(status: int) -> None:
    response = SimpleNamespace(status_code=status, headers={"Retry-After": "7"})

    assert Defer.from_response(response) is None


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
    ],
)
def test_retry_after_is_seconds_or_a_date_within_reason(said: str | None, meant: float) -> None:
    assert after(said) == timedelta(seconds=meant)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "soon",
        "-5",
        "1e400",
        "nan",
        "inf",
        "1_0",
        "٣",
        "Tue, 01 Jan 2030 12:00:30 -0000",
        "Tue, 99 Jan 2030 12:00:30 GMT",
    ],
)
def test_what_cannot_be_understood_says_nothing(said: str) -> None:
    assert after(said) == after(None)


@pytest.mark.parametrize("name", ["retry-after", "RETRY-AFTER", "Retry-After"])
def test_the_case_of_the_header_does_not_matter(name: str) -> None:
    assert after("7", name=name) == timedelta(seconds=7)


def test_a_date_is_compared_with_the_date_of_the_same_response() -> None:
    until = "Tue, 01 Jan 2030 12:00:30 GMT"

    assert after(until, date="Tue, 01 Jan 2030 12:00:20 GMT") == timedelta(seconds=10)
    assert after(until, date="today") == timedelta(seconds=30)


def test_without_one_it_is_compared_with_the_clock_of_this_machine() -> None:
    response = SimpleNamespace(status=503, headers={"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"})

    deferred = Defer.from_response(response)
    assert deferred is not None
    assert deferred.after == timedelta(0)


def test_the_response_of_a_web_framework_will_do() -> None:
    deferred = Defer.from_response(HttpResponse(status=429, headers={"Retry-After": "7"}))

    assert deferred is not None
    assert deferred.after == timedelta(seconds=7)


def test_the_error_of_urllib_will_do() -> None:
    headers = Message()
    headers["Retry-After"] = "7"
    with HTTPError("https://example.org", 503, "Busy", headers, None) as error:
        deferred = Defer.from_response(error)

    assert deferred is not None
    assert deferred.after == timedelta(seconds=7)


def test_the_status_of_werkzeug_has_words_in_it() -> None:
    response = SimpleNamespace(status="429 TOO MANY REQUESTS", status_code=429, headers={})

    assert Defer.from_response(response) is not None


def test_what_is_made_is_of_the_class_that_was_asked() -> None:
    class Later(Defer):
        pass

    assert isinstance(Later.from_response(SimpleNamespace(status=429, headers={})), Later)
