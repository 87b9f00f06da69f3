"""Bodies that browsers send: the fields of a form, whatever separates them on the wire."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import msgspec

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

URLENCODED: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field. Of what a file holds, the digest."""

    name: str
    filename: str | None = None
    media_type: str = ""
    sha256: str


def fields(body: bytes, content_type: str) -> list[Field] | None:
    """The fields of a form in their order; None where the body is no form, or a broken one."""
    media_type = content_type.partition(";")[0].strip(" \t").lower()
    if media_type == URLENCODED:
        return _urlencoded(body)
    if media_type == MULTIPART:
        return _multipart(body, content_type)
    return None


def _urlencoded(body: bytes) -> list[Field]:
    # In latin-1 every byte is a character, so that nothing is lost whatever the charset was.
    text = body.decode("latin-1")
    pairs = parse_qsl(text, keep_blank_values=True, encoding="latin-1")
    return [Field(name=name, sha256=_digest(value.encode("latin-1"))) for name, value in pairs]


def _multipart(body: bytes, content_type: str) -> list[Field] | None:
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser, parse_options_header

    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        return None
    reader = _Reader()
    try:
        parser = MultipartParser(boundary, reader.callbacks)
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError):
        return None
    return reader.found if reader.ended else None


class _Reader:
    """What the parser calls, part by part."""

    def __init__(self) -> None:
        self.found: list[Field] = []
        self.ended: bool = False
        self._headers: dict[str, bytes] = {}
        self._name = b""
        self._value = b""
        self._hash = hashlib.sha256()

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

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header(self) -> None:
        self._headers[self._name.decode("latin-1").lower()] = self._value
        self._name = self._value = b""

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._hash.update(data[start:end])

    def _part(self) -> None:
        from python_multipart.multipart import parse_options_header

        options = parse_options_header(self._headers.get("content-disposition"))[1]
        filename = options.get(b"filename")
        self.found.append(
            Field(
                name=options.get(b"name", b"").decode("latin-1"),
                filename=None if filename is None else filename.decode("latin-1"),
                media_type=self._headers.get("content-type", b"").decode("latin-1").lower(),
                sha256=self._hash.hexdigest(),
            )
        )

    def _end(self) -> None:
        self.ended = True


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()
