"""Where an optional part is missing, the error names the `pip install`."""

import os
import subprocess
import sys

import pytest

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
