"""The fields of a form, as they came and as digests."""

import hashlib

import pytest

from onefold.web.http import HttpRequest
from onefold.web.idempotency.body import Digesting, Field, Part, fields, multipart, parts

FORM = "application/x-www-form-urlencoded"
MULTIPART = 'multipart/form-data; boundary="b"'
BODY = (
    b'--b\r\nContent-Disposition: form-data; name="amount"\r\n\r\n5\r\n'
    b'--b\r\nContent-Disposition: form-data; name="photo"; filename="me.png"\r\n'
    b"Content-Type: IMAGE/png\r\nX-Other: 1\r\n\r\n\x00\r\n--c\xff\r\n"
    b"--b--\r\n"
)
PARTS = [
    Part(name="amount", value=b"5"),
    Part(name="photo", filename="me.png", media_type="image/png", value=b"\x00\r\n--c\xff"),
]


def test_h056_the_parts_of_a_form_come_without_what_separates_them() -> None:
    assert parts(BODY, MULTIPART) == PARTS
    assert fields(BODY, MULTIPART) == [part.digested for part in PARTS]


def test_a_field_has_a_digest_in_place_of_its_value() -> None:
    digest = hashlib.sha256(b"5").hexdigest()

    assert PARTS[0].digested == Field(name="amount", sha256=digest)


def test_urlencoded_fields_may_be_empty_repeated_and_of_any_bytes() -> None:
    read = parts(b"a=1&a=%FF&b=&c&%C3%BC=+", FORM)

    assert read is not None
    assert [(part.name, part.value) for part in read] == [
        ("a", b"1"),
        ("a", b"\xff"),
        ("b", b""),
        ("c", b""),
        ("Ã¼", b" "),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_form_may_come_in_pieces(size: int) -> None:
    reading = multipart(MULTIPART, keep=True)
    assert reading is not None
    for start in range(0, len(BODY), size):
        reading.feed(BODY[start : start + size])

    assert reading.parts() == PARTS


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
    assert parts(body, content_type) is None
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
