"""Bodies that browsers send: the fields of a form, whatever separates them on the wire."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import msgspec

from onefold.errors.extra import Needs

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks, MultipartParser

URLENCODED: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
MOST_FIELDS: Final = 10_000


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field. Of what it holds, the digest."""

    name: str
    filename: str | None = None
    media_type: str = ""
    sha256: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One field as it came. Its texts are latin-1, so that no byte is lost whatever they mean."""

    name: str
    filename: str | None = None
    media_type: str = ""
    value: bytes

    @property
    def digested(self) -> Field:
        """The field without what it holds."""
        return Field(
            name=self.name,
            filename=self.filename,
            media_type=self.media_type,
            sha256=hashlib.sha256(self.value).hexdigest(),
        )


def parts(body: bytes, content_type: str) -> list[Part] | None:
    """The fields of a form in their order; None where the body is no form, or a broken one."""
    if media_type_of(content_type) == URLENCODED:
        return _urlencoded(body)
    reading = multipart(content_type, keep=True)
    if reading is None:
        return None
    reading.feed(body)
    return reading.parts()


def fields(body: bytes, content_type: str) -> list[Field] | None:
    """The same with digests in place of what the fields hold."""
    if media_type_of(content_type) == URLENCODED:
        return [part.digested for part in _urlencoded(body)]
    reading = multipart(content_type)
    if reading is None:
        return None
    reading.feed(body)
    return reading.fields()


def multipart(content_type: str, *, keep: bool = False) -> Reading | None:
    """What reads a multipart form piece by piece; None where that is none.

    Unless told to `keep` the values, it has only their digests in memory.
    """
    with Needs("onefold[http]"):
        from python_multipart.exceptions import FormParserError
        from python_multipart.multipart import MultipartParser, parse_options_header

    if media_type_of(content_type) != MULTIPART:
        return None
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        return None
    heard = _Heard(keep=keep)
    try:
        return Reading(MultipartParser(boundary, heard.callbacks), heard)
    except FormParserError:
        return None


def media_type_of(content_type: str) -> str:
    """A Content-Type without its parameters."""
    return content_type.partition(";")[0].strip(" \t").lower()


class Reading:
    """A multipart form on its way in."""

    def __init__(self, parser: MultipartParser, heard: _Heard) -> None:
        """`heard` is what the parser calls."""
        self._parser: MultipartParser = parser
        self._heard: _Heard = heard
        self._broken: bool = False

    def feed(self, piece: bytes) -> None:
        """The next piece."""
        from python_multipart.exceptions import FormParserError

        if self._broken:
            return
        try:
            self._parser.write(piece)
        except FormParserError:
            self._broken = True
        self._broken = self._broken or len(self._heard.fields) > MOST_FIELDS

    def fields(self) -> list[Field] | None:
        """What was read; None where it is broken, not whole, or of more fields than any form is."""
        return self._heard.fields if self._heard.ended and not self._broken else None

    def parts(self) -> list[Part] | None:
        """The same with the values, where they were kept."""
        read = self.fields()
        if read is None:
            return None
        return [
            Part(name=one.name, filename=one.filename, media_type=one.media_type, value=value)
            for one, value in zip(read, self._heard.values, strict=True)
        ]


def _urlencoded(body: bytes) -> list[Part]:
    # In latin-1 every byte is a character, so that nothing is lost whatever the charset was.
    text = body.decode("latin-1")
    pairs = parse_qsl(text, keep_blank_values=True, encoding="latin-1")
    return [Part(name=name, value=value.encode("latin-1")) for name, value in pairs]


class _Heard:
    """What the parser calls, part by part."""

    def __init__(self, *, keep: bool) -> None:
        self.fields: list[Field] = []
        self.values: list[bytes] = []
        self.ended: bool = False
        self._keep = keep
        self._headers: dict[str, bytes] = {}
        self._name = b""
        self._value = b""
        self._hash = hashlib.sha256()
        self._held = bytearray()

    @property
    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header,
            "on_part_data": self._data,
            "on_part_end": self._part,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._headers = {}
        self._hash = hashlib.sha256()
        self._held = bytearray()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header(self) -> None:
        self._headers[self._name.decode("latin-1").lower()] = self._value
        self._name = self._value = b""

    def _data(self, data: bytes, start: int, end: int) -> None:
        piece = data[start:end]
        self._hash.update(piece)
        if self._keep:
            self._held += piece

    def _part(self) -> None:
        from python_multipart.multipart import parse_options_header

        options = parse_options_header(self._headers.get("content-disposition"))[1]
        filename = options.get(b"filename")
        self.fields.append(
            Field(
                name=options.get(b"name", b"").decode("latin-1"),
                filename=None if filename is None else filename.decode("latin-1"),
                media_type=self._headers.get("content-type", b"").decode("latin-1").lower(),
                sha256=self._hash.hexdigest(),
            )
        )
        if self._keep:
            self.values.append(bytes(self._held))

    def _end(self) -> None:
        self.ended = True
