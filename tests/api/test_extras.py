"""An extra is enough for its part; where a part is missing, the error names the `pip install`."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions, requires
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PARTS = [
    ("onefold.web.fastapi", "fastapi", "onefold[fastapi]"),
    ("onefold.web.starlette", "starlette", "onefold[starlette]"),
    ("onefold.web.flask", "flask", "onefold[flask]"),
    ("onefold.web.asgi", "http_sf", "onefold[http]"),
    ("onefold.web.webhooks.ed25519", "cryptography", "onefold[webhooks]"),
    ("onefold.web.forms.form_keys", "itsdangerous", "onefold[http]"),
    ("onefold.web.forms.jinja", "jinja2", "jinja2"),
    ("onefold.django", "django", "onefold[django]"),
    ("onefold.telemetry.opentelemetry", "opentelemetry", "onefold[opentelemetry]"),
    ("onefold.telemetry.prometheus", "prometheus_client", "onefold[prometheus]"),
    ("onefold.client.urllib3_sender", "urllib3", "onefold[client]"),
    ("onefold.client.aiohttp_sender", "aiohttp", "onefold[client]"),
    ("onefold.server.app", "starlette", "onefold[server]"),
    ("onefold.push.sender", "aiohttp", "onefold[server]"),
]

PROGRAM = """
import importlib, sys
module, blocked = sys.argv[1:]
sys.modules[blocked] = None
try:
    importlib.import_module(module)
except ImportError as error:
    print(error)
"""


def and_prove(cases: Iterable[tuple[str, ...]]) -> list[Any]:
    """Each is a process that imports much: the first runs in `make test`, all in `make prove`."""
    first, *others = cases
    return [first, *[pytest.param(*case, marks=pytest.mark.prove) for case in others]]


@pytest.mark.parametrize(("module", "blocked", "package"), and_prove(PARTS))
def test_a_missing_part_names_the_command_that_installs_it(
    module: str, blocked: str, package: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, blocked],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    assert f"pip install '{package}'" in done.stdout, done.stdout + done.stderr
    assert blocked in done.stdout


WITHOUT_ADVISORIES = {
    "aiohttp": "3.14.3",
    "cryptography": "46.0.7",
    "jinja2": "3.1.6",
    "python-multipart": "0.0.30",
    "urllib3": "2.8.0",
}


def test_no_extra_accepts_a_release_with_an_advisory_that_we_know_of() -> None:
    file = Path(__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    every = map(Requirement, chain(*extras.values()))
    wanted = [one for one in every if one.name in WITHOUT_ADVISORIES]
    lowest = [(one.name, Version(text.version)) for one in wanted for text in one.specifier]

    assert {one.name for one in wanted} == WITHOUT_ADVISORIES.keys()
    assert len(lowest) == len(wanted)
    for name, version in lowest:
        assert version >= Version(WITHOUT_ADVISORIES[name]), name


MODULES = {
    "": "onefold",
    "postgres": "onefold.databases.postgres.database",
    "cli": "onefold.cli.commands",
    "top": "onefold.cli.top_screen",
    "testing": "onefold.testing.plugin",
    "opentelemetry": "onefold.telemetry.opentelemetry",
    "prometheus": "onefold.telemetry.prometheus",
    "http": "onefold.web.asgi",
    "starlette": "onefold.web.starlette",
    "fastapi": "onefold.web.fastapi",
    "flask": "onefold.web.flask",
    "django": "onefold.django",
    "webhooks": "onefold.web.webhooks.ed25519",
    "server": "onefold.server.granian",
    "client": "onefold.client",
}

ALONE = """
import importlib, sys
module, *blocked = sys.argv[1:]
sys.modules.update(dict.fromkeys(set(blocked) - sys.modules.keys()))
importlib.import_module(module)
"""


def needed(name: str, extra: str, found: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The distributions that a distribution with an extra needs, with their own extras."""
    if (name, extra) not in found:
        found.add((name, extra))
        for requirement in map(Requirement, requires(name) or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                for wanted in requirement.extras | {""}:
                    needed(canonicalize_name(requirement.name), wanted, found)
    return found


@pytest.fixture(scope="module")
def packages() -> dict[str, set[str]]:
    """The distributions of each importable name: hundreds of files are read for it."""
    found = packages_distributions()
    return {top: set(map(canonicalize_name, names)) for top, names in found.items()}


@pytest.mark.parametrize(("extra", "module"), and_prove(MODULES.items()))
def test_an_extra_alone_is_enough_for_its_part(
    extra: str, module: str, packages: dict[str, set[str]]
) -> None:
    installed = {name for name, _ in needed("onefold", "", set()) | needed("onefold", extra, set())}
    blocked = [top for top, names in packages.items() if names.isdisjoint(installed)]

    done = subprocess.run(
        [sys.executable, "-c", ALONE, module, *blocked],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )

    assert done.returncode == 0, done.stderr
