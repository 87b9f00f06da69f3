"""Bodies out of their content coding: gzip and deflate, up to a bound."""

from __future__ import annotations

import zlib
from typing import Final

LONGEST: Final = 16 * 1024 * 1024
"""A small body may unfold to anything; no more than this is unfolded."""

_WITH_GZIP_HEADER: Final = 16 + zlib.MAX_WBITS


def codings(values: list[str]) -> list[str]:
    """The codings that were applied, in their order; `identity` is none."""
    named = [coding.strip(" \t").lower() for value in values for coding in value.split(",")]
    return [coding for coding in named if coding not in {"", "identity"}]


def decoded(body: bytes, applied: list[str], *, longest: int = LONGEST) -> bytes | None:
    """The body without its codings; None where one is unknown, broken or unfolds too far."""
    for coding in reversed(applied):
        if coding in {"gzip", "x-gzip"}:
            found = _gunzip(body, longest)
        elif coding == "deflate":
            found = _inflate(body, longest)
        else:
            return None
        if found is None:
            return None
        body = found
    return body


def _gunzip(body: bytes, longest: int) -> bytes | None:
    """Every member, one after the other."""
    unfolded = bytearray()
    while body:
        stream = zlib.decompressobj(_WITH_GZIP_HEADER)
        try:
            unfolded += stream.decompress(body, longest - len(unfolded) + 1)
        except zlib.error:
            return None
        if not stream.eof or len(unfolded) > longest:
            return None
        body = stream.unused_data
    return bytes(unfolded)


def _inflate(body: bytes, longest: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        unfolded = stream.decompress(body, longest + 1)
    except zlib.error:
        return None
    if not stream.eof or stream.unused_data or len(unfolded) > longest:
        return None
    return unfolded
