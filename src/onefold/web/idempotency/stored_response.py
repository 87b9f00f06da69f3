"""What is stored of a response (redacted, encrypted, or a tombstone), and its replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from onefold.web.http import (
    HttpResponse,
    UnreadableAnswer,
    accepts_coding,
    codings,
    decoded,
    entomb,
    from_stored,
    to_stored,
)
from onefold.web.idempotency.encryption import is_sealed
from onefold.web.problems import RESPONSE_NOT_KEPT, make

if TYPE_CHECKING:
    from onefold.model.claim import ClaimKey
    from onefold.web.http import Header, HttpRequest, Stored, Tombstone
    from onefold.web.idempotency.policy import RoutePolicy


def written(answer: HttpResponse, policy: RoutePolicy, key: ClaimKey) -> str:
    """The JSON text that is stored for a response, encrypted or not."""
    shown = _unmarked(answer if policy.redact is None else policy.redact(answer), policy.marker)
    if policy.stream == "tombstone":
        text = entomb(shown.status, shown.headers, policy.kept, sha256="", length=0)
    else:
        text = to_stored(shown, policy.kept)
    if policy.sealing is None:
        return text
    sealed = policy.sealing.seal(text, place=_place(key))
    return msgspec.json.encode(sealed).decode()


def _unmarked(answer: HttpResponse, marker: str) -> HttpResponse:
    """Without the marker: it is added to each replay."""
    left = tuple(header for header in answer.headers if header[0].lower() != marker.lower())
    return msgspec.structs.replace(answer, headers=left)


def read(result: object, policy: RoutePolicy, key: ClaimKey) -> Stored:
    """The stored response; `UnreadableAnswer` if it cannot be read."""
    if not isinstance(result, str) or not is_sealed(result):
        return from_stored(result)
    if policy.sealing is None:
        raise UnreadableAnswer("is encrypted, and this route has no keys to decrypt it")
    return from_stored(policy.sealing.open(result, place=_place(key)))


def _place(key: ClaimKey) -> str:
    """The place of a response: encrypted, it can be decrypted only there."""
    return f"{key.tenant}\0{key.surface}\0{key.scope}\0{key.key}"


WhenBuried: TypeAlias = Literal["problem", "location"]

MARKER: Final = "Idempotent-Replayed"

_CODING: Final = "content-encoding"
_WITHOUT_BODY: Final = frozenset({204, 205, 304})
_OF_THE_WIRE: Final = frozenset({"content-length", "transfer-encoding"})
# They describe a body that is not there any more.
_OF_THE_BODY: Final = frozenset({"etag", "last-modified", "accept-ranges", "repr-digest", "digest"})


def replay(
    stored: Stored,
    *,
    request: HttpRequest,
    marker: str | None = MARKER,
    tombstone: WhenBuried = "problem",
) -> HttpResponse:
    """The replay: status, headers and bytes of the first response, and the marker.

    For a tombstone it is a problem, or with `tombstone="location"` the first status
    and its Location without a body.
    """
    if stored.answer is not None:
        answer = _readable(stored.answer, request)
    else:
        assert stored.tombstone is not None
        answer = _unburied(stored.tombstone, request, tombstone)
    return answer if marker is None else _marked(answer, marker)


def _readable(answer: HttpResponse, request: HttpRequest) -> HttpResponse:
    """The answer in a coding that this client takes; the first one may have taken another."""
    if answer.status in _WITHOUT_BODY:
        return HttpResponse(answer.status, answer.headers)
    applied = codings([value for name, value in answer.headers if name.lower() == _CODING])
    if all(accepts_coding(request, coding) for coding in applied):
        return _measured(answer)
    body = decoded(answer.body, applied)
    if body is None:
        return make(RESPONSE_NOT_KEPT, extra={"original_status": answer.status}).answer(request)
    headers = tuple(_weakened(header) for header in answer.headers if header[0].lower() != _CODING)
    return _measured(HttpResponse(answer.status, headers, body))


def _weakened(header: Header) -> Header:
    """A strong ETag stands for the bytes in their coding; without it, it is a weak one."""
    name, value = header
    if name.lower() == "etag" and value.startswith('"'):
        return name, f"W/{value}"
    return header


def _unburied(buried: Tombstone, request: HttpRequest, wanted: WhenBuried) -> HttpResponse:
    locations = [header for header in buried.headers if header[0].lower() == "location"]
    if wanted == "location" and locations and buried.status // 100 in {2, 3}:
        headers = tuple(header for header in buried.headers if not _is_of_the_body(header[0]))
        if buried.status in _WITHOUT_BODY:
            return HttpResponse(buried.status, headers)
        return _measured(HttpResponse(buried.status, headers))
    known: dict[str, object] = {"original_status": buried.status}
    if buried.sha256:
        known |= {"original_length": buried.length, "original_sha256": buried.sha256}
    return make(RESPONSE_NOT_KEPT, extra=known).answer(request)


def _is_of_the_body(name: str) -> bool:
    lower = name.lower()
    return lower.startswith("content-") or lower in _OF_THE_BODY


def _measured(answer: HttpResponse) -> HttpResponse:
    left = (header for header in answer.headers if header[0].lower() not in _OF_THE_WIRE)
    length = ("Content-Length", str(len(answer.body)))
    return HttpResponse(answer.status, (*left, length), answer.body)


def _marked(answer: HttpResponse, marker: str) -> HttpResponse:
    lower = marker.lower()
    headers = tuple(header for header in answer.headers if header[0].lower() != lower)
    return HttpResponse(answer.status, (*headers, (marker, "true")), answer.body)
