"""What processes, the machine and a server have used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.stage import statements
from bench.stopwatch import Stopwatch, Ticks
from bench.usage import PROC, Usage, children, cpu_seconds, family, title

# pid (name) state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime
# cutime cstime …
STAT = (
    "4242 (python (x) y) S 1 4242 4242 0 -1 4194304 9000 0 3 0 150 50 7 8 20 0 4 0 123456"
    " 999999 2500 18446744073709551615 1 1 0 0 0 0 0\n"
)
# user nice system idle iowait irq softirq steal guest guest_nice
EARLIER = "cpu  100 0 50 800 20 0 10 20 60 0\ncpu0 50 0 25 400 10 0 5 10 30 0\n"
LATER = "cpu  150 0 70 1000 20 0 10 50 90 0\ncpu0 75 0 35 500 10 0 5 25 45 0\n"
LOG = """\
2026-01-01 10:00:00.000 UTC [10] bench_take_empty LOG:  statement: BEGIN
2026-01-01 10:00:00.000 UTC [10] bench_take_empty LOG:  execute <unnamed>: with picked as (
\tselect 1
)
2026-01-01 10:00:00.000 UTC [10] bench_take_empty DETAIL:  Parameters: $1 = '1'
2026-01-01 10:00:00.000 UTC [11] bench_take_empty_too LOG:  statement: select 1
2026-01-01 10:00:00.000 UTC [12]  LOG:  checkpoint starting: time
2026-01-01 10:00:00.000 UTC [10] bench_take_empty LOG:  statement: COMMIT
"""
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


def test_steal_is_a_share_of_the_machines_time_without_the_guests() -> None:
    assert Ticks.parse(EARLIER) == Ticks(total=1000, stolen=20)
    assert Ticks.parse(LATER).steal_since(Ticks.parse(EARLIER)) == pytest.approx(30 / 300)


def test_work_that_failed_has_no_lap() -> None:
    watch = Stopwatch()

    with pytest.raises(ZeroDivisionError), watch.running(7):
        _ = 1 / 0

    assert watch.lap is None


def test_statements_are_counted_by_database_whatever_their_protocol() -> None:
    url = "postgresql://postgres@/bench_take_empty?host=/tmp"

    assert statements(LOG, url) == 3
