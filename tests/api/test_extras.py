"""Where an optional part is missing, the error names the `pip install`."""

import os
import subprocess
import sys

import pytest

PARTS = [
    ("onefold.surfaces.fastapi", "fastapi", "onefold[fastapi]"),
    ("onefold.surfaces.starlette", "starlette", "onefold[starlette]"),
    ("onefold.surfaces.flask", "flask", "onefold[flask]"),
    ("onefold.surfaces.asgi", "http_sf", "onefold[http]"),
    ("onefold.surfaces.webhooks.fastapi", "starlette", "onefold[fastapi]"),
    ("onefold.surfaces.webhooks.starlette", "starlette", "onefold[starlette]"),
    ("onefold.surfaces.webhooks.flask", "flask", "onefold[flask]"),
    ("onefold.surfaces.webhooks.asymmetric", "cryptography", "onefold[webhooks]"),
    ("onefold.surfaces.forms.keys", "itsdangerous", "onefold[http]"),
    ("onefold.surfaces.forms.jinja", "jinja2", "jinja2"),
    ("onefold.surfaces.django", "django", "onefold[django]"),
    ("onefold.telemetry.opentelemetry", "opentelemetry", "onefold[opentelemetry]"),
    ("onefold.telemetry.prometheus", "prometheus_client", "onefold[prometheus]"),
    ("onefold.client.sync_driver", "urllib3", "onefold[client]"),
    ("onefold.client.async_driver", "aiohttp", "onefold[client]"),
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


@pytest.mark.parametrize(("module", "blocked", "package"), PARTS)
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
