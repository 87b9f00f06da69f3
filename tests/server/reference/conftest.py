"""A browser, and a server of the test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from onefold import Onefold
from tests.fixtures.browser import browser, visitor
from tests.fixtures.colours import pytest_pyfunc_call

__all__ = ["browser", "pytest_pyfunc_call", "visitor"]


@pytest.fixture
def onefold(tmp_path: Path) -> Iterator[Onefold]:
    with Onefold(f"sqlite:///{tmp_path}/onefold.db") as onefold:
        onefold.migrate()
        onefold.queues.save("payments")
        yield onefold
