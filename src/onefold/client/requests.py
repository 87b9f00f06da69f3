"""Requests to a server and its responses: paths, bodies and values in the form of `/v1`.

The wire has camelCase names, seconds and ISO times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from onefold.errors import InvalidInput
from onefold.model.json_text import encode_payload, is_array, is_object
from onefold.model.timestamps import span, to_micros
from onefold.model.wire import camel, encode

DURATIONS: Final = frozenset(
    {"ack_timeout", "delay", "idempotency_for", "lease", "max_wait", "overlap", "timeout"}
    | {"ttl", "unique_for"}
)
TIMES: Final = frozenset(
    {"created_before", "created_from", "ended_before", "ended_from", "expires_at", "run_at"}
)
JSON_VALUES: Final = frozenset({"metadata", "payload", "result"})
"""Members that are JSON of the application: their names are not changed."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. All tries of a call send the same request, with the same key."""

    method: str
    path: str
    """With its query."""
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    timeout: float = 30
    """Seconds for one try, from connecting to the last byte."""


class ClientResponse(msgspec.Struct, frozen=True):
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    """The names are in lower case."""
    body: bytes
    tries: int = 1
    """How often the request was sent."""


class WireStruct(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """A value in a response. Unknown members are ignored, because a newer server may send them."""


class ChangeReply(WireStruct, frozen=True, kw_only=True):
    """The response to a request that changes one thing."""

    already: bool = False
    """True if there was nothing to change."""
    released: bool = False
    settled: bool = False
    deleted: int = 0
    more: bool = False
    """True if a deletion by filter has not reached the end."""


def path(*parts: str) -> str:
    """A path below /v1. A part may contain any characters."""
    return "/v1/" + "/".join(_path_part(part, parts[index - 1]) for index, part in enumerate(parts))


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """A path with the members of a query that are not None."""
    members = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(members, doseq=True)}" if members else path


def wire_body(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a body that are not None, with the names and values of the wire."""
    return {
        camel(name): wire_value(name, value) for name, value in members.items() if value is not None
    }


def encode_body(body: object) -> bytes:
    """A body as JSON."""
    try:
        return encode(body)
    except UnicodeEncodeError as error:
        raise InvalidInput("body", f"must be valid Unicode, got {error.object!r}") from error


def wire_value(name: str, value: Any) -> Any:
    """One value of a body."""
    if name in JSON_VALUES:
        return json_value(value, name)
    if name in DURATIONS or isinstance(value, timedelta):
        return span(value, name) / 1_000_000
    if name in TIMES:
        to_micros(value, name)
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value


def json_value(value: Any, field: str) -> msgspec.Raw:
    """A JSON value of the application."""
    try:
        return msgspec.Raw(encode_payload(value).encode())
    except InvalidInput as error:
        raise InvalidInput(field, error.reason) from error


def snake_members(value: Any) -> Any:
    """A document with snake_case names. Not for JSON of the application."""
    if is_object(value):
        return {snake(name): snake_members(member) for name, member in value.items()}
    return [snake_members(one) for one in value] if is_array(value) else value


def snake(name: str) -> str:
    """`maxAttempts` becomes max_attempts."""
    return _HUMP.sub("_", name).lower()


def _path_part(part: object, before: str) -> str:
    # An empty part would be another route.
    if not isinstance(part, str) or not part:
        raise InvalidInput(
            before.removesuffix("s"), f"must be text that is not empty, got {part!r}"
        )
    # A part of dots would be removed from the path.
    return part.replace(".", "%2E") if part in {".", ".."} else quote(part, safe="")
