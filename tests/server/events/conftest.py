"""A server on SQLite: the feed is the process's own, whatever the database."""

import pytest

from tests.fixtures.colours import Dialect


@pytest.fixture
def dialect() -> Dialect:
    """Where what is enqueued here is stored."""
    return "sqlite"
