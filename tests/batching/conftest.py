"""Both databases, threads and tasks."""

import asyncio
import inspect
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.batching.crowd import Crowd
from tests.faults.proxy import Proxy
from tests.fixtures.colours import Colour, Coloured
from tests.fixtures.place import PATIENCE, Place, place, postgres_place

__all__ = ["colour", "crowd", "place", "postgres_crowd", "postgres_place"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function, and close its crowd in the same loop."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}

    async def in_a_loop() -> None:
        try:
            await test(**arguments)
        finally:
            for argument in arguments.values():
                if isinstance(argument, Crowd):
                    await argument.onefold.target.aclose()

    asyncio.run(in_a_loop())
    return True


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    """Threads, or tasks of one event loop."""
    found: Colour = request.param
    return found


@pytest.fixture
def crowd(place: Place, colour: Colour) -> Iterator[Crowd]:
    """A crowd in front of each database in turn."""
    yield from _crowd(place, colour)


@pytest.fixture
def postgres_crowd(postgres_place: Place, colour: Colour) -> Iterator[Crowd]:
    """PostgreSQL alone, for what only PostgreSQL has."""
    yield from _crowd(postgres_place, colour)


@pytest.fixture
def hasty_crowd(place: Place, colour: Colour) -> Iterator[Crowd]:
    """A crowd that does not wait long for others."""
    yield from _crowd(place, colour, busy_timeout=timedelta(milliseconds=400))


def _crowd(place: Place, colour: Colour, *, busy_timeout: timedelta = PATIENCE) -> Iterator[Crowd]:
    proxy = Proxy(place.url) if place.on_postgres else None
    by_wire = place if proxy is None else place._replace(url=proxy.url)
    with by_wire.open(busy_timeout=busy_timeout) as onefold:
        onefold.find()
        yield Crowd(place, Coloured(onefold, colour), proxy)
    if proxy is not None:
        proxy.close()
