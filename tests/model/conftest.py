"""The two databases that every machine runs on."""

from collections.abc import Iterator
from typing import cast

import pytest

from tests.model.store import PostgresStore, SqliteStore, Store


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A migrated, empty database under a clock that the test moves."""
    opened: SqliteStore | PostgresStore
    if request.param == "sqlite":
        opened = SqliteStore(cast("str", request.getfixturevalue("sqlite_url")))
    else:
        opened = PostgresStore(
            cast("str", request.getfixturevalue("postgres_url")),
            cast("str", request.getfixturevalue("postgres_schema")),
        )
    yield opened
    opened.close()
