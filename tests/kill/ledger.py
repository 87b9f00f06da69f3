"""What handlers do outside of any transaction: lines of a file, which are never undone."""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """What a delivery has done."""

    word: str
    job_id: str
    fence: int
    value: str


class Ledger(NamedTuple):
    """A file as a value: it can be sent to another process and written there."""

    path: Path

    def note(self, word: str, job_id: str = "-", fence: int = 0, value: object = "-") -> None:
        """Write a line, whatever becomes of this process a moment later."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            # In one call: lines of several processes do not mix.
            os.write(descriptor, f"{word} {job_id} {fence} {value}\n".encode())
        finally:
            os.close(descriptor)

    def lines(self, *words: str) -> Iterator[Line]:
        """What was written so far: the lines with these words, or all."""
        if not self.path.exists():
            return
        with self.path.open() as file:
            for text in file:
                word, job_id, fence, value = text.split()
                if not words or word in words:
                    yield Line(word, job_id, int(fence), value)

    def count(self, *words: str) -> int:
        """How many lines there are."""
        return sum(1 for _ in self.lines(*words))

    def by_job(self, word: str) -> dict[str, list[Line]]:
        """The lines with this word, job by job."""
        found: defaultdict[str, list[Line]] = defaultdict(list)
        for line in self.lines(word):
            found[line.job_id].append(line)
        return found
