"""Measures one run: its time, what it used, and the time that the host took from the machine."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, NamedTuple

from bench.values import Lap

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from bench.meter import Meter

PROC_STAT = Path("/proc/stat")
STEAL = 7
"""The place of steal among the counters of /proc/stat; guests after it are counted in user."""


class Ticks(NamedTuple):
    """The machine's time so far."""

    total: int
    stolen: int

    @classmethod
    def parse(cls, text: str) -> Ticks:
        """From the first line of /proc/stat."""
        words = text.splitlines()[0].split()
        counters = [int(word) for word in words[1 : STEAL + 2]]
        return cls(sum(counters), counters[STEAL] if len(counters) > STEAL else 0)

    @classmethod
    def now(cls) -> Ticks:
        """Zero where the system does not say: then nothing is ever set aside."""
        return cls.parse(PROC_STAT.read_text()) if PROC_STAT.exists() else cls(0, 0)

    def steal_since(self, earlier: Ticks) -> float:
        """The share that was stolen since."""
        total = self.total - earlier.total
        return (self.stolen - earlier.stolen) / total if total > 0 else 0.0


class Stopwatch:
    """Measures the one part of a run that counts."""

    def __init__(self, meter: Meter | None = None) -> None:
        """Not started yet."""
        self._meter = meter
        self.lap: Lap | None = None
        self.marks: dict[str, float] = {}
        """What else the run finds, by the name of the reading; before or after the lap."""

    def leave_out(self, pid: int) -> None:
        """A connection by which the benchmark looks at a run is not counted."""
        if self._meter is not None:
            self._meter.leave_out(pid)

    @contextmanager
    def running(self, jobs: int, cpu: Callable[[], float] = process_time) -> Generator[None]:
        """Measure what happens inside; others may have to say whose processor time counts."""
        # What was made before the start shall not be looked through by a collection during it.
        gc.collect()
        gc.freeze()
        if self._meter is not None:
            self._meter.start()
        ticks, used_before, start = Ticks.now(), cpu(), perf_counter()
        yield
        seconds, used = perf_counter() - start, cpu() - used_before
        spent = self._meter.stop() if self._meter is not None else (None, None, None)
        self.lap = Lap(jobs, seconds, Ticks.now().steal_since(ticks), used, *spent)
