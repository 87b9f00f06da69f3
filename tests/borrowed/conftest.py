"""Callers' connections: a test that asks for `kind` runs with every library, colour and setting."""

import pytest

from tests.fixtures.colours import Coloured, Store, pytest_pyfunc_call, store
from tests.fixtures.connections import EVERY, Kind, effects

__all__ = ["effects", "pytest_pyfunc_call", "store"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The kind says the database and the colour."""
    asked = metafunc.fixturenames
    if "kind" in asked:
        kinds = [
            k for mark in metafunc.definition.iter_markers("kinds") for k in mark.args
        ] or EVERY
        metafunc.parametrize(
            ("kind", "dialect"),
            [(kind, kind.dialect) for kind in kinds],
            ids=[kind.name for kind in kinds],
        )


@pytest.fixture
def onefold(store: Store, kind: Kind) -> Coloured:
    """An Onefold of the kind's colour."""
    return Coloured(store.open(), kind.colour)
