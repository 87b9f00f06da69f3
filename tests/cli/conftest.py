"""The command line, through its front door: a process with arguments, output and a status."""

import os
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.fixtures.place import place, postgres_place

__all__ = ["place", "postgres_place"]

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]

ONEFOLD = Path(sysconfig.get_path("scripts")) / "onefold"


@pytest.fixture
def onefold_command(tmp_path: Path) -> Run:
    """Run `onefold` with these arguments, in a folder of its own."""

    def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        inherited = {
            name: os.environ[name] for name in os.environ if not name.startswith("ONEFOLD_")
        }
        return subprocess.run(
            [ONEFOLD, *arguments],
            cwd=tmp_path,
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )

    return run
