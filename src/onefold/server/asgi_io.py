"""A request as it comes in: its id, its headers, its body within limits.

An answer as it goes out.

Answers that go on: sent piece by piece, until they end or their client has gone.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from onefold.model import wire
from onefold.model.wire import BadBody
from onefold.server import problems
from onefold.server.problems import document
from onefold.web.http import HttpRequest, asgi_headers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping

    from onefold.server.request_context import Reply
    from onefold.web.problems import Problem, Refused


if TYPE_CHECKING:
    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

_REQUEST_ID: Final = re.compile(r"[!-~]{1,128}", re.ASCII)
_DIGITS: Final = 18
_LINGER: Final = 2.0
"""Seconds."""
_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class _Numbers:
    """Ids of requests, told apart by process, and cheap: nothing here must be hard to guess."""

    def __init__(self) -> None:
        self.renew()
        # A forked process would go on with the numbers of the one that it came from.
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self._series = secrets.token_hex(6)
        self._count = itertools.count(1)

    def next(self) -> str:
        return f"{self._series}-{next(self._count):x}"


_numbers: Final = _Numbers()


class Disconnected(Exception):
    """The client has gone before its request was whole: there is nobody to answer."""


def request_id_of(headers: Mapping[str, str]) -> str:
    """The caller's own, if it is one; else a new one."""
    given = headers.get("x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return _numbers.next()


def path_values(given: Mapping[str, str]) -> dict[str, str]:
    """The parts of the path, decoded: routes are matched before that, so a name may have a `/`."""
    return {name: _decoded(value, name) for name, value in given.items()}


def _decoded(value: str, name: str) -> str:
    if "%" not in value and value.isascii():
        return value
    raw = value.encode("latin-1", "replace")
    if _PERCENT.search(raw):
        raise BadBody(name, "has a % that stands for no character", of="path")
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise BadBody(name, "is not UTF-8", of="path") from error


def query_of(raw: bytes, kind: Any) -> Any:
    """The query, as the route has it; what the route does not know is refused."""
    if not raw and kind is None:
        return None
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100
        )
    except ValueError as error:
        raise BadBody("query", f"cannot be read: {error}", of="query") from error
    if kind is None:
        raise BadBody(
            pairs[0][0] if pairs else "query", "is no parameter of this route", of="query"
        )
    return wire.convert_query(pairs, kind)


async def read_body(receive: Receive, *, headers: Mapping[str, str], limit: int) -> bytes:
    """The whole body; refused as soon as it is known to be too large."""
    length = headers.get("content-length", "")
    if length.isdecimal() and (len(length) > _DIGITS or int(length) > limit):
        if "expect" in headers:
            raise problems.too_large(limit)  # It waits for a word, and has sent nothing yet.
        raise await _too_large(receive, limit)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Disconnected
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        body = await _rest(receive, body, limit)
    if len(body) > limit:
        raise problems.too_large(limit)
    return body


async def _rest(receive: Receive, first: bytes, limit: int) -> bytes:
    parts, size, more = [first], len(first), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part = message.get("body", b"")
        size += len(part)
        more = message.get("more_body", False)
        if size > limit and more:
            raise await _too_large(receive, limit)
        parts.append(part)
    return b"".join(parts)


async def _too_large(receive: Receive, limit: int) -> Refused:
    """Refuse, but read on for a moment: who is cut off while sending never sees the answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER):
            while (await receive()).get("more_body"):
                pass
    return problems.too_large(limit)


def check_media_type(headers: Mapping[str, str]) -> None:
    """A body is JSON, and says so."""
    given = headers.get("content-type")
    media_type = "" if given is None else given.partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise problems.unsupported_media_type(given)


def as_request(scope: Scope, template: str | None = None) -> HttpRequest:
    """For the rules of idempotency keys."""
    return HttpRequest(
        method=scope["method"],
        path=scope.get("raw_path", b"").decode("latin-1") or scope["path"],
        query=scope.get("query_string", b"").decode("latin-1"),
        route=template,
        headers=tuple(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
        ),
    )


Headers = tuple[tuple[str, str], ...]

_JSON: Final = ("content-type", "application/json")
_PROBLEM: Final = ("content-type", "application/problem+json")
_FRESH: Final = ("cache-control", "no-store")


class Response(msgspec.Struct, frozen=True):
    """Status, headers and bytes."""

    status: int
    headers: Headers = ()
    body: bytes = b""


def response_to(said: Reply) -> Response:
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


async def send_stream(receive: Receive, send: Send, said: Reply, *, request_id: str) -> None:
    """Send what an endpoint gives; its body is an async generator of bytes."""
    headers = [
        (b"x-request-id", request_id.encode("latin-1")),
        (b"cache-control", b"no-store"),
        *asgi_headers(said.headers),
    ]
    await send({"type": "http.response.start", "status": said.status, "headers": headers})
    body = cast("AsyncGenerator[bytes]", said.body)
    sending = asyncio.create_task(_send_all(send, body))
    leaving = asyncio.create_task(_left(receive))
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
        await body.aclose()


async def _send_all(send: Send, body: AsyncGenerator[bytes]) -> None:
    async for part in body:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    """Until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
