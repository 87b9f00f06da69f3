"""Worker processes: started together, observed from outside, and killed at the end."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import msgspec

from bench import tally
from bench.usage import Usage, cpu_seconds, family
from bench.values import Shift

if TYPE_CHECKING:
    from collections.abc import Generator

    from bench.values import Order

GLANCE: Final = 0.002
"""Between two looks at the tally, in seconds: a thousandth of what is measured, and no work."""
PATIENCE: Final = 60.0


class Crew:
    """The worker processes of one run."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], shared: tally.Tally) -> None:
        self._processes = processes
        self.tally = shared
        self._counts = shared.counts
        self._since = time.monotonic()

    def cpu_seconds(self) -> float:
        """What all of them and their children have used so far."""
        return sum(cpu_seconds(pid) for each in self._processes for pid in family(each.pid))

    def resident_bytes(self) -> int:
        """The memory that all of them have now."""
        return sum(Usage.of(each.pid).resident_bytes for each in self._processes)

    def glance(self) -> None:
        """Let a moment pass, and see that they live."""
        self.check()
        time.sleep(GLANCE)

    def check(self) -> None:
        """A process that has ended is a failure, and so are processes that do not go on."""
        if any(each.poll() is not None for each in self._processes):
            raise RuntimeError("A worker process has ended; what it said is above.")
        counts, now = self.tally.counts, time.monotonic()
        if counts != self._counts:
            self._counts, self._since = counts, now
        elif now > self._since + PATIENCE:
            raise RuntimeError(f"The workers have handled {counts} jobs, and do not go on.")


@contextmanager
def crew(order: Order, url: str) -> Generator[Crew]:
    """Start as many processes as the order wants; at the end they are killed.

    Killed, not asked: no worker's way to shut down shall be part of the benchmark.
    """
    worker, size = order.word("worker"), order.number("processes") or 1
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tally"
        tally.new_tally(path, size)
        shifts = [Shift(worker, url, str(path), place, order.options) for place in range(size)]
        processes = [_start(shift) for shift in shifts]
        try:
            for process in processes:
                _hear_ready(process)
            for process in processes:
                _tell(process, b"begin\n")
            with tally.opened(path) as shared:
                yield Crew(processes, shared)
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.communicate()


def _start(shift: Shift) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.work"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    _tell(process, msgspec.json.encode(shift) + b"\n")
    return process


def _tell(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def _hear_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise RuntimeError("A worker process did not begin; what it said is above.")
