"""A server process of a run: started, waited for, and stopped."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from bench import sqlite_stage, stage
from bench.usage import cpu_seconds, family

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from bench.values import Order

PATIENCE: Final = 30.0
HOST: Final = "127.0.0.1"


class Process:
    """A process that listens on a port."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self.port: int = port

    def cpu_seconds(self) -> float:
        """What it and its children have used so far."""
        return sum(map(cpu_seconds, family(self._process.pid)))


def prepared(order: Order) -> str:
    """The URL of a new database with Onefold's tables."""
    if order.url.startswith("sqlite"):
        sqlite_stage.onefold_file(order.url)
        return order.url
    return stage.onefold_database(order)


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(command: Sequence[str], port: int) -> Generator[Process]:
    """The process, once it listens."""
    environment = {**os.environ, "ONEFOLD_SERVE_LOG_LEVEL": "warning"}
    process = subprocess.Popen(
        [sys.executable, "-m", *command], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        _wait_for(process, port)
        yield Process(process, port)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError("The server has ended; what it said is above.")
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("The server does not listen.")
