"""One way to make a call in both colours, and processes that a test starts and ends."""

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal, TypeAlias

from onefold import Onefold

Colour: TypeAlias = Literal["sync", "async"]

ROOT = Path(__file__).parents[2]


class Caller:
    """Makes calls on an Onefold object: blocking, or awaited in one event loop."""

    def __init__(self, onefold: Onefold, colour: Colour) -> None:
        self.onefold = onefold
        self.colour: Colour = colour
        self._runner = asyncio.Runner()

    def __call__(self, name: str, *args: Any, **options: Any) -> Any:
        return self.on(self.onefold, name, *args, **options)

    def on(self, target: object, name: str, *args: Any, **options: Any) -> Any:
        """`name` may lead through a noun: `keys.settle`."""
        noun, _, method = name.rpartition(".")
        owner = attrgetter(noun)(target) if noun else target
        prefix = "" if self.colour == "sync" else "a"
        return self.wait(getattr(owner, prefix + method)(*args, **options))

    def wait(self, answer: Any) -> Any:
        """The answer itself, awaited where it has to be."""
        return self._runner.run(answer) if inspect.iscoroutine(answer) else answer

    def close(self) -> None:
        self("close")
        self._runner.close()


def start(script: str, *args: object, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start a Python script; what it prints and what it is told goes through pipes."""
    return subprocess.Popen(
        [*before, sys.executable, "-c", dedent(script), *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def run(script: str, *args: object, before: tuple[str, ...] = ()) -> list[str]:
    """Run a Python script to its end, which must be a good one; answers with its lines."""
    process = start(script, *args, before=before)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output.splitlines()


@contextmanager
def running(script: str, *args: object) -> Generator[subprocess.Popen[str]]:
    """A script that says a line when it is ready, and ends when its input ends."""
    process = start(script, *args)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield process
    finally:
        process.communicate()
