"""ASGI messages: read a request within limits, send a response or a stream."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import secrets
from contextlib import aclosing, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl, unquote_to_bytes

from onefold.model import wire
from onefold.model.wire import BadBody
from onefold.server import problems
from onefold.web.http import HttpRequest, HttpResponse, asgi_headers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.types import Receive, Scope, Send

    from onefold.server.request_context import Reply
    from onefold.web.http import Header

_REQUEST_ID: Final = re.compile(r"[!-~]{1,128}", re.ASCII)
_DIGITS: Final = 18
_LINGER: Final = 2.0
"""Seconds."""
_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")

_count: Final = itertools.count(1)
_series: list[str] = [secrets.token_hex(6)]
"""The prefix of the request ids of this process."""


def _new_series() -> None:
    _series[0] = secrets.token_hex(6)


# Otherwise a forked process continues with the ids of its parent.
os.register_at_fork(after_in_child=_new_series)


class Disconnected(Exception):
    """The client disconnected before its request was complete."""


def request_id_of(headers: Mapping[str, str]) -> str:
    """The id that the client sent, if it is valid; otherwise a new one."""
    given = headers.get("x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return f"{_series[0]}-{next(_count):x}"


def path_values(given: Mapping[str, str]) -> Mapping[str, str]:
    """The parameters of the path, decoded after routing: a name may contain a `/`."""
    values: dict[str, str] = {}
    for name, value in given.items():
        raw = value.encode("latin-1", "replace")
        if _PERCENT.search(raw):
            raise BadBody(name, "has a % without two hexadecimal digits after it", of="path")
        try:
            values[name] = unquote_to_bytes(raw).decode()
        except UnicodeDecodeError as error:
            raise BadBody(name, "is not UTF-8", of="path") from error
    return values


def query_of(raw: bytes, kind: Any) -> Any:
    """The query as a value of `kind`; a parameter that is not declared is rejected."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100
        )
    except ValueError as error:
        raise BadBody("query", f"cannot be read: {error}", of="query") from error
    if kind is None:
        name = pairs[0][0] if pairs else "query"
        raise BadBody(name, "is not a parameter of this route", of="query")
    return wire.convert_query(pairs, kind)


async def read_body(receive: Receive, *, headers: Mapping[str, str], limit: int) -> bytes:
    """The whole body; rejected as soon as it is too large."""
    length = headers.get("content-length", "")
    if length.isdecimal() and (len(length) > _DIGITS or int(length) > limit):
        if "expect" not in headers:  # otherwise the client waits, and has sent nothing yet
            await _skip_rest(receive)
        raise problems.too_large(limit)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        more = message.get("more_body", False)
        if size > limit:
            if more:
                await _skip_rest(receive)
            raise problems.too_large(limit)
    return b"".join(parts)


async def _skip_rest(receive: Receive) -> None:
    """Read for a short time: a client whose connection is cut does not see the rejection."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER):
            while (await receive()).get("more_body"):
                pass


def check_media_type(headers: Mapping[str, str]) -> None:
    """Reject a body that is not declared as JSON."""
    given = headers.get("content-type")
    media_type = "" if given is None else given.partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        shown = "no Content-Type" if given is None else f"the Content-Type {given[:100]!r}"
        detail = f"The body has {shown}; this route takes application/json."
        raise problems.refused(problems.UNSUPPORTED_MEDIA, detail)


def request_of(scope: Scope, template: str, request_id: str) -> HttpRequest:
    """The request, for the rules of idempotency keys and the log of duplicates."""
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name != b"x-request-id"
    ]
    return HttpRequest(
        method=scope["method"],
        path=scope.get("raw_path", b"").decode("latin-1") or scope["path"],
        query=scope.get("query_string", b"").decode("latin-1"),
        route=template,
        headers=(*headers, ("x-request-id", request_id)),
    )


_JSON: Final = ("content-type", "application/json")
_NO_STORE: Final = ("cache-control", "no-store")


def response_to(reply: Reply) -> HttpResponse:
    """The reply of an endpoint as bytes."""
    if reply.body is None:
        return HttpResponse(reply.status, (_NO_STORE, *reply.headers))
    if isinstance(reply.body, bytes):
        return HttpResponse(reply.status, reply.headers, reply.body)
    headers = (_JSON, _NO_STORE, *reply.headers)
    return HttpResponse(reply.status, headers, wire.encode(reply.body))


async def send_response(
    send: Send, response: HttpResponse, *, request_id: str, head: bool = False
) -> None:
    """Send a response; for HEAD, with the length of the body and without the body."""
    headers = [(b"x-request-id", request_id.encode("latin-1")), *_encoded(response.headers)]
    if response.status not in {204, 304}:
        headers.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else response.body})


@lru_cache(maxsize=64)
def _encoded(headers: tuple[Header, ...]) -> list[tuple[bytes, bytes]]:
    """Cached: most responses have the same headers."""
    return asgi_headers(headers)


async def send_stream(receive: Receive, send: Send, reply: Reply, *, request_id: str) -> None:
    """Send a reply whose body is an async generator of bytes."""
    headers = asgi_headers([("x-request-id", request_id), _NO_STORE, *reply.headers])
    async with aclosing(cast("AsyncGenerator[bytes]", reply.body)) as body:
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        sending = asyncio.create_task(_send_all(send, body))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)


async def _send_all(send: Send, body: AsyncGenerator[bytes]) -> None:
    async for part in body:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
