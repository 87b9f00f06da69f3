"""Fingerprints: what makes two requests the same."""

import gzip
import re
import zlib
from typing import Any

import pytest

from onefold import InvalidInput
from onefold.model import checks
from onefold.web.http import HttpRequest
from onefold.web.idempotency.body import Digested, Digesting
from onefold.web.idempotency.fingerprint import Fields, How
from onefold.web.problems import Refused
from tests.http.fingerprints import again, field, file, fingerprint, multipart

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


# --- The operation --------------------------------------------------------------------------------


def told_apart(one: HttpRequest, other: HttpRequest, how: How = "raw", **options: Any) -> bool:
    return fingerprint(one, b'{"a": 1}', how, **options) != fingerprint(
        other, b'{"a": 1}', how, **options
    )


@pytest.mark.parametrize("how", ["raw", "json", "form", Fields(("a",)), whole])
def test_h034_h035_h036_another_operation_is_another_request(how: How) -> None:
    others: list[dict[str, str]] = [
        {"path": "/refunds"}, {"path": "/payments/"}, {"method": "PATCH"}, {"query": "dry_run=1"},
    ]  # fmt: skip
    for changes in others:
        assert told_apart(post(), post(**changes), how)
    assert told_apart(post(path="/a", query="b=c"), post(path="/ab", query="=c"), how)


def test_h045_the_template_of_the_route_and_the_host_are_not_in_it() -> None:
    """A route may be renamed, a proxy may change the host, and a token may be a new one."""
    one = post(route="/payments/{id}", headers=(("host", "a.example"), ("authorization", "a")))
    other = post(route="/payments/{number}", headers=(("host", "b.example"),))

    assert not told_apart(one, other)


@pytest.mark.parametrize(
    ("query", "is_same"),
    [
        ("b=2&b=3&a=1", True),
        # Values of one name are a list only to some frameworks: sorted, 2 and 3 are 3 and 2.
        ("a=1&b=3&b=2", True),
        ("a=1&b=2", False),
        ("a=1&b=2&b=3&c", False),
        ("a=%31%26b=2&b=3", False),
    ],
)
def test_h037_the_order_of_the_query_counts_unless_told_otherwise(
    query: str, *, is_same: bool
) -> None:
    one, other = post(query="a=1&b=2&b=3"), post(query=query)

    assert told_apart(one, other)
    assert told_apart(one, other, canonical_query=True) is not is_same


def test_h049_headers_that_are_listed_must_not_change() -> None:
    def versioned(*values: str) -> str:
        request = post(headers=tuple(("api-version", value) for value in values))
        return fingerprint(request, b"", headers=("API-Version",))

    assert versioned("2026-01-01") == versioned("2026-01-01")
    assert len({versioned("2026-01-01"), versioned("2026-02-01"), versioned(""), versioned()}) == 4


# --- The body, byte by byte -----------------------------------------------------------------------


def test_h050_h052_h058_h060_one_byte_or_another_type_is_another_body() -> None:
    assert same(b'{"a":1}', b'{"a":1}')
    assert not same(b'{"a":1}', b'{"a":2}')
    assert not same(b'{"a":1}', b'{"a": 1}')
    assert same(b"", b"")
    assert same(b"", b"", "json")
    assert same(b"", b"", "form", types=(FORM, FORM))
    assert not same(b"{}", b"{}", types=(JSON, "text/plain"))
    assert not same(b"{}", b"{}", types=(JSON, f"{JSON}; charset=utf-8"))
    assert not same(b"{}", b"{}", "json", types=(JSON, "text/plain"))
    assert same(b"{}", b"{}", "json", types=(JSON, f"{JSON.upper()}; charset=utf-8"))


@pytest.mark.parametrize(
    ("coding", "encoded"),
    [
        ("gzip", gzip.compress(b'{"a": 1}')),
        ("deflate", zlib.compress(b'{"a": 1}')),
        ("x-gzip", gzip.compress(b'{"a": 1}')),
        ("deflate, gzip", gzip.compress(zlib.compress(b'{"a": 1}')) + gzip.compress(b"")),
        ("gzip", gzip.compress(b'{"a": 1}') + gzip.compress(b"") * 99),
    ],
    ids=["gzip", "deflate", "x-gzip", "both", "100 members"],
)
def test_h059_an_encoded_body_is_another_unless_it_is_decoded(coding: str, encoded: bytes) -> None:
    body, asked = b'{"a": 1}', post(headers=(("content-encoding", coding),))

    assert fingerprint(post(), body) != fingerprint(asked, encoded)
    assert fingerprint(post(), body, decode=True) == fingerprint(asked, encoded, decode=True)
    assert fingerprint(asked, body) != fingerprint(post(), body)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"no gzip"),
        ("gzip", gzip.compress(b"abc")[:-4]),
        ("gzip", gzip.compress(bytes(2**25))),
        ("gzip", gzip.compress(b"") * 101),
        ("gzip, gzip", gzip.compress(gzip.compress(bytes(2**23), 0), 0)),
        ("deflate", b"no deflate"),
        ("deflate", zlib.compress(b"abc") + b"more"),
        ("deflate", zlib.compress(bytes(2**25))),
        ("br", b"abc"),
    ],
    ids=range(9),
)
def test_h059_what_cannot_be_decoded_counts_as_it_is(coding: str, body: bytes) -> None:
    encoded = post(headers=(("content-encoding", coding),))

    as_it_is, digest = (fingerprint(encoded, body, decode=choice)[-64:] for choice in (False, True))

    assert digest == as_it_is
    assert fingerprint(encoded, body, decode=True) != fingerprint(post(), body, decode=True)


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
    ways: list[How] = [Fields(("a",)), whole]
    for how in ways:
        with pytest.raises(Refused) as refused:
            fingerprint(post(), read, how)
        assert refused.value.problem.status == 413
        assert "1000 bytes" in refused.value.problem.detail


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
    packed = Digesting(request=post(ONE[0], headers=(("content-encoding", "gzip"),)))
    packed.feed(ONE[1])
    assert packed.done().fields is None, "it has no parts before it is decoded"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", ONE[1]),
        ("multipart/form-data; boundary=", ONE[1]),
        ("multipart/form-data; boundary=two", ONE[1]),
        (ONE[0], ONE[1][:-8]),
        (ONE[0], b""),
        (ONE[0], b"--one\r\nno header\r\n\r\n"),
        (ONE[0], b"--one\r\n\xff: 1\r\n\r\n\r\n--one--\r\n"),
        ("multipart/mixed; boundary=one", ONE[1]),
        (f"multipart/form-data; boundary={'x' * 300}", ONE[1]),
        ("text/plain", b"amount=5"),
    ],
)
def test_h056_what_is_no_whole_form_counts_byte_by_byte(content_type: str, body: bytes) -> None:
    types = (content_type, content_type)

    assert same(body, body, "form", types=types)
    assert not same(body, body + b"\r\n", "form", types=types)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (b"a=1&b=%20", b"a=%31&b=+", True),
        (b"a=1&b=2", b"b=2&a=1", False),
        (b"a=1", b"a=1&b=", False),
        (b"a=%FF", b"a=%FE", False),
        (b"%C3%BC=+&c", b"%c3%bc=%20&c=", True),
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
    deep = Fields(exclude=("payment.note", "nothing.there", "list.0"))
    assert same(b'{"payment":{"a":1,"note":2}}', b'{"payment":{"a":1}}', deep)
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
    assert not same(b'{"a":1,"b":null}', b'{"a":1}', Fields(("a", "b")))


def test_h054_h055_a_function_tells_what_counts() -> None:
    def first_line(request: HttpRequest, body: bytes) -> bytes:
        return body.splitlines()[0]

    assert same(b"a\nb", b"a\nc", first_line)
    assert not same(b"a\nb", b"b\nb", first_line)
    assert same(b"x", b"y", lambda request, _: request.path)
    with pytest.raises(Refused):
        fingerprint(post(), b"{}", lambda _request, _body: b"")
    with pytest.raises(Refused):
        fingerprint(post(), b"{}", lambda _request, _body: "")
    stored = fingerprint(post(), b"{}", lambda _request, _body: "a")
    assert again(stored, post(), b"{}", lambda _request, _body: "a") == stored
    assert again(stored, post(), b"{}", "raw") is None


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
def test_h061_a_stored_fingerprint_is_made_again_as_it_was_made(
    how: How, options: dict[str, Any]
) -> None:
    request = post(query="b=2&a=1", headers=(("api-version", "3"),))
    body = b'{"a": 1, "b": {"c": 2}}'
    stored = fingerprint(request, body, how, **options)
    ways: list[How] = ["raw", "json", Fields(("z",)), whole]

    for now in ways:
        assert again(stored, request, body, now) == stored
        assert again(stored, request, body, now, headers=("y",), decode=True) == stored
        assert again(stored, request, b'{"a": 2, "b": {"c": 2}}', now) != stored
    if how == HOWS[3]:
        assert again(stored, request, b"{}") is None, "nothing of this body is selected"


def test_h061_what_cannot_be_made_again_is_none() -> None:
    unknown = ["", "abc", "2.raw:00", "1.md5:00", "1.raw", "1:00", "x.raw:00", ":::"]
    for stored in (*unknown, "1.fields?digest=00:00"):
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
