"""A stored answer, given again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from onefold.surfaces.http.accept import accepts_coding
from onefold.surfaces.http.answer import Answer
from onefold.surfaces.http.content_coding import codings, decoded
from onefold.surfaces.http.problem import response_not_kept

if TYPE_CHECKING:
    from onefold.surfaces.http.answer import Stored, Tombstone
    from onefold.surfaces.http.request import Header, Request

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
    request: Request,
    marker: str | None = MARKER,
    tombstone: WhenBuried = "problem",
) -> Answer:
    """The answer to a retry: the first one's status, headers and bytes, and the marker.

    Of a tombstone, either a problem that says so, or with `tombstone="location"` the first status
    and its Location without a body.
    """
    if stored.answer is not None:
        answer = _readable(stored.answer, request)
    else:
        assert stored.tombstone is not None
        answer = _unburied(stored.tombstone, request, tombstone)
    return answer if marker is None else _marked(answer, marker)


def _readable(answer: Answer, request: Request) -> Answer:
    """The answer in a coding that this client takes; the first one may have taken another."""
    if answer.status in _WITHOUT_BODY:
        return Answer(answer.status, answer.headers)
    applied = codings([value for name, value in answer.headers if name.lower() == _CODING])
    if all(accepts_coding(request, coding) for coding in applied):
        return _measured(answer)
    body = decoded(answer.body, applied)
    if body is None:
        return response_not_kept({"original_status": answer.status}).answer(request)
    headers = tuple(_weakened(header) for header in answer.headers if header[0].lower() != _CODING)
    return _measured(Answer(answer.status, headers, body))


def _weakened(header: Header) -> Header:
    """A strong ETag stands for the bytes in their coding; without it, it is a weak one."""
    name, value = header
    if name.lower() == "etag" and value.startswith('"'):
        return name, f"W/{value}"
    return header


def _unburied(buried: Tombstone, request: Request, wanted: WhenBuried) -> Answer:
    locations = [header for header in buried.headers if header[0].lower() == "location"]
    if wanted == "location" and locations and buried.status // 100 in {2, 3}:
        headers = tuple(header for header in buried.headers if not _is_of_the_body(header[0]))
        if buried.status in _WITHOUT_BODY:
            return Answer(buried.status, headers)
        return _measured(Answer(buried.status, headers))
    known: dict[str, object] = {"original_status": buried.status}
    if buried.sha256:
        known |= {"original_length": buried.length, "original_sha256": buried.sha256}
    return response_not_kept(known).answer(request)


def _is_of_the_body(name: str) -> bool:
    lower = name.lower()
    return lower.startswith("content-") or lower in _OF_THE_BODY


def _measured(answer: Answer) -> Answer:
    left = (header for header in answer.headers if header[0].lower() not in _OF_THE_WIRE)
    length = ("Content-Length", str(len(answer.body)))
    return Answer(answer.status, (*left, length), answer.body)


def _marked(answer: Answer, marker: str) -> Answer:
    lower = marker.lower()
    headers = tuple(header for header in answer.headers if header[0].lower() != lower)
    return Answer(answer.status, (*headers, (marker, "true")), answer.body)
