"""A server on SQLite; what meets the database is asked on PostgreSQL, too."""

import pytest

from tests.fixtures.colours import Dialect, clock, pytest_pyfunc_call, store
from tests.fixtures.served import api

__all__ = ["api", "clock", "pytest_pyfunc_call", "store"]


@pytest.fixture
def dialect() -> Dialect:
    """Parametrize it to have the other."""
    return "sqlite"
