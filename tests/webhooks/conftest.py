"""Both databases, both colours; and an endpoint that counts what it did."""

import pytest

from tests.fixtures.colours import clock, onefold, pytest_pyfunc_call, store
from tests.fixtures.connections import effects
from tests.webhooks.endpoint import endpoint

__all__ = ["clock", "effects", "endpoint", "onefold", "pytest_pyfunc_call", "store"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test on both databases, and in both colours where it asks for one."""
    asked = metafunc.fixturenames
    given = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    if "dialect" in asked and "dialect" not in given:
        metafunc.parametrize("dialect", ["sqlite", "postgres"])
    if "colour" in asked and "colour" not in given:
        metafunc.parametrize("colour", ["sync", "async"])
