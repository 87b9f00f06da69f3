"""Both databases, both colours; and places that another process can open, for the command."""

import pytest

from tests.cli.conftest import onefold_command
from tests.fixtures.colours import clock, onefold, pytest_pyfunc_call, store
from tests.fixtures.place import place, postgres_place
from tests.fixtures.shards import empty, spread

__all__ = [
    "clock", "empty", "onefold", "onefold_command", "place", "postgres_place",
    "pytest_pyfunc_call", "spread", "store",
]  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each database, and each colour: what differs by the two of them is tested elsewhere."""
    if "colour" in metafunc.fixturenames:
        metafunc.parametrize(("dialect", "colour"), [("sqlite", "sync"), ("postgres", "async")])
