"""JSON, spelled in one way: white space and the order of members do not count, numbers do.

A number is what was written: 1 and 1.0 are two, and integers of any size are exact.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.model.canonical import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable

# No array is that long.
_DIGITS: Final = 10


class NotCanonical(ValueError):
    """Not JSON, or JSON that two readers may understand in two ways."""


def read(body: bytes) -> Any:
    """The value, with its numbers as they were written."""
    try:
        return json.loads(
            body.decode(),
            object_pairs_hook=_members,
            parse_int=_literal,
            parse_float=_literal,
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError) as error:
        raise NotCanonical from error


def write(value: Any) -> bytes:
    """The one spelling of a value that `read` gave."""
    try:
        return _sorted.encode(value)
    except (ValueError, RecursionError) as error:
        # Half a surrogate pair is no text.
        raise NotCanonical from error


def select(value: Any, paths: Iterable[str]) -> dict[str, Any]:
    """What is at the paths (`payment.amount`, `items.0.id`), as far as it is there."""
    found: dict[str, Any] = {}
    for path in paths:
        *way, last = path.split(".")
        place = _walk(value, way)
        if _has(place, last):
            found[path] = _step(place, last)
    return found


def remove(value: Any, path: str) -> None:
    """Take what is at a path out of a value, if it is there."""
    *way, last = path.split(".")
    place = _walk(value, way)
    if is_object(place):
        place.pop(last, None)


def _walk(value: Any, way: list[str]) -> Any:
    for name in way:
        if not _has(value, name):
            return None
        value = _step(value, name)
    return value


def _has(value: Any, name: str) -> bool:
    if is_array(value):
        return (
            name.isascii() and name.isdecimal() and len(name) < _DIGITS and int(name) < len(value)
        )
    return is_object(value) and name in value


def _step(value: Any, name: str) -> Any:
    return value[int(name)] if is_array(value) else value[name]


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotCanonical("a member is there twice")
    return members


def _literal(digits: str) -> msgspec.Raw:
    return msgspec.Raw(digits.encode())


def _refuse(constant: str) -> Any:
    raise NotCanonical(f"{constant} is not JSON")


_sorted = msgspec.json.Encoder(order="sorted")
