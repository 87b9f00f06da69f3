"""A connection of each driver and colour (`kind`), or with every setting of theirs (`every`)."""

import pytest

from tests.fixtures.colours import clock, onefold, pytest_pyfunc_call, store
from tests.fixtures.connections import EVERY, PLAIN
from tests.natural.payments import payments

__all__ = ["clock", "onefold", "payments", "pytest_pyfunc_call", "store"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The kind says the database and the colour."""
    for name, kinds in (("kind", PLAIN), ("every", EVERY)):
        if name in metafunc.fixturenames:
            values = [(kind, kind.dialect, kind.colour) for kind in kinds]
            names = [kind.name for kind in kinds]
            metafunc.parametrize((name, "dialect", "colour"), values, ids=names)
