"""What is no HTTP, or too much of it, sent to a server that runs: it is told off, and lives."""

import json
import socket
from pathlib import Path

import pytest

from tests.fixtures.serving import HOST, serving
from tests.kill.workers import PATIENCE

LINE = b"POST /v1/queues/payments/jobs HTTP/1.1\r\nHost: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"

NO_REQUESTS = {
    "a header of a megabyte": LINE + b"X-Noise: " + b"x" * 1_000_000 + b"\r\n\r\n",
    "ten thousand headers": LINE + b"".join(b"X-%d: y\r\n" % n for n in range(10_000)) + b"\r\n",
    "a path of a megabyte": b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no method": b"\x00\x01\x02\x03\r\n\r\n",
    "a NUL in a header": LINE + b"X-Noise: a\x00b\r\n\r\n",
    "a name with a space": LINE + b"X Noise: a\r\n\r\n",
    "two lengths": LINE + JSON + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "a length below nothing": LINE + JSON + b"Content-Length: -5\r\n\r\n{}",
    "a chunk that is none": LINE
    + JSON
    + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
}


def exchange(port: int, raw: bytes) -> bytes:
    """Send, and read until the server has had enough."""
    with socket.create_connection((HOST, port), timeout=PATIENCE) as connection:
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # It need not read on.
        answer = b""
        try:
            while piece := connection.recv(65_536):
                answer += piece
        except OSError:
            pass
        return answer


def status_of(answer: bytes) -> int | None:
    return int(answer.split(b" ", 2)[1]) if answer else None


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'served.db'}"


def test_a_server_outlives_what_is_no_request(database: str, tmp_path: Path) -> None:
    with serving(database, "--no-push", folder=tmp_path) as server:
        for what, raw in NO_REQUESTS.items():
            status = status_of(exchange(server.port, raw))
            assert status is None or 400 <= status < 500, what
        assert server.ask("PUT", "/v1/queues/payments", {}).status == 201
        # As large as headers may be, and answered like any other.
        loud = server.ask("GET", "/v1/queues/payments", cookie="x" * 30_000)
        assert loud.status == 200
        body = json.dumps({"payload": "x" * (5 * 1024 * 1024)}).encode()
        assert server.ask("POST", "/v1/queues/payments/jobs", body).status == 413
        deep = b'{"payload": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"
        told = server.ask("POST", "/v1/queues/payments/jobs", deep)
        assert (told.status, told.json["status"]) == (400, 400)
        assert server.ask("GET", "/v1/jobs").json["items"] == []


def test_without_keys_a_request_must_be_for_this_machine(database: str, tmp_path: Path) -> None:
    """By its Host, and by its target where that names a host and no Host does; not by HTTP/1.0.

    nginx sends HTTP/1.0, and the Host of the server, unless it is told otherwise.
    """
    with serving(database, "--no-push", folder=tmp_path) as server:

        def status(target: str, *hosts: str, version: str = "1.1") -> int | None:
            lines = [f"GET {target} HTTP/{version}", *(f"Host: {host}" for host in hosts)]
            raw = "\r\n".join([*lines, "Connection: close", "", ""]).encode()
            with socket.create_connection((HOST, server.port), timeout=PATIENCE) as connection:
                connection.sendall(raw)
                return status_of(connection.recv(65_536))

        for target in ("/v1/queues", "/"):
            assert status(target, f"{HOST}:{server.port}") == 200
            assert status(target, f"{HOST}:{server.port}", version="1.0") == 403
        assert status("/healthz", f"{HOST}:{server.port}", version="1.0") == 200
        assert status("http://localhost/v1/queues") == 200
        assert status("http://localhost/v1/queues", "localhost") == 200
        assert status("http://evil.example/v1/queues") == 403
        assert status("/v1/queues", "evil.example") == 403
        for host in ("localhost:abc", "localhost/evil", "localhost@evil.example"):
            assert status("/v1/queues", host) == 400, host
        assert status("/v1/queues", "localhost", "evil.example") == 400
