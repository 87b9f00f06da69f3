"""What the server's processes use, and who is counted."""

from __future__ import annotations

from contextlib import ExitStack

import psycopg
import pytest

from bench import meter
from bench.usage import PROC, cpu_seconds

pytestmark = pytest.mark.skipif(not PROC.exists(), reason="this system has no /proc")

WORK = b"select count(*) from generate_series(1, 1000000)"


@pytest.fixture
def url(server_url: str) -> str:
    return server_url


def connected(url: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(url, autocommit=True)


def started(stack: ExitStack, url: str) -> meter.Meter:
    opened = stack.enter_context(meter.opened(url))
    assert opened is not None
    opened.start()
    return opened


def test_a_connection_that_stays_is_counted(url: str) -> None:
    with ExitStack() as stack:
        connection = stack.enter_context(connected(url))
        connection.execute(WORK)
        watched = started(stack, url)
        idle = watched.stop()

        watched = started(stack, url)
        connection.execute(WORK)
        busy = watched.stop()

    assert busy.backends > idle.backends


def test_a_connection_that_has_ended_is_counted_from_the_start(url: str) -> None:
    with ExitStack() as stack:
        earlier = stack.enter_context(connected(url))
        for _ in range(10):
            earlier.execute(WORK)
        watched = started(stack, url)
        with connected(url) as connection:
            pid = connection.info.backend_pid
            connection.execute(WORK)
            used = cpu_seconds(pid)
        earlier.close()
        wait_for_the_end(pid)
        spent = watched.stop()

    # To a tick of the system's clock for each of the two that have ended.
    assert used - 0.02 <= spent.backends


def wait_for_the_end(pid: int) -> None:
    while (PROC / str(pid)).exists():
        pass


def test_connections_of_the_benchmark_itself_are_not_counted(url: str) -> None:
    with ExitStack() as stack:
        connection = stack.enter_context(connected(url))
        watched = stack.enter_context(meter.opened(url))
        assert watched is not None
        watched.leave_out(connection.info.backend_pid)
        watched.start()
        before = cpu_seconds(connection.info.backend_pid)
        connection.execute(WORK)
        used = cpu_seconds(connection.info.backend_pid) - before
        spent = watched.stop()

    assert spent.backends < used
