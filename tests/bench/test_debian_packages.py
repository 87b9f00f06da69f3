"""tools/debian-packages, which `make test` runs first: it installs, or says why not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "debian-packages"
MISSING = "no-such-package"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Commands that come before the machine's own: somebody who is not root, with an apt-get."""
    command(tmp_path, "id", "echo 1000")
    command(tmp_path, "apt-get", "echo apt-get was run; exit 1")
    return tmp_path


def command(folder: Path, name: str, does: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)


def run(machine: Path, *packages: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{machine}:{os.environ['PATH']}"}
    words = ("sh", str(SCRIPT), *packages)
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def test_what_is_there_is_not_installed(machine: Path) -> None:
    done = run(machine, "sh")

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("sudo", "reason"),
    [
        pytest.param("exit 1", "that needs root", id="nothing"),
        pytest.param('[ "$2" = true ]', "sudo has not done it", id="true only"),
    ],
)
def test_what_sudo_does_not_permit_is_told_and_is_no_failure(
    machine: Path, sudo: str, reason: str
) -> None:
    command(machine, "sudo", sudo)

    done = run(machine, MISSING)

    assert done.returncode == 0
    assert done.stdout == (
        f"Not installed: {MISSING} ({reason}). To do it by hand: apt-get install {MISSING}\n"
    )


def test_what_sudo_permits_is_done_by_it(machine: Path) -> None:
    command(machine, "sudo", 'shift; [ "$1" = true ] || echo "as root: $*"')

    done = run(machine, MISSING)

    assert (done.returncode, done.stdout) == (0, f"as root: {SCRIPT} {MISSING}\n")
