"""Real server processes on real databases."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fixtures.place import Place, place, postgres_place
from tests.fixtures.serving import Serving, serving
from tests.fixtures.shards import empty

__all__ = ["empty", "place", "postgres_place", "serve", "sqlite_place"]

Serve = Callable[..., Serving]


@pytest.fixture
def sqlite_place(sqlite_url: str) -> Place:
    """For what has nothing to do with the database. The server makes the tables."""
    return Place(sqlite_url)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts servers that are gone when the test has ended."""
    with ExitStack() as stack:

        def start(place: Place, *flags: str, **environment: str) -> Serving:
            schema = ("--schema", place.schema)
            server = serving(place.url, *schema, *flags, folder=tmp_path, **environment)
            return stack.enter_context(server)

        yield start
