"""What is stored of a response (redacted, encrypted, or a tombstone), and its replay.

Stored are the status, the headers that describe the body, and the bytes; not the headers of one
connection, one moment or one visitor.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model import checks
from onefold.web.http import Header, HttpResponse, accepts_coding, codings, decoded
from onefold.web.idempotency.encryption import UnreadableAnswer, is_sealed
from onefold.web.problems import RESPONSE_NOT_KEPT, make

if TYPE_CHECKING:
    from onefold.model.claim import ClaimKey
    from onefold.web.http import HttpRequest
    from onefold.web.idempotency.policy import RoutePolicy

VERSION: Final = 1
"""Of the stored form."""

MAX_BODY: Final = 1024 * 1024
MAX_HEADERS: Final = 16 * 1024
ANSWERED: Final = frozenset({"form", "http"})
"""The surfaces whose results are HTTP responses."""
MEDIA_TYPE: Final = r"^[!-~][ -~]{0,254}$(?!\n)"
"""A header value without line breaks."""
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
_DROPPED: Final = _HOP_BY_HOP | _OF_THE_MOMENT
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
        return entomb(answer, kept, sha256=digest, length=len(answer.body))
    headers = kept_headers(answer.headers, kept)
    text, length = _as_text(answer.body), len(answer.body)
    # In base64 three bytes are four. A text that is mostly escaped is longer.
    if text is not None and len(msgspec.json.encode(text)) <= 4 * ((length + 2) // 3) + 2:
        return _write(_Written(v=VERSION, status=answer.status, headers=headers, text=text))
    encoded = base64.b64encode(answer.body).decode()
    return _write(_Written(v=VERSION, status=answer.status, headers=headers, base64=encoded))


def operator_result(
    surface: str,
    result: Any,
    *,
    status: int | None = None,
    body: str = "",
    media_type: str = "application/json",
) -> Any:
    """The result that an operator stores for a key of a surface: of http and form, a response."""
    if surface not in ANSWERED:
        if status is not None or body:
            raise ConflictingOptions("status", "and body are only for keys of http and form")
        return result
    if status is None or result is not None:
        raise InvalidInput("status", f"is required for a key of {surface}, instead of a result")
    if not re.search(MEDIA_TYPE, media_type):
        raise InvalidInput("content_type", f"must be one line of ASCII, got {media_type[:100]!r}")
    headers = (("Content-Type", media_type),) if body else ()
    content = checks.text(body, "body", longest=MAX_BODY).encode()
    return json.loads(to_stored(HttpResponse(status, headers, content), Kept()))


def entomb(answer: HttpResponse, kept: Kept, *, sha256: str = "", length: int = 0) -> str:
    """The JSON text of a tombstone: for a response that is too long, secret, or endless."""
    headers = kept_headers(answer.headers, kept)
    written = _Written(
        v=VERSION, status=answer.status, headers=headers, sha256=sha256, length=length
    )
    return _write(written)


def from_stored(stored: object) -> HttpResponse | Tombstone:
    """The response of a stored text, or of the JSON value that such a text means."""
    written = _read(stored)
    if written.sha256 is not None and written.length is not None:
        return Tombstone(written.status, written.headers, written.sha256, written.length)
    return HttpResponse(written.status, written.headers, _body(written))


def kept_headers(headers: tuple[Header, ...], kept: Kept) -> tuple[Header, ...]:
    """The headers that a replay has, in their order and spelling."""
    dropped = _DROPPED.union(_listed(headers), map(str.lower, kept.drop))
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
        if value["v"] != VERSION:
            raise UnreadableAnswer(f"has the form {value['v']!r}, and this code reads {VERSION}")
        return msgspec.convert(value, _Written)
    except (msgspec.MsgspecError, LookupError, TypeError, RecursionError, UnicodeError):
        # Not the message of msgspec: it may quote the stored response.
        raise UnreadableAnswer("is not in the form that this code writes") from None


def _body(written: _Written) -> bytes:
    try:
        if written.text is not None:
            return written.text.encode()
        if written.base64 is not None:
            return base64.b64decode(written.base64, validate=True)
    except ValueError:
        raise UnreadableAnswer("has a body that is damaged") from None
    raise UnreadableAnswer("has neither a body nor a digest of one")


# --- with the policy of a route -------------------------------------------------------------------


def write_response(answer: HttpResponse, policy: RoutePolicy, key: ClaimKey) -> str:
    """The JSON text that is stored for a response, encrypted or not."""
    shown = answer if policy.redact is None else policy.redact(answer)
    # The marker is added to each replay.
    shown = shown.without(policy.marker.lower())
    is_buried = policy.stream == "tombstone"
    text = entomb(shown, policy.kept) if is_buried else to_stored(shown, policy.kept)
    if policy.sealing is None:
        return text
    sealed = policy.sealing.seal(text, place=_place(key))
    return msgspec.json.encode(sealed).decode()


def read_response(result: object, policy: RoutePolicy, key: ClaimKey) -> HttpResponse | Tombstone:
    """The stored response; `UnreadableAnswer` if it cannot be read."""
    if not isinstance(result, str) or not is_sealed(result):
        return from_stored(result)
    if policy.sealing is None:
        raise UnreadableAnswer("is encrypted, and this route has no keys to decrypt it")
    return from_stored(policy.sealing.open(result, place=_place(key)))


def _place(key: ClaimKey) -> str:
    """The place of a response: encrypted, it can be decrypted only there."""
    return f"{key.tenant}\0{key.surface}\0{key.scope}\0{key.key}"


# --- replay ---------------------------------------------------------------------------------------

_CODING: Final = "content-encoding"
_WITHOUT_BODY: Final = frozenset({204, 205, 304})
# They describe a body that is not there any more.
_OF_THE_BODY: Final = frozenset({"etag", "last-modified", "accept-ranges", "repr-digest", "digest"})


def replay(
    stored: HttpResponse | Tombstone, policy: RoutePolicy, request: HttpRequest
) -> HttpResponse:
    """The replay: status, headers and bytes of the first response, and the marker.

    For a tombstone it is a problem, or with `tombstone="location"` the first status and its
    Location without a body.
    """
    if isinstance(stored, HttpResponse):
        answer = _readable(stored, request)
    elif policy.tombstone == "location" and _has_location(stored):
        headers = tuple(header for header in stored.headers if not _is_of_the_body(header[0]))
        answer = _measured(HttpResponse(stored.status, headers))
    else:
        known: dict[str, object] = {"original_status": stored.status}
        if stored.sha256:
            known |= {"original_length": stored.length, "original_sha256": stored.sha256}
        answer = make(RESPONSE_NOT_KEPT, extra=known).answer(request)
    return answer.without(policy.marker.lower()).adding(policy.marker, "true")


def _readable(answer: HttpResponse, request: HttpRequest) -> HttpResponse:
    """The response in a content coding that this client accepts."""
    applied = codings([value for name, value in answer.headers if name.lower() == _CODING])
    is_accepted = all(accepts_coding(request, coding) for coding in applied)
    if is_accepted or answer.status in _WITHOUT_BODY:
        return _measured(answer)
    body = decoded(answer.body, applied)
    if body is None:
        return make(RESPONSE_NOT_KEPT, extra={"original_status": answer.status}).answer(request)
    plain = answer.without(_CODING)
    headers = tuple(_weakened(header) for header in plain.headers)
    return _measured(HttpResponse(answer.status, headers, body))


def _weakened(header: Header) -> Header:
    """A strong ETag is for the bytes in their coding; without the coding it is a weak one."""
    name, value = header
    if name.lower() == "etag" and value.startswith('"'):
        return name, f"W/{value}"
    return header


def _has_location(buried: Tombstone) -> bool:
    is_located = any(name.lower() == "location" for name, _ in buried.headers)
    return is_located and buried.status // 100 in {2, 3}


def _is_of_the_body(name: str) -> bool:
    lower = name.lower()
    return lower.startswith("content-") or lower in _OF_THE_BODY


def _measured(answer: HttpResponse) -> HttpResponse:
    """The response with its length, unless its status means that it has no body."""
    if answer.status in _WITHOUT_BODY:
        return HttpResponse(answer.status, answer.headers)
    plain = answer.without("content-length", "transfer-encoding")
    return plain.adding("Content-Length", str(len(answer.body)))
