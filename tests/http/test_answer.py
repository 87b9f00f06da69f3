"""Answers: what of them is stored, and how they are given again."""

import gzip
import hashlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onefold import InvalidInput
from onefold.web.http import HttpRequest, HttpResponse
from onefold.web.idempotency.encryption import UnreadableAnswer
from onefold.web.idempotency.policy import RoutePolicy
from onefold.web.idempotency.stored_response import (
    Kept,
    Tombstone,
    from_stored,
    replay,
    to_stored,
)

RETRY = HttpRequest(method="POST", path="/payments")


def given_again(answer: HttpResponse, kept: Kept | None = None, **options: Any) -> HttpResponse:
    stored = from_stored(to_stored(answer, kept or Kept()))
    request = options.pop("request", RETRY)
    return replay(stored, RoutePolicy(**options), request)


def names_of(answer: HttpResponse) -> list[str]:
    return [name.lower() for name, _ in answer.headers]


def values_of(answer: HttpResponse, name: str) -> list[str]:
    return [value for found, value in answer.headers if found.lower() == name.lower()]


# --- The bytes ------------------------------------------------------------------------------------


@given(st.binary() | st.text().map(str.encode))
@example(bytes(range(256)))  # H074
@example(b"\xed\xa0\x80")  # a surrogate
@example(b'{ "b":1.0,\r\n"a" : "\xc3\xbc\xe2\x98\x83", "\\u00fc":1e400 }')  # H075
def test_h074_h075_any_bytes_come_back_as_they_were(body: bytes) -> None:
    assert given_again(HttpResponse(200, (), body)).body == body


def test_text_is_stored_as_text_and_everything_as_json() -> None:
    stored = json.loads(to_stored(HttpResponse(200, (), b'{"a": 1}'), Kept()))

    assert stored == {"v": 1, "status": 200, "text": '{"a": 1}'}
    assert "\\u0000" not in to_stored(HttpResponse(200, (), b"a\x00b"), Kept())


def test_what_is_stored_is_never_much_bigger_than_the_body() -> None:
    for body in (b"\x01" * 3000, b'"' * 3000, b"\xff" * 3000, b"a" * 3000):
        assert len(to_stored(HttpResponse(200, (), body), Kept())) <= 4000 + 100


# --- The headers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [204, 205, 304])
def test_h076_an_answer_without_a_body_has_none_again(status: int) -> None:
    again = given_again(HttpResponse(status, (("ETag", '"a"'),), b""))

    assert (again.status, again.body) == (status, b"")
    assert names_of(again) == ["etag", "idempotent-replayed"]


COOKIES = (("Set-Cookie", "session=1; Path=/"), ("set-cookie", "theme=dark"), ("Set-Cookie", "x"))


def test_h078_cookies_are_not_set_again() -> None:
    """H077: two of them are two lines, in the first answer as where they are allowed again."""
    assert "set-cookie" not in names_of(given_again(HttpResponse(200, COOKIES)))
    both = given_again(HttpResponse(200, COOKIES), Kept(cookies=("session", "theme")))
    assert values_of(both, "set-cookie") == ["session=1; Path=/", "theme=dark"]
    one = given_again(HttpResponse(200, COOKIES), Kept(cookies=("theme",)))
    assert values_of(one, "set-cookie") == ["theme=dark"]
    nameless = given_again(HttpResponse(200, COOKIES), Kept(cookies=("x",)))
    assert "set-cookie" not in names_of(nameless)


OF_THE_CONNECTION = (
    ("Connection", "close, X-Hop"),
    ("connection", "x-leap ,,"),
    ("Keep-Alive", "timeout=5"),
    ("Transfer-Encoding", "chunked"),
    *(("TE", "trailers"), ("Trailer", "X-Sum"), ("Upgrade", "h2c")),
    ("Proxy-Authenticate", "Basic"),
    ("Proxy-Connection", "close"),
    *(("X-Hop", "1"), ("X-Leap", "2")),
)
OF_THE_MOMENT = (
    ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    *(("Server", "uvicorn"), ("X-Request-ID", "r1"), ("Age", "5")),
    *(("traceparent", "00-a-b-01"), ("tracestate", "a=b")),
)


def test_h079_h080_headers_of_the_connection_and_of_the_moment_are_not_given_again() -> None:
    answer = HttpResponse(200, (*OF_THE_CONNECTION, ("X-Kept", "3"), *OF_THE_MOMENT))

    again = given_again(answer)
    told = given_again(answer, Kept(request_id="X-Request-Id", drop=("x-kept",)))

    assert names_of(again) == ["x-kept", "content-length", "idempotent-replayed"]
    assert values_of(told, "Idempotency-Original-Request-Id") == ["r1"]
    assert not {"x-request-id", "x-kept"} & set(names_of(told))


def test_h081_headers_of_the_answer_come_back_in_order_and_spelling() -> None:
    headers = (
        ("Location", "/payments/7"),
        ("Link", "</a>; rel=next"),
        ("ETag", '"a"'),
        ("link", "</b>; rel=prev"),
        ("Content-Language", "de"),
        ("CACHE-CONTROL", "private"),
        ("Content-Disposition", 'attachment; filename="f\xfc.txt"'),
    )

    assert given_again(HttpResponse(201, headers)).headers[:7] == headers


@pytest.mark.parametrize(
    "headers",
    [
        (("Content-Length", "3"),),  # H082
        (("Content-Length", "999"),),
        (("Transfer-Encoding", "chunked"),),  # H085
        (),
    ],
)
def test_h082_h085_the_length_is_that_of_the_stored_bytes(
    headers: tuple[tuple[str, str], ...],
) -> None:
    again = given_again(HttpResponse(200, headers, b"abc"))

    assert values_of(again, "content-length") == ["3"]
    assert "transfer-encoding" not in names_of(again)


# --- Content codings ------------------------------------------------------------------------------

PLAIN = b'{"a": 1}' * 50
ZIPPED = HttpResponse(
    200,
    (("Content-Encoding", "gzip"), ("ETag", '"a"'), ("Vary", "Accept-Encoding")),
    gzip.compress(PLAIN),
)


def accepting(*values: str) -> HttpRequest:
    headers = tuple(("accept-encoding", value) for value in values)
    return HttpRequest(method="POST", path="/", headers=headers)


@pytest.mark.parametrize("accepted", [("gzip",), ("br;q=1, GZIP;q=0.5",), ("*",), ("br", "gzip")])
def test_h083_a_compressed_answer_is_given_to_who_takes_it(accepted: tuple[str, ...]) -> None:
    again = given_again(ZIPPED, request=accepting(*accepted))

    assert (again.body, values_of(again, "etag")) == (ZIPPED.body, ['"a"'])


@pytest.mark.parametrize(
    "accepted", [(), ("identity",), ("gzip;q=0",), ("br",), ("*;q=0",), ("gzip;q=0.0, *",), ("",)]
)
def test_h083_and_unfolded_for_who_does_not(accepted: tuple[str, ...]) -> None:
    again = given_again(ZIPPED, request=accepting(*accepted))

    assert (again.body, values_of(again, "etag")) == (PLAIN, ['W/"a"'])
    assert "content-encoding" not in names_of(again)
    assert values_of(again, "content-length") == [str(len(PLAIN))]


def test_h083_what_we_cannot_unfold_is_not_sent_to_who_did_not_ask_for_it() -> None:
    brotli = HttpResponse(200, (("Content-Encoding", "br"),), b"\x0b\x02\x80abc\x03")

    assert given_again(brotli, request=accepting("br")).body == brotli.body
    refused = given_again(brotli, request=accepting("gzip"))
    assert (refused.status, json.loads(refused.body)["code"]) == (409, "response_not_kept")


# --- Sizes ----------------------------------------------------------------------------------------

SMALL = Kept(max_body=10)
LONG = HttpResponse(
    201,
    (("Location", "/reports/7"), ("Content-Type", "text/csv"), ("ETag", '"a"'), ("X-Kept", "1")),
    b"x" * 11,
)


def test_h101_of_an_answer_that_is_too_big_a_tombstone_is_stored() -> None:
    text = to_stored(LONG, SMALL)
    stored = from_stored(text)

    assert "xxx" not in text
    assert isinstance(stored, Tombstone)
    assert (stored.status, stored.length) == (201, 11)
    assert stored.sha256 == hashlib.sha256(LONG.body).hexdigest()
    assert given_again(HttpResponse(200, (), b"x" * 10), SMALL).body == b"x" * 10  # H103
    mebibyte = bytes(range(256)) * 4096
    assert given_again(HttpResponse(200, (), mebibyte)).body == mebibyte, "by default"


def test_h102_its_retry_is_told_that_it_is_done_and_not_kept() -> None:
    again = given_again(LONG, SMALL)
    problem = json.loads(again.body)

    assert (again.status, problem["code"]) == (409, "response_not_kept")
    assert (problem["original_status"], problem["original_length"]) == (201, 11)
    assert problem["original_sha256"] == hashlib.sha256(LONG.body).hexdigest()
    assert values_of(again, "idempotent-replayed") == ["true"]
    assert "retry-after" not in names_of(again)


def test_h102_or_where_to_look() -> None:
    again = given_again(LONG, SMALL, tombstone="location")

    assert (again.status, again.body) == (201, b"")
    assert again.headers == (
        ("Location", "/reports/7"),
        ("X-Kept", "1"),
        ("Content-Length", "0"),
        ("Idempotent-Replayed", "true"),
    )


@pytest.mark.parametrize(
    ("status", "headers"), [(200, ()), (404, (("Location", "/a"),)), (500, (("Location", "/a"),))]
)
def test_h102_who_cannot_be_told_where_is_told_that(
    status: int, headers: tuple[tuple[str, str], ...]
) -> None:
    again = given_again(HttpResponse(status, headers, b"x" * 11), SMALL, tombstone="location")

    assert again.status == 409


def test_h104_a_huge_block_of_headers_is_cut_down_to_what_matters() -> None:
    headers = (
        ("X-Debug", "x" * 20_000),
        ("Link", "y" * 15_000),
        ("Content-Type", "text/plain"),
        ("Link", "z" * 15_000),
        ("Location", "/a"),
    )

    again = given_again(HttpResponse(200, headers, b"abc"))

    assert again.headers[:3] == (headers[1], headers[2], headers[4])
    assert again.body == b"abc"


def test_h104_a_block_of_just_the_limit_is_kept() -> None:
    headers = (("X-Debug", "x" * (100 - len("X-Debug") - 4)),)

    assert given_again(HttpResponse(200, headers), Kept(max_headers=100)).headers[:1] == headers
    assert given_again(HttpResponse(200, headers), Kept(max_headers=99)).headers[:1] != headers


# --- What was stored by others --------------------------------------------------------------------


@pytest.mark.parametrize(
    "stored",
    [
        *("", "{}", "null", "[]", "x", "[" * 10_000, None, 7, {}),
        {"v": 2, "status": 200, "text": ""},
        {"v": 0, "status": 200, "text": ""},
        {"v": "1", "status": 200, "text": ""},
        {"v": 1},
        {"v": 1, "status": "200", "text": ""},
        {"v": 1, "status": 200},
        {"v": 1, "status": 200, "headers": [["a"]], "text": ""},
        {"v": 1, "status": 200, "base64": "!!!!"},
        {"v": 1, "status": 200, "base64": "ü"},
        {"v": 1, "status": 200, "sha256": "00"},
        {"v": 1, "status": 200, "text": "\ud800"},
    ],
)
def test_h191_what_cannot_be_read_is_told_and_never_absent(stored: object) -> None:
    with pytest.raises(UnreadableAnswer, match="not carried out again") as unreadable:
        from_stored(stored)

    assert "!!!!" not in str(unreadable.value), "what was stored is not told"


def test_h191_what_a_newer_version_adds_is_left_alone() -> None:
    stored = from_stored({"v": 1, "status": 200, "text": "a", "added": True})

    assert stored == HttpResponse(200, (), b"a")


@pytest.mark.parametrize(
    "options", [{"cookies": "session"}, {"drop": "X"}, {"max_body": -1}, {"max_headers": -1}]
)
def test_what_is_kept_is_said_clearly(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Kept(**options)
