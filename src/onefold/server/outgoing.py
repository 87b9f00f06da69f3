"""An answer as it goes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.server import wire
from onefold.server.problems import document
from onefold.surfaces.http.answer import asgi_headers

if TYPE_CHECKING:
    from onefold.server.asking import Said
    from onefold.server.incoming import Send
    from onefold.surfaces.http.problem import Problem

Headers = tuple[tuple[str, str], ...]

_JSON: Final = ("content-type", "application/json")
_PROBLEM: Final = ("content-type", "application/problem+json")
_FRESH: Final = ("cache-control", "no-store")


class Response(msgspec.Struct, frozen=True):
    """Status, headers and bytes."""

    status: int
    headers: Headers = ()
    body: bytes = b""


def response_to(said: Said) -> Response:
    """What an endpoint said, as bytes."""
    if said.body is None:
        return Response(said.status, (_FRESH, *said.headers))
    if isinstance(said.body, bytes):
        return Response(said.status, said.headers, said.body)
    return Response(said.status, (_JSON, _FRESH, *said.headers), wire.encode(said.body))


def problem_response(
    problem: Problem, *, instance: str, request_id: str, more: Headers = ()
) -> Response:
    """A problem, as bytes."""
    headers: list[tuple[str, str]] = [_PROBLEM, _FRESH, *more]
    if problem.retry_after is not None:
        headers.append(("retry-after", str(problem.retry_after)))
    body = document(problem, instance=instance, request_id=request_id)
    return Response(problem.status, tuple(headers), body)


async def send_response(
    send: Send, response: Response, *, request_id: str, head: bool = False
) -> None:
    """Send it; a HEAD is told how long the body would be."""
    headers = asgi_headers(response.headers)
    headers.append((b"x-request-id", request_id.encode("latin-1")))
    if response.status not in {204, 304}:
        headers.append((b"content-length", str(len(response.body)).encode()))
    start: dict[str, Any] = {
        "type": "http.response.start",
        "status": response.status,
        "headers": headers,
    }
    await send(start)
    await send({"type": "http.response.body", "body": b"" if head else response.body})
