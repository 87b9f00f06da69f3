"""The wheel, as a user installs it: beside what its extra `server` needs, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.serving import Serving

ROOT = Path(__file__).parents[3]
SERVER_ONLY = Path(sys.prefix) / "server-only"
"""Made by `make .venv/.dev`. It has the packages of the extra `server`, without the project."""


def run(*command: object) -> str:
    """What a command that succeeds prints."""
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.prove
def test_the_wheel_serves_with_the_extra_server_alone(tmp_path: Path) -> None:
    assert SERVER_ONLY.exists(), "run `make .venv/.dev`: it makes the environment of this test"
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    uv = Path(sys.executable).with_name("uv")
    python = SERVER_ONLY / "bin/python"
    run(uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--reinstall",
        "--python", python, wheel)  # fmt: skip
    run(uv, "pip", "check", "--offline", "--python", python)

    server = Serving(
        f"sqlite:///{tmp_path}/onefold.db",
        folder=tmp_path,
        program=[str(SERVER_ONLY / "bin/onefold")],
    )
    try:
        server.start()
        dashboard = server.ask("GET", "/")
        reference = server.ask("GET", "/v1/docs")
        server.ask("PUT", "/v1/queues/payments", {})
        job = {"payload": {"orderId": "9482"}, "idempotencyKey": "order:9482:charge"}
        published = [server.ask("POST", "/v1/queues/payments/jobs", job) for _ in range(2)]
    finally:
        server.kill()

    assert b"<title>Overview" in dashboard.body
    assert reference.status == 200
    assert [one.status for one in published] == [201, 200]
    assert f"The dashboard: http://127.0.0.1:{server.port}/" in server.said()
