"""ASGI and WSGI applications on a port of their own, in a thread of the test's process."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from wsgiref.types import WSGIApplication

import uvicorn
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.fixtures.place import PATIENCE


@contextmanager
def running(app: Any, *, lifespan: bool = True) -> Generator[str]:
    """An ASGI application, by its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            app, log_level="error", lifespan="on" if lifespan else "off", access_log=False
        )
        server = Signalling(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        assert server.is_up.wait(PATIENCE.total_seconds())
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE.total_seconds())


class Signalling(uvicorn.Server):
    """Says when it is there."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


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
