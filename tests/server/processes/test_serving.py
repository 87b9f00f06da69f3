"""`onefold serve`, as a new user meets it."""

import http.client
import shlex
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fixtures.certificates import Authority
from tests.fixtures.place import Place, make_too_new
from tests.fixtures.serving import HOST, Serving, free_port, told
from tests.kill.workers import PATIENCE, until
from tests.server.processes.conftest import Serve

CHARGE = (
    b'{"payload": {"orderId": "9482", "amountCents": 4999}, "idempotencyKey": "order:9482:charge"}'
)
JOBS = "/v1/queues/payments/jobs"


def test_the_publish_of_the_readme_is_answered_201_and_then_200_with_the_same_id(
    empty: Place, serve: Serve
) -> None:
    """The tables are made at the start."""
    server = serve(empty)

    made = server.ask("PUT", "/v1/queues/payments", b"{}")
    first = server.ask("POST", JOBS, CHARGE, authorization="Bearer anything")
    again = server.ask("POST", JOBS, CHARGE)
    nowhere = server.ask("POST", "/v1/queues/nope/jobs", CHARGE)

    assert (made.status, first.status, again.status) == (201, 201, 200)
    assert again.json["id"] == first.json["id"]
    assert set(first.json) >= {"id", "status", "createdAt"}
    assert (nowhere.status, nowhere.json["code"]) == (404, "queue_not_found")
    assert "No API keys" in server.said()


@pytest.mark.prove
def test_a_server_that_may_not_migrate_says_who_must(
    postgres_url: str, postgres_schema: str, tmp_path: Path
) -> None:
    flags = ("--schema", postgres_schema, "--no-migrate")
    server = Serving(postgres_url, *flags, folder=tmp_path)
    server.launch()

    assert server.wait() == 1
    assert "Run `onefold migrate --database " in server.said()
    assert f"--schema {postgres_schema}`" in server.said()


@pytest.mark.prove
def test_a_server_does_not_start_on_tables_of_a_later_version(
    sqlite_place: Place, tmp_path: Path
) -> None:
    make_too_new(sqlite_place.url)
    server = Serving(sqlite_place.url, folder=tmp_path)
    server.launch()

    assert server.wait() == 1
    assert "Upgrade Onefold here" in server.said()


def test_the_password_of_the_database_is_not_printed(postgres_place: Place, serve: Serve) -> None:
    """Not at the start, nor by a process of it that fails."""
    separator = "&" if "?" in postgres_place.url else "?"
    secret = postgres_place._replace(url=f"{postgres_place.url}{separator}password=hush")
    server = serve(secret, "--no-push", "--log-level", "debug")

    assert server.ask("GET", "/v1/queues").status == 200
    assert "Onefold serves postgresql://" in server.said()
    assert "hush" not in server.said()


@pytest.mark.prove
def test_the_command_that_makes_a_key_can_be_copied(place: Place, serve: Serve) -> None:
    server = serve(place, "--no-push")
    (line,) = [one for one in server.said().splitlines() if "onefold apikeys create" in one]
    program, *words = shlex.split(line)

    run = subprocess.run(
        [Path(sys.executable).with_name(program), *words],
        capture_output=True,
        text=True,
        check=True,
    )

    with place.open() as onefold:
        (key,) = onefold.api_keys.find()
    assert (set(key.scopes), key.id in run.stdout) == ({"admin"}, True)


@pytest.mark.prove
@pytest.mark.parametrize("processes", ["1", "2"])
def test_no_process_outlives_the_first(sqlite_place: Place, serve: Serve, processes: str) -> None:
    server = serve(sqlite_place, "--processes", processes, "--grace", "1s")

    server.kill_main()

    until(lambda: not server.is_open(), "for all of its processes to end")


@pytest.mark.prove
def test_a_port_that_is_taken_is_refused_before_anything_is_done(
    sqlite_place: Place, serve: Serve, tmp_path: Path
) -> None:
    first = serve(sqlite_place, "--no-push")
    untouched = tmp_path / "untouched.db"
    second = Serving(f"sqlite:///{untouched}", "--port", str(first.port), folder=tmp_path)
    second.launch()

    assert second.wait() == 2
    assert f"cannot listen on 127.0.0.1, port {first.port}: Address already" in second.said()
    assert "--port" in second.said()
    assert not untouched.exists()
    assert first.ask("GET", "/readyz").status == 200


@pytest.mark.prove
def test_of_two_servers_that_start_at_once_one_has_the_port(
    sqlite_place: Place, tmp_path: Path
) -> None:
    """Their processes listen seconds later, when each has looked at the database."""
    flags = ("--no-push", "--port", str(free_port()))
    servers = [Serving(sqlite_place.url, *flags, folder=tmp_path) for _ in range(2)]
    with ExitStack() as stack:
        for server in servers:
            server.launch()
            stack.callback(server.kill)

        until(lambda: any("cannot listen" in server.said() for server in servers), "a refusal")
        until(lambda: any("Onefold serves" in server.said() for server in servers), "a server")


@pytest.mark.prove
def test_the_port_of_a_server_that_has_ended_can_be_had_at_once(
    sqlite_place: Place, serve: Serve
) -> None:
    """With connections that the system still remembers."""
    server = serve(sqlite_place, "--no-push")
    assert server.ask("GET", "/healthz").status == 200
    server.terminate()
    assert server.wait() == 0

    server.start()


def test_an_address_that_is_none_is_refused(sqlite_place: Place, tmp_path: Path) -> None:
    server = Serving(sqlite_place.url, "--host", "localhost", folder=tmp_path)
    server.launch()

    assert server.wait() == 2
    assert "host must be an IP address like 127.0.0.1" in server.said()


def test_a_public_address_is_refused_while_there_is_no_key(
    place: Place, serve: Serve, tmp_path: Path
) -> None:
    flags = ("--schema", place.schema, "--host", "0.0.0.0")
    server = Serving(place.url, *flags, folder=tmp_path)
    server.launch()

    assert server.wait() == 2
    assert "There is no API key" in server.said()
    assert "onefold apikeys create" in server.said()

    with place.open() as onefold:
        key = onefold.api_keys.create(tenant="acme", scopes=["admin"])
    open_server = serve(place, "--host", "0.0.0.0")
    assert open_server.ask("GET", "/v1/queues").status == 401
    allowed = open_server.ask("GET", "/v1/queues", authorization=f"Bearer {key.text}")
    assert allowed.status == 200


@pytest.mark.prove
def test_flags_beat_the_environment_and_both_beat_the_file(
    sqlite_place: Place, serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "onefold.toml").write_text(
        "[serve]\nmax-body = 10\nport = 1\nlog-format = 'json'\n"
    )
    server = serve(
        sqlite_place, "--max-body", "40", ONEFOLD_SERVE_MAX_BODY="20", ONEFOLD_SERVE_PORT="2"
    )

    assert server.ask("PUT", "/v1/queues/payments", b"{}".ljust(40)).status == 201
    refused = server.ask("PUT", "/v1/queues/payments", b"{}".ljust(41))

    assert (refused.status, refused.json["code"]) == (413, "too_large")
    assert '"level": "info"' in server.said().lower() or '"level":"info"' in server.said().lower()


def test_it_serves_https_with_a_certificate(
    sqlite_place: Place, tmp_path: Path, serve: Serve, request: pytest.FixtureRequest
) -> None:
    authority = Authority(tmp_path)
    authority.server("localhost")
    (file,) = set(tmp_path.glob("*.pem")) - {authority.file}
    flags = ("--tls-certificate", str(file), "--tls-key", str(file), "--no-push")
    server = Serving(sqlite_place.url, "--schema", sqlite_place.schema, *flags, folder=tmp_path)
    request.addfinalizer(server.kill)
    server.launch()
    context = ssl.create_default_context(cafile=str(authority.file))

    def answers() -> bool:
        connection = http.client.HTTPSConnection("localhost", server.port, context=context)
        try:
            connection.request("GET", "/healthz")
            return told(connection.getresponse()).status == 200
        except OSError:
            return False
        finally:
            connection.close()

    until(answers, "no answer over TLS: " + server.said())


def test_a_client_that_sends_too_slowly_is_not_waited_for(
    sqlite_place: Place, serve: Serve
) -> None:
    server = serve(sqlite_place, "--body-timeout", "1s", "--header-timeout", "1s", "--no-push")
    server.ask("PUT", "/v1/queues/payments", b"{}")
    head = f"POST {JOBS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

    with socket.create_connection((HOST, server.port), timeout=PATIENCE) as slow_body:
        slow_body.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        answer = slow_body.recv(65536)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"timed_out" in answer

    with socket.create_connection((HOST, server.port), timeout=PATIENCE) as slow_headers:
        slow_headers.sendall(head.encode())
        # Closed, with or without a word.
        while slow_headers.recv(65536):
            pass

    assert sqlite_place.rows("select count(*) from {job}") == [(0,)]


def test_a_stop_lets_requests_in_flight_come_to_their_end(place: Place, serve: Serve) -> None:
    server = serve(place, "--body-timeout", "60s")
    server.ask("PUT", "/v1/queues/payments", b"{}")
    connection = http.client.HTTPConnection(HOST, server.port, timeout=PATIENCE)
    connection.putrequest("POST", JOBS)
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(len(CHARGE)))
    connection.endheaders(CHARGE[:-1])
    # It has come to the server, which waits for its last byte.
    assert server.ask("GET", "/healthz").status == 200

    server.terminate()
    until(lambda: not server.is_open(), "the server still takes connections")
    connection.send(CHARGE[-1:])
    answer = told(connection.getresponse())

    assert answer.status == 201
    assert server.wait() == 0
    assert place.rows("select count(*) from {job}") == [(1,)]


@pytest.mark.prove
def test_a_stop_writes_down_what_was_still_to_be_noted(place: Place, serve: Serve) -> None:
    server = serve(place)
    server.ask("PUT", "/v1/queues/payments", b"{}")
    answers = [
        server.ask("POST", "/v1/queues/payments/pause", idempotency_key="k") for _ in range(2)
    ]

    server.terminate()

    assert server.wait() == 0
    assert answers[0].body == answers[1].body
    with place.open() as onefold:
        (holder,) = onefold.keys.why("k").holders
    assert holder.suppressed.count == 1
