"""A request as it comes in: its id, its headers, its body within limits."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from onefold.server import problems, wire
from onefold.server.problems import BadBody
from onefold.surfaces.http.request import Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping

    from onefold.surfaces.http.problem import Refused

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


def as_request(scope: Scope, template: str | None = None) -> Request:
    """For the rules of idempotency keys."""
    return Request(
        method=scope["method"],
        path=scope.get("raw_path", b"").decode("latin-1") or scope["path"],
        query=scope.get("query_string", b"").decode("latin-1"),
        route=template,
        headers=tuple(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
        ),
    )
