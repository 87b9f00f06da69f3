"""A stop ends the streams first, since servers wait for them."""

import asyncio
import http.client
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from onefold import Onefold
from onefold.server.drain import draining_at_signals
from tests.fixtures.serving import HOST, serving
from tests.kill.workers import PATIENCE


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """What a handler of SIGTERM was told that was there before."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


async def test_a_signal_drains_and_is_handled_as_before(handled: list[int]) -> None:
    drained = asyncio.Event()

    with draining_at_signals(drained.set):
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(drained.wait(), PATIENCE)

    assert handled == [signal.SIGTERM]
    drained.clear()
    signal.raise_signal(signal.SIGTERM)
    await asyncio.sleep(0)
    assert (handled, drained.is_set()) == ([signal.SIGTERM] * 2, False)


async def test_a_handler_of_the_event_loop_is_told_as_well() -> None:
    drained, told = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    try:
        with draining_at_signals(drained.set):
            signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(told.wait(), PATIENCE)
            await asyncio.wait_for(drained.wait(), PATIENCE)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_a_signal_that_nobody_handles_is_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with draining_at_signals(lambda: None):
        assert signal.getsignal(signal.SIGTERM) is before


async def test_another_thread_than_the_main_one_handles_no_signals() -> None:
    def enter() -> None:
        with draining_at_signals(lambda: None):
            entered.append(signal.getsignal(signal.SIGINT))

    entered: list[object] = []
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(PATIENCE)
    assert entered == [before]


def test_a_server_that_somebody_listens_to_stops(sqlite_url: str, tmp_path: Path) -> None:
    with Onefold(sqlite_url) as onefold:
        onefold.migrate()
    with serving(sqlite_url, folder=tmp_path) as server:
        connection = http.client.HTTPConnection(HOST, server.port, timeout=PATIENCE)
        connection.request("GET", "/v1/events")
        stream = connection.getresponse()
        assert stream.readline() == b"retry: 3000\n"

        server.terminate()

        assert b"event: stopping\n" in stream.read()
        assert server.wait() == 0
        connection.close()
