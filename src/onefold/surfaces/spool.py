"""A request's body, read to its end and put where the application finds it; a big one on disk."""

from __future__ import annotations

from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final

from onefold.surfaces.http.body import MAX_IN_MEMORY, Digesting
from onefold.surfaces.http.problem import Refused, incomplete, too_large

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onefold.surfaces.http.body import Digested
    from onefold.surfaces.http.policy import Policy
    from onefold.surfaces.http.request import Request

PIECE: Final = 64 * 1024


def spool(
    read: Callable[[int], bytes], request: Request, policy: Policy, *, length: int | None
) -> tuple[IO[bytes], Digested]:
    """A body of this length (None: to its end) as a file that is yours to close, and its digest."""
    limit = policy.max_request
    _refuse_longer(length or 0, limit)
    digesting = _digesting(policy, request)
    file: IO[bytes] = BytesIO()
    try:
        for piece in _pieces(read, length):
            digesting.feed(piece)
            _refuse_longer(digesting.length, limit)
            if digesting.length > MAX_IN_MEMORY and isinstance(file, BytesIO):
                file = _on_disk(file)
            file.write(piece)
        _refuse_shorter(digesting.length, said_length(request))
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file, digesting.done()


def said_length(request: Request) -> int | None:
    """What Content-Length says; None where it says nothing that can be relied on."""
    said = request.value("content-length") or ""
    return int(said) if said.isascii() and said.isdigit() else None


def _refuse_longer(length: int, limit: int) -> None:
    if length > limit:
        raise Refused(too_large(limit))


def _refuse_shorter(length: int, said: int | None) -> None:
    if length < (said or 0):
        raise Refused(incomplete())


def _digesting(policy: Policy, request: Request) -> Digesting:
    """Keeps as much of a body in memory as the route's fingerprint needs."""
    # The key of a form is in its body, and its pages show what was submitted.
    by_digest = policy.fingerprint == "raw" and not policy.decode and policy.form is None
    limit = MAX_IN_MEMORY if by_digest else policy.max_request
    return Digesting(limit, request=request)


def _pieces(read: Callable[[int], bytes], length: int | None) -> Iterator[bytes]:
    left = length
    while left is None or left > 0:
        piece = read(PIECE if left is None else min(left, PIECE))
        if not piece:
            return
        yield piece
        left = None if left is None else left - len(piece)


def _on_disk(file: BytesIO) -> IO[bytes]:
    """In a file that has no name, and is gone when it is closed."""
    bigger: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed by whoever has asked for it
    bigger.write(file.getvalue())
    return bigger
