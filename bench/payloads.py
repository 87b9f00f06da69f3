"""What every contestant stores: jobs with a payload of 100 bytes as JSON."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeVar

    T = TypeVar("T")

BYTES: Final = 100
KIND: Final = "email.send"
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


def payload(number: int) -> dict[str, Any]:
    """One payload; all have the same length."""
    content = {"user": 10_000_000 + number, "template": "welcome", "note": ""}
    return {**content, "note": "n" * (BYTES - len(encode(content)))}


def payloads(count: int, *, start: int = 0) -> list[dict[str, Any]]:
    """Many of them."""
    return [payload(start + number) for number in range(count)]


def unique_keys(count: int) -> list[str]:
    """Keys of which none is a duplicate."""
    return [f"email:{number:08}" for number in range(count)]


def keys(count: int) -> list[str]:
    """Keys of which half are duplicates, most of them of a key in another batch."""
    half = unique_keys(count // 2)
    doubled = half + half
    Random(20).shuffle(doubled)
    return doubled


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """In slices of `size`; all at once where it is 0."""
    step = size or len(items)
    for start in range(0, len(items), step):
        yield items[start : start + step]
