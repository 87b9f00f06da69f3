"""What the processes of the server, the machine and a family of processes have used."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack

import psycopg
import pytest

from bench import meter
from bench.stage import statements
from bench.stopwatch import Ticks
from bench.usage import PROC, children, cpu_seconds, family

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
WORK = b"select count(*) from generate_series(1, 1000000)"
linux = pytest.mark.skipif(not PROC.exists(), reason="this system has no /proc")


@linux
def test_connections_that_have_ended_are_counted_and_those_of_the_benchmark_are_not(
    server_url: str,
) -> None:
    with ExitStack() as stack:
        own = stack.enter_context(psycopg.connect(server_url, autocommit=True))
        watched = stack.enter_context(meter.opened(server_url))
        assert watched is not None
        watched.leave_out(own.info.backend_pid)
        watched.start()
        before = cpu_seconds(own.info.backend_pid)
        for _ in range(10):
            own.execute(WORK)
        left_out = cpu_seconds(own.info.backend_pid) - before
        with psycopg.connect(server_url, autocommit=True) as connection:
            pid = connection.info.backend_pid
            connection.execute(WORK)
            used = cpu_seconds(pid)
        while (PROC / str(pid)).exists():
            pass
        spent = watched.stop()

    # To a tick of the system's clock.
    assert used - 0.02 <= spent.backends < left_out


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


def test_steal_is_a_share_of_the_machines_time_without_the_guests() -> None:
    assert Ticks.parse(LATER).steal_since(Ticks.parse(EARLIER)) == pytest.approx(30 / 300)


def test_statements_are_counted_by_database_whatever_their_protocol() -> None:
    url = "postgresql://postgres@/bench_take_empty?host=/tmp"

    assert statements(LOG, url) == 3
