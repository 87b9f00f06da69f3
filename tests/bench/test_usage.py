"""What processes have used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.usage import PROC, Usage, children, cpu_seconds, family, title

# pid (name) state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime
# cutime cstime …
STAT = (
    "4242 (python (x) y) S 1 4242 4242 0 -1 4194304 9000 0 3 0 150 50 7 8 20 0 4 0 123456"
    " 999999 2500 18446744073709551615 1 1 0 0 0 0 0\n"
)
linux = pytest.mark.skipif(not PROC.exists(), reason="this system has no /proc")


def test_a_process_is_read_behind_its_name() -> None:
    usage = Usage.parse(STAT)

    assert usage.parent == 1
    assert usage.ended_seconds == pytest.approx(15 / os.sysconf("SC_CLK_TCK"))
    assert usage.resident_bytes == 2500 * os.sysconf("SC_PAGE_SIZE")


@linux
def test_children_are_of_the_family_until_they_have_ended() -> None:
    # Some systems count in steps of 10 ms.
    busy = "import time\nwhile time.process_time() < 0.1: pass\nprint(flush=True)\ninput()"
    command = (sys.executable, "-c", busy)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in children(os.getpid())
        assert {os.getpid(), child.pid} <= set(family(os.getpid()))
        assert cpu_seconds(child.pid) > 0
        child.communicate()

    assert child.pid not in family(os.getpid())
    assert cpu_seconds(child.pid) == 0
    assert title(child.pid) == ""
    assert children(child.pid) == []
