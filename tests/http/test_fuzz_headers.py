"""Whatever stands in a header, its reader answers: with a value, or with an error of ours."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onefold.model.retry import parse_retry_after
from onefold.web.http import (
    HttpRequest,
    HttpResponse,
    accepts_coding,
    codings,
    decoded,
    prefers_html,
)
from onefold.web.idempotency.body import Digesting
from onefold.web.idempotency.encryption import Sealing, UnreadableAnswer
from onefold.web.idempotency.fingerprint import Fields
from onefold.web.idempotency.key import KeyRules, read_key
from onefold.web.idempotency.policy import RoutePolicy
from onefold.web.idempotency.stored_response import (
    Kept,
    cookie_name,
    from_stored,
    kept_headers,
    replay,
    to_stored,
)
from onefold.web.problems import KEY_REUSED, Refused, make
from tests.fixtures.proof import repetitions
from tests.http.fingerprints import again, fingerprint

# A bound on time would fail on a busy machine; what hangs is ended by the time limit of a test.
MANY = settings(max_examples=repetitions(30, soak=1_000), deadline=None)
NOW = datetime(2026, 1, 1, tzinfo=UTC)

ANYTHING = st.text(max_size=60) | st.binary(max_size=60).map(lambda value: value.decode("latin-1"))
# Most of what breaks a parser is made of what it looks for.
SYNTAX = st.text(alphabet="\"\\;,=*/ \tq.019aAzZé%:@?()'+-", max_size=40)
VALUE = ANYTHING | SYNTAX
NAME = st.sampled_from(
    ["Connection", "Set-Cookie", "Content-Encoding", "Content-Type", "Location", "Link", "X", ""]
)
LATIN = st.text(alphabet=st.characters(max_codepoint=255), max_size=40)
HEADERS = st.lists(st.tuples(NAME, LATIN), max_size=6).map(tuple)


def request(**values: str) -> HttpRequest:
    headers = tuple((name.replace("_", "-"), value) for name, value in values.items())
    return HttpRequest(method="POST", path="/", headers=headers)


@given(values=st.lists(VALUE, max_size=3), strict=st.booleans(), uuids=st.booleans())
@MANY
def test_keys(values: list[str], strict: bool, uuids: bool) -> None:  # noqa: FBT001
    rules = KeyRules(strict=strict, format="uuid" if uuids else None, normalize="uuid")
    sent = HttpRequest(
        method="POST", path="/", headers=tuple(("idempotency-key", value) for value in values)
    )
    try:
        key = read_key(sent, rules)
    except Refused:
        return
    if key is None:
        assert values == []
    else:
        assert 1 <= len(key) <= 255
        assert key.isascii()
        assert key.isprintable()


@given(key=st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), min_size=1))
@MANY
def test_h023_h026_every_printable_key_can_be_sent_in_quotes_and_means_itself(key: str) -> None:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')

    for rules in (KeyRules(), KeyRules(strict=True)):
        assert read_key(request(idempotency_key=f'"{escaped}"'), rules) == key


@given(text=VALUE, date=VALUE | st.none(), fractions=st.booleans())
@MANY
def test_retry_after(text: str, date: str | None, fractions: bool) -> None:  # noqa: FBT001
    wait = parse_retry_after(text, now=NOW, date=date, fractions=fractions)

    assert wait is None or timedelta(0) <= wait <= timedelta(days=1)


@given(
    day=st.integers(0, 40),
    month=st.sampled_from(["Jan", "Feb", "Xyz"]),
    year=st.integers(0, 9999),
    time=st.text(alphabet="0123456789:", min_size=8, max_size=8),
)
@MANY
def test_retry_after_as_a_date(day: int, month: str, year: int, time: str) -> None:
    for text in (
        f"Sat, {day:02} {month} {year:04} {time} GMT",
        f"Saturday, {day:02}-{month}-{year % 100:02} {time} GMT",
        f"Sat {month} {day:2} {time} {year:04}",
    ):
        wait = parse_retry_after(text, now=NOW)
        assert wait is None or timedelta(0) <= wait <= timedelta(days=1)


@given(accept=VALUE)
@MANY
def test_accept(accept: str) -> None:
    asked = request(accept=accept, accept_encoding=accept)

    assert prefers_html(asked) in {True, False}
    assert accepts_coding(asked, "gzip") in {True, False}
    assert make(KEY_REUSED).answer(asked).status == 422


@given(path=st.text(max_size=40), query=VALUE)
@MANY
def test_paths_in_problems(path: str, query: str) -> None:
    answer = make(KEY_REUSED).answer(HttpRequest(method="POST", path=path, query=query))
    instance = json.loads(answer.body)["instance"]

    assert instance.isascii()
    assert instance.startswith("/")
    assert not set(instance) & set(' "<>\\\r\n')


@given(value=VALUE)
@MANY
def test_cookies(value: str) -> None:
    name = cookie_name(value)

    assert "=" not in name
    assert ";" not in name


@given(headers=HEADERS, cookies=st.lists(LATIN, max_size=2).map(tuple), limit=st.integers(0, 200))
@MANY
def test_headers_that_are_kept(
    headers: tuple[tuple[str, str], ...], cookies: tuple[str, ...], limit: int
) -> None:
    left = kept_headers(headers, Kept(cookies=cookies, max_headers=limit))

    assert set(left) <= set(headers)
    assert sum(len(name) + len(value) + 4 for name, value in left) <= limit
    assert "connection" not in {name.lower() for name, _ in left}


@given(
    status=st.integers(200, 599),
    headers=HEADERS,
    body=st.binary(max_size=100),
    accepted=VALUE,
    limit=st.integers(0, 100),
)
@MANY
def test_answers(
    status: int, headers: tuple[tuple[str, str], ...], body: bytes, accepted: str, limit: int
) -> None:
    stored = from_stored(to_stored(HttpResponse(status, headers, body), Kept(max_body=limit)))
    again = replay(stored, RoutePolicy(tombstone="location"), request(accept_encoding=accepted))

    assert again.value("Idempotent-Replayed") == "true"
    length = again.value("Content-Length")
    assert length is None or int(length) == len(again.body)


@given(stored=VALUE | st.dictionaries(VALUE, VALUE | st.integers() | st.none(), max_size=4))
@MANY
def test_what_was_stored(stored: object) -> None:
    with pytest.raises(UnreadableAnswer):
        from_stored(stored)


@given(sealed=VALUE, place=VALUE)
@MANY
def test_what_was_sealed(sealed: str, place: str) -> None:
    sealing = Sealing({"a": bytes(32)}, current="a")

    for text in (sealed, f"sealed1:a:{sealed}"):
        with pytest.raises(UnreadableAnswer):
            sealing.open(text, place=place)


@given(body=st.binary(max_size=100), applied=st.lists(VALUE | st.just("gzip"), max_size=3))
@MANY
def test_content_codings(body: bytes, applied: list[str]) -> None:
    unfolded = decoded(body, codings(applied), longest=1000)

    assert unfolded is None or len(unfolded) <= max(1000, len(body))


FORMS = st.sampled_from(
    [
        "multipart/form-data; boundary=b",
        'multipart/form-data; boundary="b"',
        "application/x-www-form-urlencoded",
        "application/json",
    ]
)
PIECES = st.lists(
    st.binary(max_size=20)
    | st.sampled_from(
        [
            b"--b\r\n",
            b"--b--\r\n",
            b'Content-Disposition: form-data; name="a"\r\n',
            b"Content-Type: text/plain\r\n",
            b"\r\n",
            b"a=1&",
            b'{"a":',
            b"1e5",
            b"}",
        ]
    ),
    max_size=12,
)


@given(pieces=PIECES, content_type=FORMS | VALUE, coding=VALUE | st.just("gzip"))
@MANY
def test_bodies(pieces: list[bytes], content_type: str, coding: str) -> None:
    sent = request(content_type=content_type, content_encoding=coding)
    plain = request(content_type=content_type)
    reading = Digesting(limit=64, request=plain)
    for piece in pieces:
        reading.feed(piece)
    whole = b"".join(pieces)

    for asked, body in ((sent, whole), (plain, whole), (plain, reading.done())):
        for how in ("raw", "json", "form", Fields(("a", "a.b", "0.a")), Fields(exclude=("a",))):
            try:
                made = fingerprint(asked, body, how, decode=True)
            except Refused:
                continue
            assert again(made, asked, body, "raw") == made
    # Read in pieces or as a whole, a form is the same form.
    if reading.done().fields is not None:
        assert fingerprint(plain, whole, "form") == fingerprint(plain, reading.done(), "form")


@given(stored=VALUE)
@MANY
def test_stored_fingerprints(stored: str) -> None:
    for text in (stored, f"1.{stored}", f"1.fields?{stored}:00"):
        made = again(text, request(content_type="application/json"), b'{"a": 1}')
        assert made is None or made.startswith("1.")
