"""Runs a part of the tests on every other interpreter of this machine: `make prove`.

1. Python 3.11 to 3.14, on the PATH and among the versions of pyenv; of each version the newest
   patch. The version of the main environment is left out, and so are builds without the GIL. What
   does not start, as a shim of pyenv, is no interpreter.
2. Each has an environment inside the main one, with the dependencies of uv.lock. No interpreter is
   downloaded.
3. The tests are a sample of those that `make test` runs in FOLDERS, which touch what differs
   between versions. Any warning is an error, as in all tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Version: TypeAlias = tuple[int, ...]

ROOT: Final = Path(__file__).parents[1]
ENVIRONMENT: Final = Path(sys.prefix)
VERSIONS: Final = ((3, 11), (3, 12), (3, 13), (3, 14))
FOLDERS: Final = ("contract", "borrowed", "testing", "worker", "batching", "api", "http")
PROBE: Final = """
import sys, sysconfig
if sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    print(*sys.version_info[:3])
"""


def found() -> dict[Version, tuple[Version, Path]]:
    """The newest interpreter of each version, with its patch."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = [Path(folder) for folder in os.get_exec_path()]
    best: dict[Version, tuple[Version, Path]] = {}
    for folder in (*pyenv.glob("versions/*/bin"), *on_path):
        for version in VERSIONS:
            path = folder / f"python{version[0]}.{version[1]}"
            patch = patch_of(path)
            if patch[:2] == version and patch > best.get(version, ((),))[0]:
                best[version] = patch, path
    return best


def patch_of(path: Path) -> Version:
    """The version of an interpreter; nothing if it is none."""
    try:
        probe = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ()
    return tuple(map(int, probe.stdout.split()))


def run_on(version: Version, path: Path) -> None:
    """Install an environment, and run the tests there."""
    environment = ENVIRONMENT / f"python{version[0]}.{version[1]}"
    uv = str(ENVIRONMENT / "bin/uv")
    own = {"UV_PROJECT_ENVIRONMENT": str(environment), "UV_PYTHON_DOWNLOADS": "never"}
    chosen = ["--frozen", "--all-extras", "--python", str(path)]
    if not succeeds([uv, "sync", "--quiet", *chosen], own):
        sys.exit(f"The packages of uv.lock cannot be installed for {path}: see above.")
    own = {"BIN": str(environment / "bin"), "ONEFOLD_PROOF": "sample"}
    folders = [f"tests/{each}" for each in FOLDERS]
    if not succeeds(["tools/prove", "--numprocesses=3", *folders], own):
        sys.exit(f"Tests fail on {path}: see above.")


def succeeds(command: Sequence[str], own: dict[str, str]) -> bool:
    """Run a command with variables of its own."""
    return subprocess.run(command, cwd=ROOT, env=os.environ | own, check=False).returncode == 0


def say(line: str) -> None:
    """Print a line at once, before those of a command."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Say which interpreters there are, and run the tests on each."""
    interpreters = found()
    for version in VERSIONS:
        name = ".".join(map(str, version))
        if version == sys.version_info[:2]:
            say(f"Python {name}: the main environment")
        elif version in interpreters:
            patch, path = interpreters[version]
            say(f"Python {'.'.join(map(str, patch))}: {path}")
            run_on(version, path)
        else:
            say(f"Python {name}: not on this machine, not tested")


if __name__ == "__main__":
    main()
