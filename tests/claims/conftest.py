"""Both databases, both colours; and, for what joins a transaction, a connection of each library."""

import pytest

from tests.fixtures.colours import clock, onefold, pytest_pyfunc_call, store
from tests.fixtures.connections import PLAIN, effects
from tests.fixtures.shards import empty, spread

__all__ = ["clock", "effects", "empty", "onefold", "pytest_pyfunc_call", "spread", "store"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`kind` is a way to connect: a test that asks for it runs on its database, in its colour."""
    asked = metafunc.fixturenames
    if "kind" in asked:
        names = [name for name in ("kind", "dialect", "colour") if name in asked]
        values = [
            [{"kind": kind, "dialect": kind.dialect, "colour": kind.colour}[name] for name in names]
            for kind in PLAIN
        ]
        metafunc.parametrize(names, values, ids=[kind.name for kind in PLAIN])
        return
    given = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    if "dialect" in asked and "dialect" not in given:
        metafunc.parametrize("dialect", ["sqlite", "postgres"])
    if "colour" in asked and "colour" not in given:
        metafunc.parametrize("colour", ["sync", "async"])
