"""Real workers on real databases, in this process; those that are killed have one of their own.

A test that is a coroutine function runs in an event loop of its own, and has an Onefold there.
"""

import inspect
from collections.abc import Iterator

import pytest

from onefold import Onefold
from tests.fixtures.place import Place, place, postgres_place
from tests.fixtures.shards import empty, spread
from tests.worker.stage import perform

__all__ = ["empty", "place", "postgres_place", "spread"]


@pytest.fixture
def onefold(place: Place) -> Iterator[Onefold]:
    """On each database in turn."""
    with place.open() as opened:
        yield opened


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function, and close in its loop what was opened there."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    onefold = pyfuncitem.funcargs["onefold"]
    assert isinstance(onefold, Onefold)
    perform(lambda: test(**arguments), onefold)
    return True
