"""The files of a deployment on the pages: as far as they can be checked without being run."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from onefold.cli.commands import app
from tests.docs.pages import DOCS, PAGES, blocks, name_of

DEPLOY = DOCS / "how-to/deploy.md"
UNITS = [text for text in blocks(DEPLOY, "ini") if text.startswith("[Unit]")]


def compose() -> dict[str, Any]:
    (text,) = blocks(DEPLOY, "yaml")
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def shell_commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of `onefold` in a shell."""
    for page in PAGES:
        for text in blocks(page, "sh"):
            joined = text.replace("\\\n", " ")
            for line in re.findall(r"(?:^|/bin/|server |=\S+ )(onefold .+)$", joined, re.MULTILINE):
                yield name_of(page), shlex.split(line, comments=True)


def service_commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of `onefold` in a unit, the compose file and the Dockerfile."""
    for unit in UNITS:
        for line in re.findall(r"^ExecStart=\S+/(onefold .+)$", unit, re.MULTILINE):
            yield name_of(DEPLOY), shlex.split(line)
    for service in compose()["services"].values():
        if "command" in service:
            yield name_of(DEPLOY), service["command"]
    (text,) = blocks(DEPLOY, "dockerfile")
    for line in re.findall(r"^CMD (\[.+\])$", text, re.MULTILINE):
        yield name_of(DEPLOY), yaml.safe_load(line)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An eager option such as --install-completion runs while it is parsed."""
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(("page", "command"), [*shell_commands(), *service_commands()], ids=str)
def test_every_command_that_is_shown_is_accepted(page: str, command: list[str]) -> None:
    """The parser of the command line reads it; nothing is run."""
    group: Any = get_command(app)
    arguments = command[1:]
    while hasattr(group, "commands") and arguments and arguments[0] in group.commands:
        group = group.commands[arguments.pop(0)]

    # It raises an error that names the wrong option.
    assert group.make_context("onefold", arguments), page


def test_the_units_are_accepted_by_systemd(tmp_path: Path) -> None:
    """Their program and their user do not exist here."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not installed: apt-get install systemd")
    files: list[Path] = []
    for number, unit in enumerate(UNITS):
        file = tmp_path / f"onefold-{number}.service"
        text = unit.replace("/srv/shop/.venv/bin/onefold", "/bin/true")
        file.write_text(text.replace("User=shop", "User=root"))
        files.append(file)
    done = subprocess.run(
        [program, "verify", "--man=no", *files], capture_output=True, text=True, check=False
    )

    assert len(UNITS) == 2
    assert "onefold-" not in done.stderr


def test_what_stops_a_process_waits_longer_than_its_grace_period() -> None:
    services = compose()["services"]

    assert [re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE) for unit in UNITS] == [
        ["45"],
        ["45"],
    ]
    assert {services[name]["stop_grace_period"] for name in ("worker", "server")} == {"45s"}


def test_services_wait_for_services_that_exist() -> None:
    services = compose()["services"]

    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
