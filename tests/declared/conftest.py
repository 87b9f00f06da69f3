"""Both databases, both colours; and a worker's part, played by hand."""

import pytest

from tests.declared.stage import Stage
from tests.fixtures.colours import Colour, Store, clock, pytest_pyfunc_call, store

__all__ = ["clock", "pytest_pyfunc_call", "store"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that touches a database runs on both; one that calls it, in both colours."""
    given = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    if "dialect" in metafunc.fixturenames and ("kind", "dialect") not in given:
        metafunc.parametrize("dialect", ["sqlite", "postgres"])
    if "colour" in metafunc.fixturenames:
        metafunc.parametrize("colour", ["sync", "async"])


@pytest.fixture
def stage(store: Store, colour: Colour) -> Stage:
    return Stage(store.open(), colour)
