"""The command line, through its front door: a process with arguments, output and a status."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from onefold.cli import main
from tests.fixtures.place import Place, place, postgres_place

__all__ = ["place", "postgres_place"]

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]
Operate: TypeAlias = Callable[..., "Done"]

ONEFOLD = Path(sysconfig.get_path("scripts")) / "onefold"


@pytest.fixture
def onefold_command(tmp_path: Path) -> Run:
    """Run `onefold` with these arguments, in a folder of its own."""

    def run(
        *arguments: str, stdin: str = "", **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        inherited = {
            name: os.environ[name] for name in os.environ if not name.startswith("ONEFOLD_")
        }
        return subprocess.run(
            [ONEFOLD, *arguments],
            cwd=tmp_path,
            env={**inherited, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )

    return run


class Done(NamedTuple):
    """What a command has left behind."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def operate(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Operate:
    """Run a command on each database in turn; in this process, since there are so many."""

    def operate(*arguments: str) -> Done:
        where = ("--database", place.url, "--schema", place.schema)
        monkeypatch.setattr(sys, "argv", ["onefold", *arguments, *where])
        with pytest.raises(SystemExit) as ended:
            main()
        status = ended.value.code
        assert isinstance(status, int)
        printed = capsys.readouterr()
        return Done(status, printed.out, printed.err)

    return operate


def read(done: Done) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
