"""tools/debian-packages, which `make test` runs first: it installs, or says why not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "debian-packages"
MISSING = "no-such-package"
BY_HAND = "To do it by hand: apt-get install no-such-package\n"


@pytest.mark.parametrize(
    ("sudo", "package", "told"),
    [
        ("exit 1", "sh", ""),
        ("exit 1", MISSING, f"Not installed: {MISSING} (that needs root). {BY_HAND}"),
        (
            '[ "$2" = true ]',
            MISSING,
            f"Not installed: {MISSING} (sudo has not done it). {BY_HAND}",
        ),
        (
            'shift; [ "$1" = true ] || echo "as root: $*"',
            MISSING,
            f"as root: {SCRIPT} {MISSING}\n",
        ),
    ],
    ids=["there", "no sudo", "true only", "permitted"],
)
def test_what_is_missing_is_installed_or_told_and_is_no_failure(
    tmp_path: Path, sudo: str, package: str, told: str
) -> None:
    """For somebody who is not root, with commands that come before the machine's own."""
    commands = {"id": "echo 1000", "apt-get": "echo apt-get was run; exit 1", "sudo": sudo}
    for name, does in commands.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    done = subprocess.run(
        ("sh", str(SCRIPT), package), env=environment, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, told)
