"""Both databases, both colours; processes that race, and processes that are killed."""

import pytest

from tests.fixtures.colours import clock, onefold, pytest_pyfunc_call, store
from tests.fixtures.place import place, postgres_place
from tests.fixtures.shards import empty, spread
from tests.race.crew import crew

__all__ = [
    "clock",
    "crew",
    "empty",
    "onefold",
    "place",
    "postgres_place",
    "pytest_pyfunc_call",
    "spread",
    "store",
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "dialect" in metafunc.fixturenames:
        metafunc.parametrize("dialect", ["sqlite", "postgres"])
    if "colour" in metafunc.fixturenames:
        metafunc.parametrize("colour", ["sync", "async"])
