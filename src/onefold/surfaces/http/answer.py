"""An answer, and what of it is stored.

Stored is what belongs to the effect: the status, the headers that describe the body, and the bytes
as they were. What belongs to one connection, one moment or one visitor is left out.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import InvalidInput, OnefoldError
from onefold.model import given
from onefold.surfaces.http.request import Header

if TYPE_CHECKING:
    from collections.abc import Iterable

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


class Answer(msgspec.Struct, frozen=True):
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


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What of an answer is stored."""

    max_body: int = MAX_BODY
    """Of a longer body only a tombstone is stored: that it was, and its digest."""
    max_headers: int = MAX_HEADERS
    """In bytes. Of a bigger block, only what describes the body and where things are."""
    cookies: tuple[str, ...] = ()
    """The cookies that are given again. Others were for one visitor at one moment."""
    drop: tuple[str, ...] = ()
    """More headers that are not given again."""
    request_id: str | None = None
    """The header whose value a replay has as Idempotency-Original-Request-Id."""

    def __post_init__(self) -> None:
        """Refuse what means something else than it looks like."""
        for field, value in (("cookies", self.cookies), ("drop", self.drop)):
            given.listed(value, field, "names")
        for field, size in (("max_body", self.max_body), ("max_headers", self.max_headers)):
            if size < 0:
                raise InvalidInput(field, f"must not be negative, got {size}")


class Tombstone(msgspec.Struct, frozen=True):
    """An answer that was sent once and not kept: it never runs again, and nobody makes it up."""

    status: int
    headers: tuple[Header, ...]
    sha256: str
    """Empty where nobody has counted: it was sent as it came."""
    length: int


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What was stored: either the answer or its tombstone."""

    answer: Answer | None = None
    tombstone: Tombstone | None = None
    version: int = VERSION


class UnreadableAnswer(OnefoldError):
    """Something is stored, and this code cannot read it. The request was carried out all the same.

    To be told as an unknown outcome, never as if nothing were there.
    """

    def __init__(self, reason: str) -> None:
        """`reason` goes on after "A stored answer"."""
        super().__init__(
            f"A stored answer {reason}. The request it belongs to is not carried out again; deploy"
            " the code and the keys that wrote it, or settle its key by hand.",
            reason=reason,
        )


class _Written(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored form. A body is text where that is shorter, so that people can read it, too."""

    v: int
    status: int
    headers: tuple[Header, ...] = ()
    text: str | None = None
    base64: str | None = None
    sha256: str | None = None
    length: int | None = None


def to_stored(answer: Answer, kept: Kept) -> str:
    """The JSON text that is stored for an answer, or for its tombstone where it is too long."""
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
    """The JSON text of a tombstone: for what is too long, too secret or has no end."""
    left = kept_headers(headers, kept)
    return _write(_Written(v=VERSION, status=status, headers=left, sha256=sha256, length=length))


def from_stored(stored: object) -> Stored:
    """The answer of a stored text, or of the JSON value that such a text means."""
    written = _read(stored)
    if written.sha256 is not None and written.length is not None:
        tombstone = Tombstone(written.status, written.headers, written.sha256, written.length)
        return Stored(tombstone=tombstone, version=written.v)
    return Stored(answer=Answer(written.status, written.headers, _body(written)), version=written.v)


def kept_headers(headers: tuple[Header, ...], kept: Kept) -> tuple[Header, ...]:
    """The headers that are given again, in their order and spelling."""
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
    """The names that Connection says are for this connection only."""
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
    # A NUL is JSON, but not every store's text.
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
        # Not the reason as msgspec has it: it may quote what was stored.
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
