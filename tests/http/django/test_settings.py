"""The setting ONEFOLD, and the databases that it may name."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.test.utils import override_settings
from psycopg.conninfo import conninfo_to_dict

from onefold import Onefold
from onefold.django.instance import (
    DjangoSettings,
    get_onefold,
    is_in_memory,
    onefold_of,
    read_settings,
    url_of,
)
from tests.fixtures.django_connections import add_database, remove_database

SQLITE = "django.db.backends.sqlite3"
POSTGRES = "django.db.backends.postgresql"


@pytest.fixture
def alias() -> Iterator[str]:
    yield add_database({"ENGINE": SQLITE, "NAME": ":memory:"}, alias="examined")
    remove_database("examined")


def url(**database: Any) -> str:
    remove_database("examined")
    add_database(database, alias="examined")
    return url_of("examined")


def test_settings_are_an_alias_or_a_url_and_options() -> None:
    wait = timedelta(seconds=1)
    assert read_settings().alias == "default"
    with override_settings(ONEFOLD={"DATABASE": "sqlite:///jobs.db"}):
        assert read_settings().alias is None
    get_onefold.cache_clear()
    assert get_onefold() is get_onefold()
    get_onefold.cache_clear()
    with override_settings(ONEFOLD={"SCHEMA": "jobs", "BUSY_TIMEOUT": wait}):
        assert read_settings().options == {"schema": "jobs", "busy_timeout": wait}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ([], "must be a dictionary"),
        ({"DATABSE": "default"}, "ONEFOLD has no 'DATABSE'. It knows DATABASE"),
        ({"DATABASE": "nowhere"}, "must be an alias of DATABASES, or a URL"),
        ({"DATABASE": 1}, "must be an alias of DATABASES, or a URL"),
        ({"AUTODISCOVER": "jobs"}, "must be a list of module names"),
    ],
)
def test_what_is_wrong_is_said(wrong: Any, sentence: str) -> None:
    with override_settings(ONEFOLD=wrong), pytest.raises(ImproperlyConfigured) as caught:
        read_settings()

    assert sentence in str(caught.value)


def test_a_file_is_named_by_its_absolute_path(alias: str, tmp_path: Path) -> None:
    found = url(ENGINE=SQLITE, NAME=tmp_path / "a b%.sqlite3")

    with Onefold(found) as onefold:
        onefold.migrate()
    assert (tmp_path / "a b%.sqlite3").exists()


def test_a_server_is_named_with_everything_that_libpq_knows(alias: str) -> None:
    found = url(
        ENGINE=POSTGRES,
        NAME="orders & more",
        USER="app",
        PASSWORD="p/w?",
        HOST="/var/run",
        PORT=5433,
        OPTIONS={"sslmode": "require", "pool": True, "assume_role": "own er"},
    )

    assert conninfo_to_dict(found) == {
        "dbname": "orders & more",
        "user": "app",
        "password": "p/w?",
        "host": "/var/run",
        "port": "5433",
        "sslmode": "require",
        "options": "-c role=own\\ er",
    }


@pytest.mark.parametrize("name", [":memory:", "file:x?mode=memory&cache=shared"])
def test_a_database_in_memory_is_refused_with_a_way_out(alias: str, name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="For tests, name a file"):
        url(ENGINE=SQLITE, NAME=name)
    assert is_in_memory("examined")
    with pytest.raises(ImproperlyConfigured, match="Name the file by its path"):
        url(ENGINE=SQLITE, NAME="file:x.sqlite3")


def test_another_system_is_refused(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["examined"], "vendor", "oracle")

    with pytest.raises(ImproperlyConfigured, match="is oracle"):
        url_of("examined")


def test_onefold_follows_an_alias_to_another_database(alias: str, tmp_path: Path) -> None:
    """As a test runner moves it, with jobs declared long before."""
    onefold = onefold_of(DjangoSettings(database="examined"))
    for name in ("one", "two", "one"):
        connections.settings["examined"]["NAME"] = tmp_path / name
        onefold.enqueue("email")

    assert len(onefold.find()) == 2
    connections.settings["examined"]["NAME"] = tmp_path / "two"
    assert len(onefold.find()) == 1
    onefold.close()
