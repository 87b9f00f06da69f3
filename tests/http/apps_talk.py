"""Requests to an ASGI application, message by message, and real servers around applications."""

import asyncio
import socket
import threading
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager
from typing import Any, Literal

import uvicorn

from tests.fixtures.waitress_server import Waitress
from tests.http.apps import App
from tests.http.scenario_site import ALICE, LONG, Headers

Message = MutableMapping[str, Any]

DISCONNECT: Message = {"type": "http.disconnect"}


def part(body: bytes = b"", *, more: bool = False) -> Message:
    """A piece of a request's body."""
    return {"type": "http.request", "body": body, "more_body": more}


class Talk:
    """One request; the test says what the server hears, and when."""

    def __init__(
        self,
        app: App,
        *heard: Message,
        path: str = "/pay",
        method: str = "POST",
        key: str | None = "k",
        headers: Headers = (),
        scope: Message | None = None,
        is_cut_off: bool = False,
    ) -> None:
        sent = [("content-type", "application/json"), ("authorization", ALICE), *headers]
        if key is not None:
            sent.append(("idempotency-key", key))
        self._app = app
        self._is_cut_off = is_cut_off
        self._scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in sent],
            **(scope or {}),
        }
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.is_heard = asyncio.Event()
        """Set once the application has taken a message."""
        self.said: list[Message] = []
        """What it has sent."""
        for message in heard:
            self.hear(message)

    def hear(self, message: Message) -> None:
        self._inbox.put_nowait(message)

    async def run(self) -> list[Message]:
        """To the end of the application."""
        await self._app(self._scope, self._receive, self._send)
        return self.said

    async def _receive(self) -> Message:
        message = await self._inbox.get()
        self.is_heard.set()
        return message

    async def _send(self, message: Message) -> None:
        if self._is_cut_off:
            raise ConnectionResetError
        self.said.append(message)

    @property
    def status(self) -> int:
        (start,) = (said for said in self.said if said["type"] == "http.response.start")
        status: int = start["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        (start,) = (said for said in self.said if said["type"] == "http.response.start")
        return {name.decode().lower(): value.decode() for name, value in start["headers"]}

    @property
    def body(self) -> bytes:
        pieces = [said for said in self.said if said["type"] == "http.response.body"]
        assert [piece.get("more_body", False) for piece in pieces][-1] is False
        return b"".join(piece.get("body", b"") for piece in pieces)


async def visited(app: App, *bodies: bytes, **options: Any) -> list[Talk]:
    """A request with each body, one after the other; two without any, if none is given."""
    talks = [Talk(app, part(body), **options) for body in bodies or (b"", b"")]
    for talk in talks:
        await talk.run()
    return talks


async def lived(app: App) -> list[Message]:
    """What an application says of its start and its end."""
    life: list[Message] = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    return await Talk(app, *life, scope={"type": "lifespan"}).run()


@contextmanager
def served(app: App, *, lifespan: Literal["on", "off"] = "on") -> Generator[str]:
    """A real uvicorn on loopback, in a thread with a loop of its own; gives its URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    configuration = uvicorn.Config(
        app, log_config=None, lifespan=lifespan, timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(configuration)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(LONG)
        listening.close()


@contextmanager
def served_wsgi(app: Any) -> Generator[str]:
    """A real waitress on loopback; gives its URL."""
    server = Waitress(app)
    try:
        yield f"http://{server.host}:{server.port}"
    finally:
        server.stop()
