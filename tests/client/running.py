"""A server on a port of its own, in a thread of the test's process."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from onefold import Job, Onefold
from onefold.server import ServerSettings, create_app
from tests.http.apps_talk import served

LEASE = timedelta(seconds=60)


class Stage(NamedTuple):
    """The database of a server that has the queue `email`, and where the server is."""

    onefold: Onefold
    url: str

    def taken(self, **options: Any) -> Job:
        """A job that somebody has taken."""
        self.onefold.enqueue("mail", {"n": 1}, queue="email", **options)
        return self.taken_again()

    def taken_again(self) -> Job:
        (job,) = self.onefold.deliveries.take(["email"], worker="w", lease=LEASE)
        return job


@pytest.fixture
def stage(sqlite_url: str) -> Iterator[Stage]:
    with Onefold(sqlite_url) as onefold:
        onefold.migrate()
        onefold.queues.save("email")
        app = create_app(onefold, ServerSettings(push=False, anonymous=True, access_log=False))
        with served(app) as url:
            yield Stage(onefold, url)
