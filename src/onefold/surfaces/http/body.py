"""The body of a request while it comes in: its digest, and its bytes if there are few of them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.surfaces.http.form_body import Field, Reading, multipart

if TYPE_CHECKING:
    from onefold.surfaces.http.request import Request

MAX_IN_MEMORY: Final = 1024 * 1024


class Digested(msgspec.Struct, frozen=True, kw_only=True):
    """A body that was read to its end."""

    sha256: str
    length: int
    limit: int = MAX_IN_MEMORY
    """How many bytes would have been kept in memory."""
    body: bytes | None
    """None where it is longer than what is kept in memory."""
    fields: tuple[Field, ...] | None = None
    """Of a multipart form that was read piece by piece."""


class Digesting:
    """Reads a body piece by piece, in bounded memory."""

    def __init__(self, limit: int = MAX_IN_MEMORY, *, request: Request | None = None) -> None:
        """`limit` is how many bytes are kept; `request` tells whether a form comes in."""
        self._limit: int = limit
        self._hash = hashlib.sha256()
        self._kept = bytearray()
        self._form = None if request is None else _form(request)
        self.length: int = 0

    def feed(self, piece: bytes) -> None:
        """The next piece."""
        self.length += len(piece)
        self._hash.update(piece)
        if self._form is not None:
            self._form.feed(piece)
        if self.length > self._limit:
            self._kept.clear()
        else:
            self._kept += piece

    def done(self) -> Digested:
        """What the pieces were."""
        found = None if self._form is None else self._form.fields()
        return Digested(
            sha256=self._hash.hexdigest(),
            length=self.length,
            limit=self._limit,
            body=bytes(self._kept) if self.length <= self._limit else None,
            fields=None if found is None else tuple(found),
        )


def digested(body: bytes) -> Digested:
    """A body that is in memory anyway."""
    return Digested(sha256=hashlib.sha256(body).hexdigest(), length=len(body), body=body)


def _form(request: Request) -> Reading | None:
    """Only as it is on the wire: a form in a content coding has no parts yet."""
    if request.value("content-encoding") is not None:
        return None
    return multipart(request.value("content-type") or "")
