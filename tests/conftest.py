"""What every test may ask for. Fixtures that need room live in `fixtures/`, by concern."""

from pathlib import Path

import pytest
from hypothesis import settings

from tests.fixtures.soak import SOAK

pytest_plugins = ["tests.fixtures.migrated", "tests.fixtures.not_run", "tests.fixtures.postgres"]

# No deadline per example: two busy cores make honest examples slow, and pytest-timeout is there.
settings.register_profile("test", max_examples=25, stateful_step_count=30, deadline=None)
settings.register_profile("soak", max_examples=1000, stateful_step_count=60, deadline=None)
settings.load_profile("soak" if SOAK else "test")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'onefold.db'}"
