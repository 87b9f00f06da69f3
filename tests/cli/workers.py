"""Worker processes for tests: started with an application of their own, and heard through logs."""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from tests.cli.conftest import ONEFOLD
from tests.fixtures.patience import HANG
from tests.fixtures.place import Place

APP = """
import asyncio
import logging
import os
import types

from onefold import Onefold

log = logging.getLogger("app")
onefold = Onefold({url!r}, schema={schema!r})
parts = types.SimpleNamespace(onefold=onefold)


@onefold.job
def greet(name: str) -> None:
    log.info("hello %s", name)


@onefold.job
async def wait_for(path: str) -> None:
    log.info("waiting")
    while not os.path.exists(path):
        await asyncio.sleep(0.01)


@onefold.job(isolation="process")
def greet_apart(name: str) -> None:
    log.info("hello %s", name)


@onefold.job
def fail() -> None:
    raise ValueError("no such luck")
"""


def write_app(folder: Path, place: Place) -> None:
    """The application of `shop:onefold`."""
    (folder / "shop.py").write_text(APP.format(url=place.url, schema=place.schema))


class Process:
    """A command that runs until it is told to stop; its logs are read as they come."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        inherited = {name: os.environ[name] for name in os.environ if "ONEFOLD" not in name}
        self._process = subprocess.Popen(
            [ONEFOLD, "worker", *arguments],
            cwd=folder,
            env={**inherited, **environment},
            stderr=subprocess.PIPE,
            text=True,
            # What is left behind by a test that failed can be found, and killed, as a whole.
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.heard: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, text: str, *or_texts: str) -> str:
        """The next line that says so, or one of the others."""
        deadline = time.monotonic() + HANG
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"nobody said {text!r}:\n{''.join(self.heard)}") from None
            assert line is not None, f"it ended without saying {text!r}:\n{''.join(self.heard)}"
            self.heard.append(line)
            if any(wanted in line for wanted in (text, *or_texts)):
                return line

    def wait_for_json(self, text: str) -> dict[str, Any]:
        """The next line that says so, which is an object."""
        found: dict[str, Any] = json.loads(self.wait_for(text))
        return found

    def hear_all(self) -> str:
        """Everything, until nobody is left who could say anything: children included."""
        deadline = time.monotonic() + HANG
        while (line := self._lines.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
            self.heard.append(line)
        return "".join(self.heard)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Its status, once it has ended."""
        return self._process.wait(HANG)

    def stop(self) -> int:
        """Stop it as an operator does."""
        self.signal(signal.SIGTERM)
        return self.end()

    def kill(self) -> None:
        """Tidy up, whatever is left of it."""
        self._process.kill()
        self._process.wait()
