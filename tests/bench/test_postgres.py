"""The server of a benchmark that was killed: stopped where it runs, and nobody else."""

from __future__ import annotations

import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from bench.postgres import stop

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path


@contextmanager
def waiting(*words: str) -> Generator[subprocess.Popen[bytes]]:
    """A process with these words in its command line, which /proc shows once it speaks."""
    command = ("sh", "-c", "echo; read line", *words)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@pytest.fixture
def left_behind(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the command line of a server on the folder, as its file says."""
    with waiting("postgres", "-D", str(tmp_path)) as process:
        name(tmp_path, process.pid)
        yield process


def name(folder: Path, pid: int) -> None:
    (folder / "postmaster.pid").write_text(f"{pid}\n{folder}\n")


def test_a_server_that_was_left_behind_is_stopped(
    tmp_path: Path, left_behind: subprocess.Popen[bytes]
) -> None:
    stop(tmp_path)

    assert left_behind.wait() == -signal.SIGQUIT


def test_the_server_of_another_folder_is_left_alone(
    tmp_path: Path, left_behind: subprocess.Popen[bytes]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    name(other, left_behind.pid)

    stop(other)

    assert left_behind.poll() is None
