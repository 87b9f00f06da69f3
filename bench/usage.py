"""What processes have used, as the system says."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
_CLOCK_OF_PROCESS: Final = 2
"""Linux makes the number of a process's clock from its id: `clock_getcpuclockid`."""


class Usage(NamedTuple):
    """What /proc/<pid>/stat says of a process."""

    parent: int
    ended_seconds: float
    """CPU time of its children that have ended, whole lives; in ticks of the system."""
    resident_bytes: int

    @classmethod
    def parse(cls, text: str) -> Usage:
        """From the text. The name of the process may have spaces and brackets in it."""
        words = text.rpartition(")")[2].split()
        ticks, pages = int(words[13]) + int(words[14]), int(words[21])
        seconds = ticks / os.sysconf("SC_CLK_TCK")
        return cls(int(words[1]), seconds, pages * os.sysconf("SC_PAGE_SIZE"))

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Zero where the system does not say."""
        path = PROC / str(pid) / "stat"
        return cls.parse(path.read_text()) if PROC.exists() else cls(0, 0.0, 0)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, all its threads; in nanoseconds, as `schedstat` has it.

    Zero where the process has ended, and where the system does not say.
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | _CLOCK_OF_PROCESS) / 1e9
    except OSError:
        return 0.0


def children(pid: int) -> list[int]:
    """The processes that it has started and that live; none where the system does not say."""
    listed = PROC / str(pid) / "task" / str(pid) / "children"
    try:
        return [int(each) for each in listed.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def family(pid: int) -> list[int]:
    """The process, its children, and theirs."""
    return [pid, *(each for child in children(pid) for each in family(child))]


def title(pid: int) -> str:
    """The command line of a process; empty where there is none."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return words.replace(b"\0", b" ").decode(errors="replace").strip()
