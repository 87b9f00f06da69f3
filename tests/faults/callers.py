"""One way to make a call in both colours, and processes that a test starts and ends."""

import asyncio
import inspect
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal, TypeAlias

from onefold import Onefold

Colour: TypeAlias = Literal["sync", "async"]

MakeCaller: TypeAlias = Callable[[Onefold], "Caller"]
"""Of the test's colour; closed when the test ends."""

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


# A disk of one megabyte, which only that process sees and which ends with it. Where the machine
# does not allow that, a limit on the size of files: the disk refuses to grow either way.
SMALL_DISK = """
import resource, subprocess, sys
from pathlib import Path

folder, mounts = Path(sys.argv[1]), sys.argv[2] == "mount"
ballast = folder / "ballast"

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def fill():
    ballast.write_bytes(b"x" * 600_000) if mounts else limit(400_000)

def make_room():
    ballast.unlink() if mounts else limit(resource.RLIM_INFINITY)

if mounts:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
"""


def run_on_a_small_disk(script: str, folder: Path) -> tuple[list[str], bool]:
    """Run a script on it, which can `fill` it and `make_room`; True where it is a disk."""
    namespace = ("unshare", "--map-root-user", "--mount")
    mount = [*namespace, "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    mounts = (
        shutil.which("unshare") is not None and not subprocess.run(mount, check=False).returncode
    )
    before = namespace if mounts else ()
    how = "mount" if mounts else "limit"
    return run(SMALL_DISK + dedent(script), folder, how, before=before), mounts


def kill(script: str, *args: object) -> None:
    """Start a script, and kill it when it has said a line."""
    process = start(script, *args)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


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
