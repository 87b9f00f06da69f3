"""A server on SQLite; what meets the database is asked on PostgreSQL, too."""

import pytest

from tests.fixtures.colours import Dialect


@pytest.fixture
def dialect() -> Dialect:
    """Parametrize it to have the other."""
    return "sqlite"
