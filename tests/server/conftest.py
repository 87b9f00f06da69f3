"""A server of the test's own, on each database in turn."""

from tests.fixtures.colours import clock, pytest_pyfunc_call, store
from tests.fixtures.served import api, dialect

__all__ = ["api", "clock", "dialect", "pytest_pyfunc_call", "store"]
