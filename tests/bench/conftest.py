"""Servers of the benchmark, for all tests of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from bench import postgres
from tests.fixtures.postgres import FOLDER

if TYPE_CHECKING:
    from collections.abc import Generator

    from bench.values import Way


@pytest.fixture(scope="session", params=["tcp", pytest.param("unix", marks=pytest.mark.prove)])
def server_url(request: pytest.FixtureRequest) -> Generator[str]:
    """A server in the folder of the run, whose keeper stops what a killed run leaves behind."""
    way: Way = request.param
    folder = request.config.stash[FOLDER] / f"bench-{way}-{uuid4().hex[:8]}"
    with postgres.server(folder, way) as url:
        yield url
