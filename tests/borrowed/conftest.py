"""Callers' connections: a test that asks for `kind` runs with every library, colour and setting."""

import pytest

from tests.fixtures.colours import Coloured, Store, pytest_pyfunc_call, store
from tests.fixtures.connections import EVERY, Kind, effects

__all__ = ["effects", "pytest_pyfunc_call", "store"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The kind says the database and the colour."""
    given = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "kind" in metafunc.fixturenames and ("kind", "dialect") not in given:
        kinds = [(kind, kind.dialect) for kind in EVERY]
        metafunc.parametrize(("kind", "dialect"), kinds, ids=[kind.name for kind in EVERY])


@pytest.fixture
def onefold(store: Store, kind: Kind) -> Coloured:
    """An Onefold of the kind's colour."""
    return Coloured(store.open(), kind.colour)
