"""HTTP requests and responses without a framework, content negotiation and content codings.

A stored response has the status, the headers that describe the body, and the bytes. It has no
headers of one connection, one moment or one visitor.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import zlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from onefold.errors import InvalidInput, OnefoldError
from onefold.model import checks

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
        return next(iter(self.values(name)), None)

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
"""A small body may unfold to anything; no more than this is unfolded."""

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
    return body


def _gunzip(body: bytes, longest: int) -> bytes | None:
    """Every member, one after the other."""
    unfolded = bytearray()
    while body:
        stream = zlib.decompressobj(_WITH_GZIP_HEADER)
        try:
            unfolded += stream.decompress(body, longest - len(unfolded) + 1)
        except zlib.error:
            return None
        if not stream.eof or len(unfolded) > longest:
            return None
        body = stream.unused_data
    return bytes(unfolded)


def _inflate(body: bytes, longest: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        unfolded = stream.decompress(body, longest + 1)
    except zlib.error:
        return None
    if not stream.eof or stream.unused_data or len(unfolded) > longest:
        return None
    return unfolded


VERSION: Final = 1
"""Of the stored form. A newer one is not guessed at."""

MAX_BODY: Final = 1024 * 1024
MAX_HEADERS: Final = 16 * 1024
ORIGINAL_REQUEST_ID: Final = "Idempotency-Original-Request-Id"

_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Of the moment and the machine: a replay has its own.
_OF_THE_MOMENT: Final = frozenset(
    {
        "age",
        "content-length",
        "date",
        "server",
        "server-timing",
        "traceparent",
        "tracestate",
        "x-correlation-id",
        "x-request-id",
    }
)
# What is kept of a block of headers that is too big, in this order.
_NEEDED: Final = (
    "content-type",
    "content-encoding",
    "location",
    "content-disposition",
    "content-language",
    "etag",
    "last-modified",
    "cache-control",
    "vary",
    "link",
)


class HttpResponse(msgspec.Struct, frozen=True):
    """A response, whole. The names of its headers keep their case but over ASGI."""

    status: int
    headers: tuple[Header, ...] = ()
    body: bytes = b""

    def value(self, name: str) -> str | None:
        """The first value of a header."""
        wanted = name.lower()
        return next((value for found, value in self.headers if found.lower() == wanted), None)


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


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a response."""

    max_body: int = MAX_BODY
    """Of a longer body only a tombstone is stored: that it was, and its digest."""
    max_headers: int = MAX_HEADERS
    """In bytes. Of more headers, only those that describe the body and locations are stored."""
    cookies: tuple[str, ...] = ()
    """The cookies that a replay has. Others were for one visitor at one moment."""
    drop: tuple[str, ...] = ()
    """More headers that a replay does not have."""
    request_id: str | None = None
    """The header whose value a replay has as Idempotency-Original-Request-Id."""

    def __post_init__(self) -> None:
        """Refuse what means something else than it looks like."""
        for field, value in (("cookies", self.cookies), ("drop", self.drop)):
            checks.listed(value, field, "names")
        for field, size in (("max_body", self.max_body), ("max_headers", self.max_headers)):
            if size < 0:
                raise InvalidInput(field, f"must not be negative, got {size}")


class Tombstone(msgspec.Struct, frozen=True):
    """Stored instead of a response that was not kept: the request does not run again."""

    status: int
    headers: tuple[Header, ...]
    sha256: str
    """Empty if the response was streamed and not digested."""
    length: int


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """The stored response, or its tombstone."""

    answer: HttpResponse | None = None
    tombstone: Tombstone | None = None
    version: int = VERSION


class UnreadableAnswer(OnefoldError):
    """Something is stored, and this code cannot read it. The request was carried out all the same.

    It means an unknown outcome, never a free key.
    """

    def __init__(self, reason: str) -> None:
        """`reason` goes on after "A stored answer"."""
        super().__init__(
            f"A stored answer {reason}. The request it belongs to is not carried out again; deploy"
            " the code and the keys that wrote it, or settle its key by hand.",
            reason=reason,
        )


class _Written(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored form. A body is text if that is shorter."""

    v: int
    status: int
    headers: tuple[Header, ...] = ()
    text: str | None = None
    base64: str | None = None
    sha256: str | None = None
    length: int | None = None


def to_stored(answer: HttpResponse, kept: Kept) -> str:
    """The JSON text that is stored: the response, or a tombstone if it is too long."""
    if len(answer.body) > kept.max_body:
        digest = hashlib.sha256(answer.body).hexdigest()
        return entomb(answer.status, answer.headers, kept, sha256=digest, length=len(answer.body))
    headers = kept_headers(answer.headers, kept)
    text, encoded = _as_text(answer.body), base64.b64encode(answer.body).decode()
    if text is not None and len(msgspec.json.encode(text)) <= len(encoded) + 2:
        return _write(_Written(v=VERSION, status=answer.status, headers=headers, text=text))
    return _write(_Written(v=VERSION, status=answer.status, headers=headers, base64=encoded))


def entomb(
    status: int, headers: tuple[Header, ...], kept: Kept, *, sha256: str, length: int
) -> str:
    """The JSON text of a tombstone: for a response that is too long, secret, or endless."""
    left = kept_headers(headers, kept)
    return _write(_Written(v=VERSION, status=status, headers=left, sha256=sha256, length=length))


def from_stored(stored: object) -> Stored:
    """The answer of a stored text, or of the JSON value that such a text means."""
    written = _read(stored)
    if written.sha256 is not None and written.length is not None:
        tombstone = Tombstone(written.status, written.headers, written.sha256, written.length)
        return Stored(tombstone=tombstone, version=written.v)
    return Stored(
        answer=HttpResponse(written.status, written.headers, _body(written)), version=written.v
    )


def kept_headers(headers: tuple[Header, ...], kept: Kept) -> tuple[Header, ...]:
    """The headers that a replay has, in their order and spelling."""
    dropped = _HOP_BY_HOP | _OF_THE_MOMENT | _listed(headers) | {name.lower() for name in kept.drop}
    left: list[Header] = []
    for name, value in headers:
        lower = name.lower()
        if kept.request_id is not None and lower == kept.request_id.lower():
            left.append((ORIGINAL_REQUEST_ID, value))
        elif lower == "set-cookie":
            if cookie_name(value) in kept.cookies:
                left.append((name, value))
        elif lower not in dropped:
            left.append((name, value))
    return _bounded(left, kept.max_headers)


def cookie_name(value: str) -> str:
    """The name of the cookie that a Set-Cookie sets."""
    name, equals, _ = value.partition(";")[0].partition("=")
    return name.strip(" \t") if equals else ""


def _listed(headers: tuple[Header, ...]) -> set[str]:
    """The header names that Connection lists."""
    values = [value for name, value in headers if name.lower() == "connection"]
    return {name.strip(" \t").lower() for value in values for name in value.split(",")}


def _bounded(headers: list[Header], limit: int) -> tuple[Header, ...]:
    if sum(map(_size, headers)) <= limit:
        return tuple(headers)
    chosen: set[int] = set()
    for needed in _NEEDED:
        for place, header in enumerate(headers):
            if header[0].lower() == needed and _size(header) <= limit:
                limit -= _size(header)
                chosen.add(place)
    return tuple(header for place, header in enumerate(headers) if place in chosen)


def _size(header: Header) -> int:
    # As on the wire: a colon, a space, and the end of the line.
    return len(header[0]) + len(header[1]) + 4


def _as_text(body: bytes) -> str | None:
    # JSON allows NUL, PostgreSQL does not store it.
    if b"\0" in body:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _write(written: _Written) -> str:
    return msgspec.json.encode(written).decode()


def _read(stored: object) -> _Written:
    try:
        value: Any = msgspec.json.decode(stored) if isinstance(stored, str) else stored
        version = msgspec.convert(value, _Version).v
        if version != VERSION:
            raise UnreadableAnswer(f"has the form {version}, and this code reads {VERSION}")
        return msgspec.convert(value, _Written)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        # Not the message of msgspec: it may quote the stored response.
        raise UnreadableAnswer("is not in the form that this code writes") from None


class _Version(msgspec.Struct, frozen=True):
    v: int


def _body(written: _Written) -> bytes:
    try:
        if written.text is not None:
            return written.text.encode()
        if written.base64 is not None:
            return base64.b64decode(written.base64, validate=True)
    except ValueError:
        raise UnreadableAnswer("has a body that is damaged") from None
    raise UnreadableAnswer("has neither a body nor a digest of one")
