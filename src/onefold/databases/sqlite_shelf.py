"""A shelf: a few things that cost something to make, kept for whoever needs one next."""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

MOST: Final = 8


class Closes(Protocol):
    """Something that is closed when nobody needs it any more."""

    def close(self) -> None:
        """Let go of what it holds."""


T = TypeVar("T", bound=Closes)


class Shelf(Generic[T]):
    """Keeps at most a few. Safe in threads: each step is one that nobody can come between."""

    def __init__(self) -> None:
        """It is empty."""
        self._things: list[T] = []
        self._is_closed = False

    def take(self) -> T | None:
        """One of them; None where there is none."""
        try:
            return self._things.pop()
        except IndexError:
            return None

    def put(self, thing: T) -> None:
        """Keep it for the next one, or close it where there are enough."""
        if len(self._things) >= MOST or self._is_closed:
            thing.close()
            return
        self._things.append(thing)
        self._close_late()

    def _close_late(self) -> None:
        """Another thread may have closed the shelf while this one put something there."""
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Close what there is, and what is put here later."""
        self._is_closed = True
        while (thing := self.take()) is not None:
            thing.close()
