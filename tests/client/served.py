"""A real server, `onefold serve`, that a test can kill and start again on the same port."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.fixtures.place import PATIENCE, Place

_TICK = 0.02


class Served:
    """One server on one database. Its processes are a group of their own."""

    def __init__(self, place: Place, log: Path, *more: str) -> None:
        self._place = place
        self._log = log
        self._more = more
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; comes back when it answers."""
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "onefold", "serve"),
                    *("--database", self._place.url, "--schema", self._place.schema),
                    *("--port", str(self.port), "--no-migrate", "--no-access-log"),
                    *self._more,
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
            )
        deadline = time.monotonic() + PATIENCE.total_seconds()
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            # A condition with a deadline: there is nothing to wait on but the port itself.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_TICK)

    def kill(self) -> None:
        """Every process of it, without a word."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=1) as response:
                return bool(json.loads(response.read()).get("status") == "ok")
        except (OSError, urllib.error.URLError, ValueError):
            return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def serving(place: Place, folder: Path, *more: str) -> Generator[Served]:
    """A server that is there, and gone afterwards."""
    server = Served(place, folder / "server.log", *more)
    try:
        server.start()
        yield server
    finally:
        server.kill()
