"""Both databases, both colours; and, for transactions, a connection of every library."""

import pytest

from tests.effects.deliveries import deliveries
from tests.fixtures.colours import clock, onefold, pytest_pyfunc_call, store
from tests.fixtures.connections import EVERY, effects
from tests.fixtures.shards import empty, spread

__all__ = [
    "clock", "deliveries", "effects", "empty", "onefold", "pytest_pyfunc_call", "spread", "store",
]  # fmt: skip

# A session inside somebody else's transaction commits nothing, by intention.
KINDS = [kind for kind in EVERY if not kind.name.endswith("-joined")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a database or a colour runs on both."""
    asked = metafunc.fixturenames
    if "kind" in asked:
        values = [(kind, kind.dialect, kind.colour) for kind in KINDS]
        names = [kind.name for kind in KINDS]
        metafunc.parametrize(("kind", "dialect", "colour"), values, ids=names)
        return
    given = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    if "dialect" in asked and "dialect" not in given:
        metafunc.parametrize("dialect", ["sqlite", "postgres"])
    if "colour" in asked and "colour" not in given:
        metafunc.parametrize("colour", ["sync", "async"])
