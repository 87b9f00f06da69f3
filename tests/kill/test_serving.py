"""PostgreSQL is killed and started again while a server answers and pushes: it goes on."""

import http.client
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.fixtures.postgres import PostgresServer
from tests.fixtures.proof import repetitions
from tests.fixtures.serving import Serving, serving
from tests.kill.workers import at_length, until
from tests.server.processes.test_killed_pushes import Endpoint, endpoint

__all__ = ["endpoint"]

ROUNDS = repetitions(1, soak=12)
BLOWS = repetitions(2, soak=3)
CLIENTS = 4
MORE = 20
"""Jobs before each blow, and after the last one."""


@pytest.mark.prove
@at_length
def test_a_server_outlives_its_database(
    own_postgres: PostgresServer, endpoint: Endpoint, tmp_path: Path
) -> None:
    for _ in range(ROUNDS):
        flags = ("--push-allow", "127.0.0.1", "--no-access-log", "--grace", "20s")
        with serving(own_postgres.url, *flags, folder=tmp_path) as server:
            made = server.ask("PUT", "/v1/queues/pushed", {"endpoint": endpoint.url})
            assert made.status in {200, 201}, made.body
            with _publishing(server) as published:
                for _ in range(BLOWS):
                    _wait_for_more(published, endpoint)
                    own_postgres.crash()
                    own_postgres.start()
                _wait_for_more(published, endpoint)
            server.terminate()
            assert server.wait() == 0, server.said()


@contextmanager
def _publishing(server: Serving) -> Generator[list[str]]:
    """Clients that publish jobs without a pause, whatever the server answers; the ids."""
    published: list[str] = []
    end = threading.Event()

    def publish() -> None:
        while not end.is_set():
            with suppress(OSError, http.client.HTTPException):
                told = server.ask("POST", "/v1/queues/pushed/jobs", {"payload": {}})
                if told.status == 201:
                    published.append(told.json["id"])

    clients = [threading.Thread(target=publish) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield published
    finally:
        end.set()
        for client in clients:
            client.join()


def _wait_for_more(published: list[str], endpoint: Endpoint) -> None:
    wanted, pushes = len(published) + MORE, len(endpoint.pushes) + MORE
    until(lambda: len(published) >= wanted, "for jobs to be published")
    until(lambda: len(endpoint.pushes) >= pushes, "for jobs to be pushed")
