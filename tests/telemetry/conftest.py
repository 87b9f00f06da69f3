"""Both databases, both colours; and a job that a worker has taken."""

from datetime import timedelta

import pytest

from onefold import Job, Onefold
from tests.fixtures.colours import clock, onefold, pytest_pyfunc_call, store
from tests.webhooks.conftest import pytest_generate_tests

__all__ = ["clock", "onefold", "pytest_generate_tests", "pytest_pyfunc_call", "store"]


def take_one(onefold: Onefold) -> Job:
    """The next job, as a worker takes it."""
    (job,) = onefold.deliveries.take(worker="worker-1", lease=timedelta(minutes=1))
    return job


@pytest.fixture
def job(sqlite_url: str) -> Job:
    """A job that is being run."""
    with Onefold(sqlite_url) as onefold:
        onefold.enqueue("email", {"to": 42})
        return take_one(onefold)
