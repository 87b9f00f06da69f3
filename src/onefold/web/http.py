"""HTTP requests and responses without a framework, content negotiation and content codings."""

from __future__ import annotations

import re
import sys
import zlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


Header: TypeAlias = tuple[str, str]
"""A name in lower case, and a value. Both are latin-1, as HTTP has them."""


# Python does not convert texts of thousands of digits.
_LONG_NUMBER: Final = 19


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request without its body."""

    method: str
    path: str
    """As it was sent, with what the application is mounted under; without the query."""
    query: str = ""
    route: str | None = None
    """The template that it matched (`/orders/{id}`); None if it is unknown."""
    headers: tuple[Header, ...] = ()
    """In their order, repeated ones too."""

    def values(self, name: str) -> list[str]:
        """Every value of a header, in order."""
        wanted = name.lower()
        return [value for found, value in self.headers if found == wanted]

    def value(self, name: str) -> str | None:
        """The first value of a header."""
        wanted = name.lower()
        for found, value in self.headers:
            if found == wanted:
                return value
        return None

    @property
    def id(self) -> str | None:
        """The X-Request-Id of the client or a proxy."""
        return self.value("x-request-id")

    @property
    def content_length(self) -> int | None:
        """Content-Length; None if it is missing or not a number."""
        text = self.value("content-length") or ""
        if not text.isascii() or not text.isdigit():
            return None
        return int(text) if len(text) < _LONG_NUMBER else sys.maxsize

    @property
    def operation(self) -> str:
        """The method, and the template or the path."""
        return f"{self.method} {self.route or self.path}"


_QUALITY: Final = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")
# A longer header is ignored.
_LONGEST: Final = 4096
_JSON: Final = (("application", "problem+json"), ("application", "json"))
_HTML: Final = (("text", "html"),)


def prefers_html(request: HttpRequest) -> bool:
    """True if the client prefers HTML to JSON."""
    ranges = _weighted(request, "accept")
    return _quality(ranges, _HTML) > _quality(ranges, _JSON)


def accepts_coding(request: HttpRequest, coding: str) -> bool:
    """True if the client accepts this content coding.

    A client without Accept-Encoding accepts none: a body without a coding is always correct.
    """
    weights = dict(_weighted(request, "accept-encoding"))
    return weights.get(coding, weights.get("*", 0.0)) > 0


def _weighted(request: HttpRequest, name: str) -> list[tuple[str, float]]:
    """The elements of a list with their weights; one with a malformed weight is left out."""
    text = ",".join(request.values(name))
    if len(text) > _LONGEST:
        return []
    found: list[tuple[str, float]] = []
    for element in text.split(","):
        value, *parameters = (part.strip(" \t").lower() for part in element.split(";"))
        quality = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        if value and _QUALITY.fullmatch(quality):
            found.append((value, float(quality)))
    return found


def _quality(ranges: list[tuple[str, float]], types: tuple[tuple[str, str], ...]) -> float:
    """The best weight that any of the types has by its most specific range."""
    weights = dict(ranges)
    best = 0.0
    for main, sub in types:
        for wanted in (f"{main}/{sub}", f"{main}/*", "*/*"):
            if wanted in weights:
                best = max(best, weights[wanted])
                break
    return best


LONGEST: Final = 16 * 1024 * 1024
"""A small body may expand to any size; more bytes than this, of all codings, are rejected."""
MEMBERS: Final = 100
"""Of a gzip body. Each copies the rest of the body, so thousands would take seconds."""

_WITH_GZIP_HEADER: Final = 16 + zlib.MAX_WBITS


def codings(values: list[str]) -> list[str]:
    """The codings that were applied, in their order; `identity` is none."""
    named = [coding.strip(" \t").lower() for value in values for coding in value.split(",")]
    return [coding for coding in named if coding not in {"", "identity"}]


def decoded(body: bytes, applied: list[str], *, longest: int = LONGEST) -> bytes | None:
    """The body without its codings; None if one is unknown, invalid or expands too far."""
    for coding in reversed(applied):
        if coding in {"gzip", "x-gzip"}:
            found = _gunzip(body, longest)
        elif coding == "deflate":
            found = _inflate(body, longest)
        else:
            return None
        if found is None:
            return None
        body = found
        longest -= len(body)
    return body


def _gunzip(body: bytes, longest: int) -> bytes | None:
    """Every member, one after the other."""
    expanded, members = bytearray(), 0
    while body:
        members += 1
        stream = zlib.decompressobj(_WITH_GZIP_HEADER)
        try:
            expanded += stream.decompress(body, longest - len(expanded) + 1)
        except zlib.error:
            return None
        if not stream.eof or len(expanded) > longest or members > MEMBERS:
            return None
        body = stream.unused_data
    return bytes(expanded)


def _inflate(body: bytes, longest: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        expanded = stream.decompress(body, longest + 1)
    except zlib.error:
        return None
    if not stream.eof or stream.unused_data or len(expanded) > longest:
        return None
    return expanded


class HttpResponse(msgspec.Struct, frozen=True):
    """A complete response. The names of its headers keep their case, except over ASGI."""

    status: int
    headers: tuple[Header, ...] = ()
    body: bytes = b""

    def value(self, name: str) -> str | None:
        """The first value of a header."""
        wanted = name.lower()
        return next((value for found, value in self.headers if found.lower() == wanted), None)

    def without(self, *names: str) -> HttpResponse:
        """The same without these headers, which are in lower case."""
        left = tuple(header for header in self.headers if header[0].lower() not in names)
        return HttpResponse(self.status, left, self.body)

    def adding(self, name: str, value: str) -> HttpResponse:
        """The same with one more header."""
        return HttpResponse(self.status, (*self.headers, (name, value)), self.body)


def asgi_headers(headers: Iterable[Header]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI has them: bytes, the names in lower case."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def wsgi_headers(environ: Mapping[str, Any]) -> Iterator[Header]:
    """The headers of a WSGI environment."""
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name[5:].replace("_", "-").lower(), value
        elif name in {"CONTENT_TYPE", "CONTENT_LENGTH"} and value:
            yield name.replace("_", "-").lower(), value


def status_line(status: int) -> str:
    """A status with its phrase."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"
