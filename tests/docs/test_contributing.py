"""CONTRIBUTING.md describes the code as it is: its layers, and the files of one enqueue."""

import re
import sys
import tomllib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import onefold
from onefold import Onefold, Unique
from tests.docs.pages import ROOT, blocks

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PACKAGE = Path(onefold.__file__).parent


@contextmanager
def profiled(profile: Callable[[FrameType, str, Any], None]) -> Generator[None]:
    """Call `profile` for every call of this thread, then restore the profiler that was set."""
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)


def files_of_an_enqueue(url: str) -> list[str]:
    """The files of the package that one warm, keyed enqueue enters, in order of first use."""
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            entered[str(path.relative_to(PACKAGE))] = None

    with Onefold(url) as application:
        application.migrate()

        @application.job(unique=Unique("user_id"), queue="email")
        def send_welcome(user_id: int) -> None: ...

        for user_id in range(7):
            send_welcome.enqueue(user_id)
        with profiled(note):
            send_welcome.enqueue(42)
    return list(entered)


def test_the_walk_of_one_enqueue_lists_the_files_that_it_enters(postgres_url: str) -> None:
    section = CONTRIBUTING.read_text().partition("\n## The walk of one enqueue\n")[2]
    listed = re.findall(r"^\d+\. `(\S+\.py)`", section.partition("\n## ")[0], re.MULTILINE)
    walked = files_of_an_enqueue(postgres_url)
    expected = "\n".join(f"{n}. `{name}`" for n, name in enumerate(walked, start=1))

    assert set(listed) == set(walked), (
        f"'The walk of one enqueue' in CONTRIBUTING.md must list these files:\n{expected}"
    )


def test_the_layers_are_those_that_import_linter_checks() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (each for each in linter["contracts"] if each["id"] == "layers")
    checked = [layer.replace("onefold.", "") for layer in contract["layers"]]
    (picture,) = blocks(CONTRIBUTING, "text")
    drawn = [re.split(r" {2,}", line)[0] for line in picture.splitlines()]

    assert drawn == checked, "the layers in CONTRIBUTING.md must be:\n" + "\n".join(checked)
