"""The fields of a form, as they came and as digests."""

import hashlib

import pytest

from onefold.web.http import HttpRequest
from onefold.web.idempotency.body import Digesting, Field, fields, multipart

FORM = "application/x-www-form-urlencoded"
MULTIPART = 'multipart/form-data; boundary="b"'
TYPE = ("content-type", MULTIPART)
BODY = (
    b'--b\r\nContent-Disposition: form-data; name="amount"\r\n\r\n5\r\n'
    b'--b\r\nContent-Disposition: form-data; name="photo"; filename="me.png"\r\n'
    b"Content-Type: IMAGE/png\r\nX-Other: 1\r\n\r\n\x00\r\n--c\xff\r\n"
    b"--b--\r\n"
)


def field(name: str, value: bytes, **more: str) -> Field:
    return Field(name=name, sha256=hashlib.sha256(value).hexdigest(), value=value, **more)


FIELDS = [
    field("amount", b"5"),
    field("photo", b"\x00\r\n--c\xff", filename="me.png", media_type="image/png"),
]


def test_h056_the_fields_of_a_form_come_without_what_separates_them() -> None:
    assert fields(BODY, MULTIPART) == FIELDS


def test_urlencoded_fields_may_be_empty_repeated_and_of_any_bytes() -> None:
    assert fields(b"a=1&a=%FF&b=&c&%C3%BC=+", FORM) == [
        field("a", b"1"),
        field("a", b"\xff"),
        field("b", b""),
        field("c", b""),
        field("Ã¼", b" "),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_form_may_come_in_pieces(size: int) -> None:
    reading = multipart(MULTIPART, keep=True)
    assert reading is not None
    for start in range(0, len(BODY), size):
        reading.feed(BODY[start : start + size])

    assert reading.fields() == FIELDS


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (BODY, "text/plain"),
        (BODY, "multipart/form-data"),
        (BODY, "multipart/mixed; boundary=b"),
        (BODY[:-5], MULTIPART),
        (b"", MULTIPART),
        (b"no form", MULTIPART),
        (b"--b\r\n\xff: 1\r\n\r\n\r\n--b--\r\n", MULTIPART),
    ],
)
def test_what_is_no_whole_form_has_no_parts(body: bytes, content_type: str) -> None:
    assert fields(body, content_type) is None


def test_what_comes_after_a_broken_piece_is_not_read() -> None:
    reading = multipart(MULTIPART)
    assert reading is not None
    reading.feed(b"no form")
    reading.feed(BODY)

    assert reading.fields() is None


def test_a_form_in_a_content_coding_has_no_parts_yet() -> None:
    headers = (("content-type", MULTIPART), ("content-encoding", "gzip"))
    reading = Digesting(request=HttpRequest(method="POST", path="/", headers=headers))
    reading.feed(BODY)

    assert reading.done().fields is None


def test_a_field_may_have_only_the_digest_of_its_value() -> None:
    reading = Digesting(request=HttpRequest(method="POST", path="/", headers=(TYPE,)))
    reading.feed(BODY)

    read = reading.done().fields
    assert read is not None
    assert [(one.sha256, one.value) for one in read] == [(one.sha256, None) for one in FIELDS]
