"""The body of a request while it comes in: its digest, and its bytes if there are few of them."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

MAX_IN_MEMORY: Final = 1024 * 1024


class Digested(msgspec.Struct, frozen=True, kw_only=True):
    """A body that was read to its end."""

    sha256: str
    length: int
    body: bytes | None
    """None where it is longer than what is kept in memory."""


class Digesting:
    """Reads a body piece by piece, in bounded memory."""

    def __init__(self, limit: int = MAX_IN_MEMORY) -> None:
        """`limit` is how many bytes are kept."""
        self._limit: int = limit
        self._hash = hashlib.sha256()
        self._kept: bytearray | None = bytearray()
        self.length: int = 0

    def feed(self, piece: bytes) -> None:
        """The next piece."""
        self.length += len(piece)
        self._hash.update(piece)
        if self.length > self._limit:
            self._kept = None
        elif self._kept is not None:
            self._kept += piece

    def done(self) -> Digested:
        """What the pieces were."""
        return Digested(
            sha256=self._hash.hexdigest(),
            length=self.length,
            body=None if self._kept is None else bytes(self._kept),
        )


def digested(body: bytes) -> Digested:
    """A body that is in memory anyway."""
    return Digested(sha256=hashlib.sha256(body).hexdigest(), length=len(body), body=body)
