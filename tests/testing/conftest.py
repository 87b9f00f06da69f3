"""A shop on each database, whose handlers the kit checks."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onefold import Onefold
from onefold.testing import wipe
from onefold.testing.plugin import new_database
from tests.fixtures.colours import pytest_pyfunc_call
from tests.fixtures.place import Place, place, postgres_place
from tests.fixtures.proof import proved
from tests.testing.stage import Stage, staged
from tests.testing.zoo import TABLES, Shop

__all__ = ["place", "postgres_place", "pytest_pyfunc_call"]


@pytest.fixture(params=["sync", "async"])
def stage(request: pytest.FixtureRequest, place: Place) -> Iterator[Stage]:
    """An Onefold on each database, called in each colour."""
    with staged(place, request.param) as stage:
        yield stage


class Bank(BaseHTTPRequestHandler):
    """Answers with 200."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_PUT = do_POST  # noqa: N815 - the names of http.server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Not into the output of the tests."""


@pytest.fixture(scope="session")
def bank() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Bank) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def shop_database(postgres_url: str) -> Iterator[str]:
    """A database of PostgreSQL for the shops of this process, one after the other."""
    with new_database(postgres_url) as url:
        yield url


@pytest.fixture(params=["sqlite", *proved("postgres")])
def shop(request: pytest.FixtureRequest, tmp_path: Path, bank: str) -> Iterator[Shop]:
    """A shop with its tables and a few rows."""
    if request.param == "sqlite":
        path = str(tmp_path / "shop.db")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in TABLES:
                connection.execute(statement.format(generated="integer primary key"))
        with Onefold(f"sqlite:///{path}") as onefold:
            onefold.migrate()
            yield Shop(onefold, lambda: sqlite3.connect(path), "?", bank)
        return
    url: str = request.getfixturevalue("shop_database")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop schema public cascade; create schema public")
        for statement in TABLES:
            made = "integer generated always as identity primary key"
            connection.execute(statement.format(generated=made).encode())
    with Onefold(url) as onefold:
        onefold.migrate()
        wipe(onefold)
        yield Shop(onefold, lambda: psycopg.connect(url), "%s", bank)
