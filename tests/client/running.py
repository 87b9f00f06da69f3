"""Applications on a port of their own, in a thread of the test's process; one is the server."""

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple
from wsgiref.types import WSGIApplication

import pytest
from werkzeug.serving import WSGIRequestHandler, make_server

from onefold import Job, Onefold
from onefold.server import ServerSettings, create_app
from tests.fixtures.place import PATIENCE
from tests.http.apps_talk import served

LEASE = timedelta(seconds=60)


@contextmanager
def running(app: Any, *, lifespan: bool = True) -> Generator[str]:
    """An ASGI application, by its URL."""
    with served(app, lifespan="on" if lifespan else "off") as (host, port):
        yield f"http://{host}:{port}"


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
        with running(app) as url:
            yield Stage(onefold, url)


@contextmanager
def running_wsgi(app: WSGIApplication) -> Generator[str]:
    """A WSGI application, by its URL."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(PATIENCE.total_seconds())
        server.server_close()


class Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass
