"""The command line, through its front door: arguments, output and a status."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from onefold import Onefold
from onefold.cli import main
from tests.fixtures.colours import pytest_pyfunc_call
from tests.fixtures.patience import HANG
from tests.fixtures.place import Place, place, postgres_place

__all__ = ["place", "postgres_place", "pytest_pyfunc_call"]

Run: TypeAlias = Callable[..., "Done"]
Operate: TypeAlias = Callable[..., "Done"]

ONEFOLD = Path(sysconfig.get_path("scripts")) / "onefold"


class Done(NamedTuple):
    """What a command has left behind."""

    returncode: int
    stdout: str
    stderr: str


def run_apart(
    *command: str | Path, folder: Path | None = None, stdout: Any = subprocess.PIPE, **more: str
) -> "Done":
    """A command in a process of its own, with more variables in its environment."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **more},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=HANG,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def onefold_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run `onefold` with these arguments, in a folder of its own; in this process."""

    def run(*arguments: str, stdin: str = "", **environment: str) -> Done:
        modules, names = set(sys.modules), [name for name in os.environ if "ONEFOLD_" in name]
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            for name in names:
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["onefold", *arguments])
            patch.setattr(sys, "path", [*sys.path])
            for file in tmp_path.iterdir():  # Another test of this process may have one so named.
                patch.delitem(sys.modules, file.stem, raising=False)
            patch.setattr(sys, "stdin", TextIOWrapper(BytesIO(stdin.encode())))
            with pytest.raises(SystemExit) as ended:
                main()
        for name in set(sys.modules) - modules:
            # Applications of the test; the next one may have another of this name.
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]
        assert isinstance(ended.value.code, int)
        printed = capfd.readouterr()
        return Done(ended.value.code, printed.out, printed.err)

    return run


@pytest.fixture
def onefold(place: Place) -> Iterator[Onefold]:
    """What commands work on, with its tables."""
    with place.open() as onefold:
        onefold.migrate()
        yield onefold


@pytest.fixture
def operate(place: Place, onefold_command: Run) -> Operate:
    """Run a command on each database in turn."""
    where = ("--database", place.url, "--schema", place.schema)
    return lambda *arguments: onefold_command(*arguments, *where)


def read(done: Done) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
