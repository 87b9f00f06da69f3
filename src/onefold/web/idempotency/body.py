"""Request bodies: digest, form fields, and large bodies in a temporary file."""

from __future__ import annotations

import hashlib
from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import msgspec

from onefold.errors import Needs
from onefold.web.problems import INCOMPLETE, Refused, make, too_large

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onefold.web.http import HttpRequest
    from onefold.web.idempotency.policy import RoutePolicy


URLENCODED: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
MOST_FIELDS: Final = 10_000


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a form. Texts are latin-1, so that no byte is lost."""

    name: str
    filename: str | None = None
    media_type: str = ""
    sha256: str
    """The digest of its value."""
    value: bytes | None = None
    """None if only the digest was kept."""


def fields(body: bytes, content_type: str) -> list[Field] | None:
    """The fields of a form in their order; None if the body is not a valid form."""
    if media_type_of(content_type) == URLENCODED:
        # In latin-1 every byte is a character, so nothing is lost in any charset.
        text = body.decode("latin-1")
        pairs = parse_qsl(text, keep_blank_values=True, encoding="latin-1")
        return [_field(name, value.encode("latin-1")) for name, value in pairs]
    reader = multipart(content_type, keep=True)
    if reader is None:
        return None
    reader.feed(body)
    return reader.fields()


def _field(name: str, value: bytes) -> Field:
    return Field(name=name, sha256=hashlib.sha256(value).hexdigest(), value=value)


def multipart(content_type: str, *, keep: bool = False) -> MultipartReader | None:
    """A reader of a multipart form; None if the type is another one or has no valid boundary.

    Without `keep`, only the digests of the values are in memory.
    """
    if media_type_of(content_type) != MULTIPART:
        return None
    with Needs("onefold[http]"):
        from python_multipart.exceptions import FormParserError
        from python_multipart.multipart import parse_options_header

    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        return None
    try:
        return MultipartReader(boundary, keep=keep)
    except FormParserError:
        return None


def media_type_of(content_type: str) -> str:
    """A Content-Type without its parameters."""
    return content_type.partition(";")[0].strip(" \t").lower()


class MultipartReader:
    """Reads a multipart form piece by piece."""

    def __init__(self, boundary: bytes, *, keep: bool) -> None:
        """With `keep`, the values are in memory, too."""
        from python_multipart.multipart import MultipartParser

        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_header_end": self._header,
                "on_part_data": self._data,
                "on_part_end": self._part,
                "on_end": self._end,
            },
        )
        self._fields: list[Field] = []
        self._is_broken = False
        self._is_ended = False
        self._keep = keep
        self._headers: dict[str, bytes] = {}
        self._name = b""
        self._value = b""
        self._hash = hashlib.sha256()
        self._kept = bytearray()

    def feed(self, piece: bytes) -> None:
        """The next piece."""
        from python_multipart.exceptions import FormParserError

        if self._is_broken:
            return
        try:
            self._parser.write(piece)
        except FormParserError:
            self._is_broken = True
        self._is_broken = self._is_broken or len(self._fields) > MOST_FIELDS

    def fields(self) -> list[Field] | None:
        """What was read; None if it is broken, incomplete, or has too many fields."""
        return self._fields if self._is_ended and not self._is_broken else None

    def _begin(self) -> None:
        self._headers = {}
        self._hash = hashlib.sha256()
        self._kept = bytearray()

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
            self._kept += piece

    def _part(self) -> None:
        from python_multipart.multipart import parse_options_header

        options = parse_options_header(self._headers.get("content-disposition"))[1]
        filename = options.get(b"filename")
        self._fields.append(
            Field(
                name=options.get(b"name", b"").decode("latin-1"),
                filename=None if filename is None else filename.decode("latin-1"),
                media_type=self._headers.get("content-type", b"").decode("latin-1").lower(),
                sha256=self._hash.hexdigest(),
                value=bytes(self._kept) if self._keep else None,
            )
        )

    def _end(self) -> None:
        self._is_ended = True


MAX_IN_MEMORY: Final = 1024 * 1024


class Digested(msgspec.Struct, frozen=True, kw_only=True):
    """A body that was read to its end."""

    sha256: str
    length: int
    limit: int = MAX_IN_MEMORY
    """How many bytes would have been kept in memory."""
    body: bytes | None
    """None if it is too long to keep in memory."""
    fields: tuple[Field, ...] | None = None
    """Of a multipart form that was read piece by piece."""


class Digesting:
    """Reads a body piece by piece, in bounded memory."""

    def __init__(self, limit: int = MAX_IN_MEMORY, *, request: HttpRequest | None = None) -> None:
        """`limit` bytes are kept; the Content-Type of `request` decides whether it is a form."""
        self._limit: int = limit
        self._hash = hashlib.sha256()
        self._kept = bytearray()
        self._form = None if request is None else _form(request)
        self.length: int = 0

    def feed(self, piece: bytes) -> None:
        """The next piece."""
        self.length += len(piece)
        self._hash.update(piece)
        if self._form is not None:
            self._form.feed(piece)
        if self.length > self._limit:
            self._kept.clear()
        else:
            self._kept += piece

    def done(self) -> Digested:
        """The digest of all pieces."""
        found = None if self._form is None else self._form.fields()
        return Digested(
            sha256=self._hash.hexdigest(),
            length=self.length,
            limit=self._limit,
            body=bytes(self._kept) if self.length <= self._limit else None,
            fields=None if found is None else tuple(found),
        )


def digested(body: bytes) -> Digested:
    """The digest of a body in memory."""
    return Digested(sha256=hashlib.sha256(body).hexdigest(), length=len(body), body=body)


def _form(request: HttpRequest) -> MultipartReader | None:
    """A form in a content coding has no fields before it is decoded."""
    if request.value("content-encoding") is not None:
        return None
    return multipart(request.value("content-type") or "")


PIECE: Final = 64 * 1024


def spool(
    read: Callable[[int], bytes], request: HttpRequest, policy: RoutePolicy, *, length: int | None
) -> tuple[IO[bytes], Digested]:
    """A body of this length (None: to its end) as a file, which the caller closes, and its digest.

    A body of more than MAX_IN_MEMORY bytes is on disk.
    """
    limit = policy.max_request
    _refuse_longer(length or 0, limit)
    digesting = _digesting(policy, request)
    file: IO[bytes] = BytesIO()
    try:
        for piece in _pieces(read, length):
            digesting.feed(piece)
            _refuse_longer(digesting.length, limit)
            if digesting.length > MAX_IN_MEMORY and isinstance(file, BytesIO):
                start = file.getvalue()
                file = TemporaryFile()  # noqa: SIM115 - closed by the caller
                file.write(start)
            file.write(piece)
        _refuse_shorter(digesting.length, request.content_length)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file, digesting.done()


def _refuse_longer(length: int, limit: int) -> None:
    if length > limit:
        raise Refused(too_large(limit))


def _refuse_shorter(length: int, text: int | None) -> None:
    if length < (text or 0):
        raise Refused(make(INCOMPLETE))


def _digesting(policy: RoutePolicy, request: HttpRequest) -> Digesting:
    """Keeps as much of a body in memory as the route's fingerprint needs."""
    # The key of a form is in its body, and its pages show what was submitted.
    by_digest = policy.fingerprint == "raw" and not policy.decode and policy.form is None
    limit = MAX_IN_MEMORY if by_digest else policy.max_request
    return Digesting(limit, request=request)


def _pieces(read: Callable[[int], bytes], length: int | None) -> Iterator[bytes]:
    left = length
    while left is None or left > 0:
        piece = read(PIECE if left is None else min(left, PIECE))
        if not piece:
            return
        yield piece
        left = None if left is None else left - len(piece)
