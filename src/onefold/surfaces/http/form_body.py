"""Bodies that browsers send: the fields of a form, whatever separates them on the wire."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import msgspec

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks, MultipartParser

URLENCODED: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
MOST_FIELDS: Final = 10_000


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One field as it came. Its texts are latin-1, so that no byte is lost whatever they mean."""

    name: str
    filename: str | None = None
    media_type: str = ""
    value: bytes


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field. Of what it holds, the digest."""

    name: str
    filename: str | None = None
    media_type: str = ""
    sha256: str


def parts(body: bytes, content_type: str) -> list[Part] | None:
    """The fields of a form in their order; None where the body is no form, or a broken one."""
    media_type = content_type.partition(";")[0].strip(" \t").lower()
    if media_type == URLENCODED:
        return _urlencoded(body)
    if media_type == MULTIPART:
        return _multipart(body, content_type)
    return None


def fields(body: bytes, content_type: str) -> list[Field] | None:
    """The fields of a form in their order; None where the body is no form, or a broken one."""
    if media_type_of(content_type) == URLENCODED:
        return _urlencoded(body)
    reading = multipart(content_type)
    if reading is None:
        return None
    reading.feed(body)
    return reading.done()


def multipart(content_type: str) -> Reading | None:
    """What reads a multipart form piece by piece; None where that is none."""
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser, parse_options_header

    if media_type_of(content_type) != MULTIPART:
        return None
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        return None
    parts = _Parts()
    try:
        return Reading(MultipartParser(boundary, parts.callbacks), parts)
    except FormParserError:
        return None


def media_type_of(content_type: str) -> str:
    """A Content-Type without its parameters."""
    return content_type.partition(";")[0].strip(" \t").lower()


class Reading:
    """A multipart form on its way in: in memory are the names, and the digests of what they say."""

    def __init__(self, parser: MultipartParser, parts: _Parts) -> None:
        """`parts` is what the parser calls."""
        self._parser: MultipartParser = parser
        self._parts: _Parts = parts
        self._broken: bool = False

    def feed(self, piece: bytes) -> None:
        """The next piece."""
        from python_multipart.exceptions import FormParserError

        if self._broken or len(self._parts.found) > MOST_FIELDS:
            return
        try:
            self._parser.write(piece)
        except FormParserError:
            self._broken = True

    def done(self) -> list[Field] | None:
        """The fields; None where the form was broken, not whole, or of more fields than any is."""
        whole = self._parts.ended and not self._broken
        return self._parts.found if whole and len(self._parts.found) <= MOST_FIELDS else None


def _urlencoded(body: bytes) -> list[Field]:
    # In latin-1 every byte is a character, so that nothing is lost whatever the charset was.
    text = body.decode("latin-1")
    pairs = parse_qsl(text, keep_blank_values=True, encoding="latin-1")
    return [Field(name=name, sha256=_digest(value.encode("latin-1"))) for name, value in pairs]


class _Parts:
    """What the parser calls, part by part."""

    def __init__(self) -> None:
        self.found: list[Part] = []
        self.ended: bool = False
        self._headers: dict[str, bytes] = {}
        self._name = b""
        self._value = b""
        self._data = bytearray()

    @property
    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header,
            "on_part_data": self._part_data,
            "on_part_end": self._part,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._headers = {}
        self._data = bytearray()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header(self) -> None:
        self._headers[self._name.decode("latin-1").lower()] = self._value
        self._name = self._value = b""

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]

    def _part(self) -> None:
        from python_multipart.multipart import parse_options_header

        options = parse_options_header(self._headers.get("content-disposition"))[1]
        filename = options.get(b"filename")
        self.found.append(
            Part(
                name=options.get(b"name", b"").decode("latin-1"),
                filename=None if filename is None else filename.decode("latin-1"),
                media_type=self._headers.get("content-type", b"").decode("latin-1").lower(),
                value=bytes(self._data),
            )
        )

    def _end(self) -> None:
        self.ended = True
