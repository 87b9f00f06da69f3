"""API keys on each database in turn."""

from tests.fixtures.colours import clock, pytest_pyfunc_call, store
from tests.fixtures.place import place, postgres_place
from tests.fixtures.served import dialect

__all__ = ["clock", "dialect", "place", "postgres_place", "pytest_pyfunc_call", "store"]
