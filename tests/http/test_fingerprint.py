"""Fingerprints: what makes two requests the same."""

import gzip
import re
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from onefold import InvalidInput
from onefold.model import checks
from onefold.web.http import HttpRequest
from onefold.web.idempotency.body import Digested, Digesting
from onefold.web.idempotency.fingerprint import Fields, How
from onefold.web.problems import Refused
from tests.http.fingerprints import again, fingerprint

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


def post(content_type: str = JSON, /, **changes: Any) -> HttpRequest:
    more = changes.pop("headers", ())
    values: dict[str, Any] = {"method": "POST", "path": "/payments", "query": "", **changes}
    return HttpRequest(headers=(("content-type", content_type), *more), **values)


def same(
    one: bytes | Digested,
    other: bytes | Digested,
    how: How = "raw",
    *,
    types: tuple[str, str] = (JSON, JSON),
    **options: Any,
) -> bool:
    first = fingerprint(post(types[0]), one, how, **options)
    return first == fingerprint(post(types[1]), other, how, **options)


def whole(request: HttpRequest, body: bytes) -> bytes:
    return body


def multipart(boundary: str, *parts: tuple[str, bytes]) -> tuple[str, bytes]:
    """The content type and the body of a form whose parts have these headers."""
    pieces = [f"--{boundary}\r\n{head}\r\n\r\n".encode() + value + b"\r\n" for head, value in parts]
    body = b"".join(pieces) + f"--{boundary}--\r\n".encode()
    return f"multipart/form-data; boundary={boundary}", body


def field(name: str) -> str:
    return f'Content-Disposition: form-data; name="{name}"'


def file(name: str, filename: str, media_type: str = "image/png") -> str:
    return f'{field(name)}; filename="{filename}"\r\nContent-Type: {media_type}'


# --- The operation --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "/refunds"},  # H034
        {"method": "PATCH"},  # H035
        {"query": "dry_run=1"},  # H036
        {"path": "/payments/"},
    ],
)
@pytest.mark.parametrize("how", ["raw", "json", "form", Fields(("a",)), whole])
def test_another_operation_is_another_request(changes: dict[str, Any], how: How) -> None:
    body = b'{"a": 1}'

    assert fingerprint(post(), body, how) != fingerprint(post(**changes), body, how)


def test_the_template_of_the_route_is_not_in_it_so_that_it_may_be_renamed() -> None:
    """H045: nor is the host, which a proxy may change."""
    one = post(route="/payments/{id}", headers=(("host", "a.example"),))
    other = post(route="/payments/{payment_id}", headers=(("host", "b.example"),))

    assert fingerprint(one, b"") == fingerprint(other, b"")


def test_h037_the_order_of_the_query_counts_unless_told_otherwise() -> None:
    one, other = post(query="a=1&b=2&b=3"), post(query="b=2&b=3&a=1")

    assert fingerprint(one, b"") != fingerprint(other, b"")
    assert fingerprint(one, b"", canonical_query=True) == fingerprint(
        other, b"", canonical_query=True
    )


@pytest.mark.parametrize("query", ["a=1&b=3&b=2", "a=1&b=2", "a=1&b=2&b=3&c", "a=%31%26b=2&b=3"])
def test_h037_but_not_what_it_says(query: str) -> None:
    one, other = post(query="a=1&b=2&b=3"), post(query=query)

    # Values of one name are a list only to some frameworks: sorted, 2 and 3 are 3 and 2.
    expected = query == "a=1&b=3&b=2"
    assert (
        fingerprint(one, b"", canonical_query=True) == fingerprint(other, b"", canonical_query=True)
    ) is expected


def test_h049_headers_that_are_listed_must_not_change() -> None:
    def versioned(*values: str) -> str:
        request = post(headers=tuple(("api-version", value) for value in values))
        return fingerprint(request, b"", headers=("API-Version",))

    assert versioned("2026-01-01") == versioned("2026-01-01")
    assert len({versioned("2026-01-01"), versioned("2026-02-01"), versioned(""), versioned()}) == 4


def test_headers_that_are_not_listed_may_change() -> None:
    one, other = post(headers=(("authorization", "a"),)), post(headers=(("authorization", "b"),))

    assert fingerprint(one, b"") == fingerprint(other, b"")


def test_parts_do_not_run_into_each_other() -> None:
    one, other = post(path="/a", query="b=c"), post(path="/ab", query="=c")

    assert fingerprint(one, b"") != fingerprint(other, b"")


# --- The body, byte by byte -----------------------------------------------------------------------


def test_h050_h052_one_byte_more_is_another_body() -> None:
    assert same(b'{"a":1}', b'{"a":1}')
    assert not same(b'{"a":1}', b'{"a":2}')
    assert not same(b'{"a":1}', b'{"a": 1}')


def test_h058_the_same_bytes_of_another_type_are_another_request() -> None:
    assert not same(b"{}", b"{}", types=(JSON, "text/plain"))
    assert not same(b"{}", b"{}", types=(JSON, f"{JSON}; charset=utf-8"))
    assert not same(b"{}", b"{}", "json", types=(JSON, "text/plain"))
    assert same(b"{}", b"{}", "json", types=(JSON, f"{JSON.upper()}; charset=utf-8"))


@pytest.mark.parametrize(
    ("coding", "encode"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("x-gzip", gzip.compress)],
)
def test_h059_an_encoded_body_is_another_unless_it_is_decoded(
    coding: str, encode: Callable[[bytes], bytes]
) -> None:
    body = b'{"a": 1}'
    encoded = post(headers=(("content-encoding", coding),))

    assert fingerprint(post(), body) != fingerprint(encoded, encode(body))
    assert fingerprint(post(), body, decode=True) == fingerprint(encoded, encode(body), decode=True)
    assert fingerprint(encoded, body) != fingerprint(post(), body)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"no gzip"),
        ("gzip", gzip.compress(b"abc")[:-4]),
        ("gzip", gzip.compress(bytes(2**25))),
        ("deflate", b"no deflate"),
        ("deflate", zlib.compress(b"abc") + b"more"),
        ("deflate", zlib.compress(bytes(2**25))),
        ("br", b"abc"),
    ],
    ids=range(7),
)
def test_h059_what_cannot_be_decoded_counts_as_it_is(coding: str, body: bytes) -> None:
    encoded = post(headers=(("content-encoding", coding),))

    assert fingerprint(encoded, body, decode=True) == fingerprint(encoded, body, decode=True)
    assert fingerprint(encoded, body, decode=True) != fingerprint(post(), body, decode=True)


def test_h059_a_body_in_two_codings_is_decoded_twice() -> None:
    twice = post(headers=(("content-encoding", "deflate, gzip"),))
    body = gzip.compress(zlib.compress(b"a")) + gzip.compress(b"")

    assert fingerprint(twice, body, decode=True) == fingerprint(post(), b"a", decode=True)


def test_h060_two_without_a_body_are_the_same() -> None:
    assert same(b"", b"")
    assert same(b"", b"", "json")
    assert same(b"", b"", "form", types=(FORM, FORM))


def test_h062_a_fingerprint_is_a_digest_with_its_recipe_in_front() -> None:
    made = fingerprint(post(), b'{"card": "4242"}', "json")

    assert re.fullmatch(r"1\.json:[0-9a-f]{64}", made)


def test_h100_a_big_body_is_digested_without_being_kept() -> None:
    reading = Digesting(limit=1000)
    for _ in range(100):
        reading.feed(b"x" * 100)
    read = reading.done()

    assert (read.length, read.body) == (10_000, None)
    assert same(read, b"x" * 10_000)
    # JSON that is not in memory counts byte by byte.
    assert same(read, read, "json")


def test_h100_of_a_body_that_is_not_in_memory_nothing_can_be_selected() -> None:
    reading = Digesting(limit=4)
    reading.feed(b'{"a": 1}')

    ways: list[How] = [Fields(("a",)), whole]
    for how in ways:
        with pytest.raises(Refused) as refused:
            fingerprint(post(), reading.done(), how)
        assert refused.value.problem.status == 413
        assert "4 bytes" in refused.value.problem.detail


def test_a_body_of_just_the_limit_is_kept() -> None:
    reading = Digesting(limit=4)
    reading.feed(b"ab")
    reading.feed(b"cd")

    assert reading.done().body == b"abcd"


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1,"b":[1,2]}', b' { "b" : [ 1 , 2 ] ,\n"a" : 1 } '),
        (b'{"a":{"x":1,"y":2}}', b'{"a":{"y":2,"x":1}}'),
        (b'"\xc3\xbc"', rb'"\u00fc"'),
        (b'"/"', rb'"\/"'),
    ],
)
def test_h052_json_that_is_written_differently_is_the_same(one: bytes, other: bytes) -> None:
    assert same(one, other, "json")
    assert not same(one, other, "raw")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"1", b"1.0"),
        (b"1", b"1e0"),
        (b"1e2", b"1E2"),
        (b"0", b"-0"),
        (b"1", b'"1"'),
        (b"9007199254740993", b"9007199254740992"),
        (b"1" + b"0" * 5000, b"1" + b"0" * 4999 + b"1"),
        (b"0.1", b"0.1000000000000000055511151231257827"),
        (b"[1,2]", b"[2,1]"),
        (b"null", b'"null"'),
        (b'{"a":null}', b"{}"),
    ],
)
def test_h053_json_with_another_literal_is_another(one: bytes, other: bytes) -> None:
    assert not same(one, other, "json")


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":2}',
        b'{"b":{"a":1,"a":1}}',
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        rb'"\ud800"',
        b'"\xff"',
        b"{",
        b"\xef\xbb\xbf1",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_h053_what_is_ambiguous_or_no_json_counts_byte_by_byte(body: bytes) -> None:
    assert same(body, body, "json")
    assert not same(body, b" " + body, "json")


def test_h053_bytes_are_not_taken_for_the_json_that_they_spell() -> None:
    ambiguous = b'{"a":1,"a":1}'

    assert not same(ambiguous, b'{"a":1}', "json")


# --- Forms ----------------------------------------------------------------------------------------

ONE = multipart("one", (field("amount"), b"5"), (file("photo", "me.png"), bytes(range(256))))
OTHER = multipart("other", (field("amount"), b"5"), (file("photo", "me.png"), bytes(range(256))))


def test_h056_a_form_is_told_by_its_parts_whatever_the_boundary() -> None:
    assert same(ONE[1], OTHER[1], "form", types=(ONE[0], OTHER[0]))
    assert not same(ONE[1], OTHER[1], "raw", types=(ONE[0], OTHER[0]))


@pytest.mark.parametrize(
    "parts",
    [
        [(field("amount"), b"6"), (file("photo", "me.png"), bytes(range(256)))],
        [(field("amounts"), b"5"), (file("photo", "me.png"), bytes(range(256)))],
        [(field("amount"), b"5"), (file("photo", "you.png"), bytes(range(256)))],
        [(field("amount"), b"5"), (file("photo", "me.png", "image/gif"), bytes(range(256)))],
        [(field("amount"), b"5"), (file("photo", "me.png"), bytes(range(255)))],
        [(field("amount"), b"5"), (field("photo"), bytes(range(256)))],
        [(field("amount"), b"5")],
        [(file("photo", "me.png"), bytes(range(256))), (field("amount"), b"5")],
    ],
)
def test_h056_another_part_is_another_form(parts: list[tuple[str, bytes]]) -> None:
    content_type, body = multipart("one", *parts)

    assert not same(ONE[1], body, "form", types=(ONE[0], content_type))


def test_h227_so_is_a_form_that_is_too_big_for_memory() -> None:
    def read(form: tuple[str, bytes]) -> Digested:
        reading = Digesting(limit=16, request=post(form[0]))
        for start in range(0, len(form[1]), 7):
            reading.feed(form[1][start : start + 7])
        return reading.done()

    assert read(ONE).body is None
    assert same(read(ONE), read(OTHER), "form", types=(ONE[0], OTHER[0]))
    assert same(read(ONE), OTHER[1], "form", types=(ONE[0], OTHER[0]))
    amount = Fields(("amount",))
    assert same(read(ONE), read(OTHER), amount, types=(ONE[0], OTHER[0]))


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", ONE[1]),
        ("multipart/form-data; boundary=", ONE[1]),
        ("multipart/form-data; boundary=two", ONE[1]),
        (ONE[0], ONE[1][:-8]),
        (ONE[0], b""),
        (ONE[0], b"--one\r\nno header\r\n\r\n"),
        (f"multipart/form-data; boundary={'x' * 300}", ONE[1]),
        ("text/plain", b"amount=5"),
    ],
)
def test_h056_what_is_no_whole_form_counts_byte_by_byte(content_type: str, body: bytes) -> None:
    types = (content_type, content_type)

    assert same(body, body, "form", types=types)
    assert not same(body, body + b"\r\n", "form", types=types)


def test_a_form_of_more_fields_than_any_has_counts_byte_by_byte() -> None:
    part = (field("a"), b"")
    one, other = multipart("one", *[part] * 10_001), multipart("other", *[part] * 10_001)

    assert not same(one[1], other[1], "form", types=(one[0], other[0]))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (b"a=1&b=%20", b"a=%31&b=+", True),
        (b"a=1&b=2", b"b=2&a=1", False),
        (b"a=1", b"a=1&b=", False),
        (b"a=%FF", b"a=%FE", False),
        (b"a=1&a=2", b"a=2&a=1", False),
    ],
)
def test_urlencoded_forms_are_told_by_their_fields(
    one: bytes, other: bytes, *, expected: bool
) -> None:
    assert same(one, other, "form", types=(FORM, FORM)) is expected


def test_h057_an_excluded_field_may_change() -> None:
    but_token = Fields(exclude=("csrf_token",))

    assert same(b"a=1&csrf_token=x", b"csrf_token=y&a=1", but_token, types=(FORM, FORM))
    assert same(b'{"a":1,"csrf_token":"x"}', b'{"a":1,"csrf_token":"y"}', but_token)
    assert not same(b"a=1&csrf_token=x", b"a=2&csrf_token=x", but_token, types=(FORM, FORM))
    one = multipart("one", (field("a"), b"1"), (field("csrf_token"), b"x"))
    other = multipart("other", (field("a"), b"1"), (field("csrf_token"), b"y"))
    assert same(one[1], other[1], but_token, types=(one[0], other[0]))


# --- Fields ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "body", "noted", "changed"),
    [
        ("amount", b'{"amount": 5, "note": 1}', b'{"note": 2, "amount": 5}', b'{"amount": 6}'),
        ("amount absent", b'{"amount": 5}', b'{"amount": 5, "note": 2}', b'{"absent": 5}'),
        ("a.b", b'{"a": {"b": 5}}', b'{"a": {"note": 2, "b": 5}}', b'{"a": {"b": {"b": 5}}}'),
        ("a.1.b", b'{"a": [0, {"b": 5}]}', b'{"a": [1, {"b": 5}]}', b'{"a": [0, {"b": 6}]}'),
        ("1", b"[3, 4]", b"[5, 4]", b"[3, 5]"),
    ],
)
def test_h054_fields_that_are_not_selected_may_change(
    names: str, body: bytes, noted: bytes, changed: bytes
) -> None:
    how = Fields(tuple(names.split()))

    assert same(body, noted, how)
    assert not same(body, changed, how)


def test_h054_a_field_that_is_null_is_not_one_that_is_missing() -> None:
    assert not same(b'{"a":1,"b":null}', b'{"a":1}', Fields(("a", "b")))


def test_h054_what_is_excluded_may_lie_deep() -> None:
    how = Fields(exclude=("payment.note", "nothing.there", "list.0"))

    assert same(b'{"payment":{"a":1,"note":2}}', b'{"payment":{"a":1}}', how)


def test_h054_a_function_tells_what_counts() -> None:
    def first_line(request: HttpRequest, body: bytes) -> bytes:
        return body.splitlines()[0]

    assert same(b"a\nb", b"a\nc", first_line)
    assert not same(b"a\nb", b"b\nb", first_line)
    assert same(b"x", b"y", lambda request, _: request.path)


NOTHING = [
    (JSON, b'{"other": 1}'),
    (JSON, b"{}"),
    (JSON, b"null"),
    (JSON, b"[]"),
    (JSON, b"5"),
    (JSON, b""),
    (JSON, b'{"a.b": 1, "a": [1]}'),
    (JSON, b'{"amount": 1, "amount": 2}'),
    (FORM, b"other=1"),
    (FORM, b""),
    ("text/plain", b"amount"),
]


@pytest.mark.parametrize(("content_type", "body"), NOTHING)
def test_h055_a_body_of_which_nothing_is_selected_is_refused(
    content_type: str, body: bytes
) -> None:
    names = ("amount", "a.b", "a.1", "a.-1", "a.0x0", "a.99999999999999999999")

    with pytest.raises(Refused) as refused:
        fingerprint(post(content_type), body, Fields(names))
    assert (refused.value.problem.status, refused.value.problem.code) == (400, "nothing_selected")
    with pytest.raises(InvalidInput):
        fingerprint(post(content_type), body, Fields(names, empty="raise"))


@pytest.mark.parametrize(
    ("content_type", "body", "rest"), [(JSON, b'{"token":1}', b"{}"), (FORM, b"token=1", b"")]
)
def test_a_body_of_nothing_but_what_is_excluded_is_an_empty_one(
    content_type: str, body: bytes, rest: bytes
) -> None:
    but_token = Fields(exclude=("token",))

    assert same(body, rest, but_token, types=(content_type, content_type))
    with pytest.raises(Refused):
        fingerprint(post("text/plain"), b"neither", but_token)


@pytest.mark.parametrize("essence", [b"", ""])
def test_h055_so_is_one_of_which_a_function_makes_nothing(essence: bytes | str) -> None:
    with pytest.raises(Refused):
        fingerprint(post(), b"{}", lambda _request, _body: essence)


# --- How it was made ------------------------------------------------------------------------------

HOWS: list[How] = ["raw", "json", "form", Fields(("a", "b.c")), Fields(exclude=("x & y",))]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"canonical_query": True},
    {"decode": True},
    {"headers": ("API-Version", "X")},
    {"canonical_query": True, "decode": True, "headers": ("api-version",)},
]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("now", ["raw", "json", Fields(("z",)), whole])
def test_h061_a_stored_fingerprint_is_made_again_as_it_was_made(
    how: How, options: dict[str, Any], now: How
) -> None:
    request = post(query="b=2&a=1", headers=(("api-version", "3"),))
    body = b'{"a": 1, "b": {"c": 2}}'
    stored = fingerprint(request, body, how, **options)

    assert again(stored, request, body, now) == stored
    assert again(stored, request, body, now, headers=("y",), decode=True) == stored
    assert again(stored, request, b'{"a": 2, "b": {"c": 2}}', now) != stored


def test_h061_a_function_is_made_again_by_the_function_of_now() -> None:
    stored = fingerprint(post(), b"{}", lambda _request, _body: "a")

    assert again(stored, post(), b"{}", lambda _request, _body: "a") == stored
    assert again(stored, post(), b"{}", "raw") is None


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "abc",
        "2.raw:00",
        "1.md5:00",
        "1.raw",
        "1:00",
        "x.raw:00",
        "1.fields?digest=00:00",
        ":::",
    ],
)
def test_h061_what_cannot_be_made_again_is_none(stored: str) -> None:
    assert again(stored, post(), b"{}") is None


def test_h061_none_too_where_the_old_way_selects_nothing_of_this_body() -> None:
    stored = fingerprint(post(), b'{"a": 1}', Fields(("a",)))

    assert again(stored, post(), b"{}") is None


def test_a_fingerprint_always_fits_where_it_is_stored() -> None:
    how = Fields(tuple(f"a.long.way.to.field{number}" for number in range(100)))
    body = b'{"a": {"long": {"way": {"to": {"field7": 1}}}}}'
    stored = fingerprint(post(), body, how)

    assert checks.key(stored, "fingerprint") == stored
    assert again(stored, post(), body, how) == stored
    assert again(stored, post(), body, "raw") is None


@pytest.mark.parametrize(
    ("names", "exclude"), [((), ()), ("amount", ()), ((), "amount"), (("a",), "amount")]
)
def test_fields_that_name_nothing_are_refused(names: Any, exclude: Any) -> None:
    with pytest.raises(InvalidInput):
        Fields(names, exclude)
