"""A browser, and a server of the test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from onefold import Onefold
from tests.fixtures.browser import browser, visitor

__all__ = ["browser", "visitor"]


@pytest.fixture
def onefold(tmp_path: Path) -> Iterator[Onefold]:
    with Onefold(f"sqlite:///{tmp_path}/onefold.db") as onefold:
        onefold.migrate()
        onefold.queues.save("payments")
        yield onefold
