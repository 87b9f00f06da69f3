"""Counts of handled jobs, in memory that worker processes share with the parent.

1. A handler counts; nothing is sent, locked or waited for, so that counting costs next to nothing.
2. Each process has a number and samples of its own, and writes nowhere else.
"""

from __future__ import annotations

import mmap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

SAMPLES: Final = 10_000
"""Room of each process; what is handled beyond is counted, and has no sample."""
WORD: Final = 8


class Tally:
    """How many jobs each process has handled, and what it has noted of each."""

    def __init__(self, words: memoryview[int]) -> None:
        self._words = words
        self._places = range(0, len(words), SAMPLES + 1)

    def at(self, place: int) -> Counter:
        """Where one of the processes counts."""
        return Counter(self._words, self._places[place])

    @property
    def counts(self) -> list[int]:
        """How many jobs each process has handled."""
        return [self._words[start] for start in self._places]

    def samples(self, place: int) -> list[int]:
        """What a process has noted, job by job."""
        start = self._places[place] + 1
        return list(self._words[start : start + min(self.counts[place], SAMPLES)])


class Counter:
    """The number and the samples of one process."""

    def __init__(self, words: memoryview[int], start: int) -> None:
        self._words = words
        self._start = start

    def count(self, sample: int) -> None:
        """One more job was handled."""
        words, start = self._words, self._start
        number = words[start] + 1
        if number <= SAMPLES:
            words[start + number] = sample
        words[start] = number


def new_tally(path: Path, places: int) -> None:
    """A file of zeros, for so many processes."""
    path.write_bytes(bytes(WORD * (SAMPLES + 1) * places))


@contextmanager
def opened(path: Path) -> Generator[Tally]:
    """The tally in a file, shared with all who have opened it."""
    with (
        path.open("r+b") as file,
        mmap.mmap(file.fileno(), 0) as memory,
        memoryview(memory) as plain,
        plain.cast("q") as words,
    ):
        yield Tally(words)
