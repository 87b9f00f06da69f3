"""What a worker process has used, and what was asked of its database."""

from __future__ import annotations

import os

import pytest

from bench.crew import PROC, Usage
from bench.stage import statements

# pid (name) state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime …
STAT = (
    "4242 (python (x) y) S 1 4242 4242 0 -1 4194304 9000 0 3 0 150 50 7 8 20 0 4 0 123456"
    " 999999 2500 18446744073709551615 1 1 0 0 0 0 0\n"
)
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


def test_the_time_and_the_memory_of_a_process_are_read_behind_its_name() -> None:
    usage = Usage.parse(STAT)

    assert usage.cpu_seconds == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))
    assert usage.resident_bytes == 2500 * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not PROC.exists(), reason="this system has no /proc")
def test_this_process_has_used_some_memory() -> None:
    assert Usage.of(os.getpid()).resident_bytes > 0


def test_statements_are_counted_by_database_whatever_their_protocol() -> None:
    url = "postgresql://postgres@/bench_take_empty?host=/tmp"

    assert statements(LOG, url) == 3
