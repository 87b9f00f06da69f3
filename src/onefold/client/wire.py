"""Values as the server's `/v1` has them: camelCase, seconds, ISO times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from onefold.client.errors import ServerError
from onefold.model.json_text import is_array, is_object
from onefold.model.retry import Exponential
from onefold.model.timestamps import span, to_micros

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onefold.client.flow import Reply
    from onefold.model.lifecycle import Retention
    from onefold.model.retry import Backoff

T = TypeVar("T")

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Said(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """What a server answers. Members that are not known here are a newer server's: passed over."""


def read(reply: Reply, kind: type[T]) -> T:
    """The body of an answer as a value."""
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        detail = f"and the client cannot read it: {error}. Is there an Onefold server at this URL?"
        raise ServerError(reply.status, detail) from error


def said(members: Mapping[str, Any]) -> dict[str, Any]:
    """A body of the members that something is said about, with the wire's names."""
    return {camel(name): value for name, value in members.items() if value is not None}


def camel(name: str) -> str:
    """`max_attempts` is maxAttempts."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def iso(moment: datetime | None, field: str) -> str | None:
    """A moment: UTC, and its zone is no guess."""
    if moment is None:
        return None
    to_micros(moment, field)
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def seconds(duration: timedelta | None, field: str) -> float | None:
    """A duration."""
    if duration is None:
        return None
    span(duration, field)
    return duration.total_seconds()


def backoff(value: Backoff | None) -> dict[str, Any] | None:
    """How long a failed job waits."""
    if value is None:
        return None
    if isinstance(value, Exponential):
        return {
            "type": "exponential",
            "base": value.base.total_seconds(),
            "factor": value.factor,
            "cap": value.cap.total_seconds(),
            "jitter": value.jitter,
        }
    return {"type": "fixed", "base": value.always.total_seconds()}


def retention(value: Retention | None) -> dict[str, Any] | None:
    """How long the record of a finished job stays."""
    if value is None:
        return None
    return said(
        {name: seconds(getattr(value, name), name) for name in ("completed", "dead", "cancelled")}
    )


def snaked(value: Any) -> Any:
    """A document with the names that Python has for its members. Not for users' own JSON."""
    if is_object(value):
        return {snake(name): snaked(member) for name, member in value.items()}
    return [snaked(one) for one in value] if is_array(value) else value


def snake(name: str) -> str:
    """`maxAttempts` is max_attempts."""
    return _HUMP.sub("_", name).lower()
