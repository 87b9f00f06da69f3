"""A database of the test, and a project of Django's on it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from django.db import connection, connections
from django.test.utils import override_settings
from psycopg import sql

from onefold import Onefold
from onefold.django import get_onefold
from tests.fixtures.colours import Dialect, Store
from tests.fixtures.django_connections import add_database, database_settings, remove_database
from tests.http.django.project import Project

BACKEND = "onefold.django.tasks.OnefoldBackend"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "dialect" in metafunc.fixturenames:
        metafunc.parametrize("dialect", ["sqlite", "postgres"])


@pytest.fixture
def store(dialect: Dialect, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    """A database of its own: Django has its tables outside of any schema of ours."""
    if dialect == "sqlite":
        yield Store("sqlite", f"sqlite:///{tmp_path / 'django.sqlite3'}")
        return
    url: str = request.getfixturevalue("postgres_url")
    name = f"django_{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield Store("postgres", urlsplit(url)._replace(path=f"/{name}").geturl())
        for made in (name, f"test_{name}"):
            connection.execute(
                sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(made))
            )


@pytest.fixture
def make_project(store: Store, tmp_path: Path) -> Callable[..., Project]:
    """Makes a project on the database of the test."""

    def make(**settings: Any) -> Project:
        database = database_settings(store)
        database.pop("OPTIONS")
        return Project(tmp_path / "project", database, **settings)

    return make


@pytest.fixture
def project_onefold(store: Store) -> Iterator[Onefold]:
    """Onefold in this very process, as a project has it on the alias `default`."""
    before = connections.settings["default"]
    add_database(database_settings(store), alias="default")
    get_onefold.cache_clear()
    with override_settings(ONEFOLD={}, TASKS={"default": {"BACKEND": BACKEND, "QUEUES": []}}):
        onefold = get_onefold()
        onefold.migrate()
        yield onefold
        onefold.close()
    get_onefold.cache_clear()
    remove_database("default")
    connections.settings["default"] = before


@pytest.fixture
def rows(project_onefold: Onefold) -> Iterator[Callable[[], int]]:
    """A table of the project's; answers with how many rows are committed."""
    with connection.cursor() as cursor:
        cursor.execute("create table payment (id integer)")

    def count() -> int:
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from payment")
            found: int = cursor.fetchone()[0]
            return found

    yield count
    connection.close()
