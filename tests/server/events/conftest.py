"""A server on SQLite: the feed is the process's own, whatever the database."""

import pytest

from tests.fixtures.colours import Dialect, clock, pytest_pyfunc_call, store
from tests.fixtures.served import api

__all__ = ["api", "clock", "dialect", "pytest_pyfunc_call", "store"]


@pytest.fixture
def dialect() -> Dialect:
    """Where what is enqueued here is stored."""
    return "sqlite"
