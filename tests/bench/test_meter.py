"""What the server's processes use, and who is counted."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
import pytest

from bench import meter, postgres
from bench.usage import PROC, cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not PROC.exists(), reason="this system has no /proc")

WORK = b"select count(*) from generate_series(1, 300000)"
WRITE = b"create table written as select n, repeat('x', 100) from generate_series(1, 1000) as n"


@pytest.fixture(scope="module", params=["tcp", "unix"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that no other test uses."""
    with postgres.server(tmp_path_factory.mktemp("bench") / "postgres", request.param) as started:
        yield started


def connected(url: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(url, autocommit=True)


def started(stack: ExitStack, url: str) -> meter.Meter:
    opened = stack.enter_context(meter.opened(url))
    assert opened is not None
    opened.start()
    return opened


def test_the_server_is_reached_in_the_way_that_is_asked_for(url: str) -> None:
    with connected(url) as connection:
        ((address,),) = connection.execute("select inet_server_addr()").fetchall()

    assert (address is None) == ("host=" in url)


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


def test_what_is_written_is_counted_in_bytes(url: str) -> None:
    with ExitStack() as stack:
        connection = stack.enter_context(connected(url))
        connection.execute("drop table if exists written")
        watched = started(stack, url)
        connection.execute(WRITE)
        spent = watched.stop()

    assert spent.wal_bytes > 100 * 1000


def test_sqlite_has_no_server() -> None:
    with meter.opened("sqlite:///bench.db") as opened:
        assert opened is None
