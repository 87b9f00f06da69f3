"""An answer that is sent while it is made, all but its end, which is not sent before it is stored.

Its pieces are what a WSGI server iterates over: `close` is called by it, once, whatever happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onefold.errors import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from onefold.surfaces.attempt import Attempt
    from onefold.surfaces.http.answer import Answer


class Passed:
    """Pieces that are nobody's business any more, and what to call when they are over."""

    def __init__(self, pieces: Iterator[bytes], close: Callable[[], None]) -> None:
        """`close` is called once, though others may call ours more often."""
        self._pieces = pieces
        self._close: Callable[[], None] | None = close

    def __iter__(self) -> Self:
        """The pieces."""
        return self

    def __next__(self) -> bytes:
        """The next piece."""
        return next(self._pieces)

    def close(self) -> None:
        """They are over."""
        close, self._close = self._close, None
        if close is not None:
            close()


class Forwarded(Passed):
    """Pieces that are stored when they have ended well."""

    def __init__(
        self,
        attempt: Attempt,
        head: Answer,
        pieces: Iterator[bytes],
        close: Callable[[], None],
    ) -> None:
        """`head` is the answer without its body."""
        super().__init__(pieces, close)
        self._attempt = attempt
        self._head = head
        self._seen: list[bytes] = []
        self._sent = 0
        self._is_over = False

    def __next__(self) -> bytes:
        """One piece is always kept back: it may be the last."""
        while not self._is_over and len(self._seen) < self._sent + 2:
            self._step()
        if self._sent == len(self._seen):
            raise StopIteration
        self._sent += 1
        return self._seen[self._sent - 1]

    def close(self) -> None:
        """A client that has left does not end what was begun: the rest is made, and stored."""
        try:
            while not self._is_over:
                self._step()
        finally:
            super().close()

    def _step(self) -> None:
        try:
            piece = next(self._pieces, None)
        except BaseException as error:
            self._is_over = True
            self._attempt.fail(error)
            raise
        if piece is not None:
            self._seen.append(piece)
            return
        self._is_over = True
        answer = msgspec.structs.replace(self._head, body=b"".join(self._seen))
        if self._attempt.finish(answer).status != answer.status:
            # Half of an answer is with the client that must not be taken for a whole one.
            raise LeaseLost("the key of this request", fence=0)
