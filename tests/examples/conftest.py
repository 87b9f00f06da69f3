"""A world for the examples: a database of their own, a folder, and somebody else's service."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from examples.partner import Partner
from onefold.testing.plugin import new_database
from tests.examples.stories import STORIES, Story, World
from tests.fixtures.place import Place


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.prove)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A whole database: the tables of an application have no schema of their own."""
    if request.param == "sqlite":
        yield _migrated(Place(request.getfixturevalue("sqlite_url")))
        return
    with new_database(request.getfixturevalue("postgres_url")) as url:
        yield _migrated(Place(url))


def _migrated(place: Place) -> Place:
    with place.open() as onefold:
        onefold.migrate()
    return place


@pytest.fixture
def world(place: Place, tmp_path: Path) -> Iterator[World]:
    with Partner() as partner:
        yield World(place, tmp_path / "invoices", partner)


@pytest.fixture(params=STORIES, ids=str)
def story(request: pytest.FixtureRequest) -> Story:
    found: Story = request.param
    return found


@pytest.fixture
def handlers(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The examples as a process imports them that was told of this world, with their tables."""
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    for name in [name for name in sys.modules if name.startswith("examples.handlers")]:
        monkeypatch.delitem(sys.modules, name)
    import examples.handlers as module

    with world.place.transaction() as connection:
        for part in vars(module).values():
            for table in getattr(part, "TABLES", ()):
                connection.execute(table)
    yield module
    module.onefold.close()
