"""The application that the server processes run. Its handlers say how far they have come.

They say it in a ledger, whose lines nothing takes back, and wait at a gate where their scene has
one: a test that wants to kill a process in the middle of a handler knows when it is there.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onefold import Onefold
from onefold.web.starlette import Idempotency, Once
from tests.fixtures.place import PATIENCE, Place
from tests.kill.jobs import die
from tests.kill.ledger import Ledger

LEASE = timedelta(seconds=1)
LOOK_AGAIN = 0.01
WHO = "alice"

Message = MutableMapping[str, Any]


class Scene(NamedTuple):
    """What a server process is told; every part of it can be sent there."""

    place: Place
    ledger: Ledger
    gate: Path | None = None
    """Handlers wait until this file exists."""
    at: str = "began"
    """Where they wait: when they have `began`, or once they have `effected`."""
    lease: timedelta = LEASE
    patience: timedelta = PATIENCE
    """How long the database is waited for."""
    dies: bool = False
    """The process dies when an answer is about to leave it."""


class Handlers:
    """One of each sort."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def joined(self, request: Request, once: Once) -> Response:
        """The row is in the transaction of the answer."""
        await self._come_to("began", once)
        await once.connection.execute(self._insert(once))
        await self._come_to("effected", once)
        return _receipt(once)

    async def leased(self, request: Request, once: Once) -> Response:
        """The effect is a line, which nothing can take back."""
        await self._come_to("began", once)
        await self._come_to("effected", once)
        return _receipt(once)

    async def stepwise(self, request: Request, once: Once) -> Response:
        """Two steps, and a place to die between them."""
        key = once.request_key or "-"
        charged = await once.astep("charge", self._charge, key)
        await self._come_to("began", once)
        mailed = await once.astep("mail", self._mail, key)
        return _receipt(once, charged=charged, mailed=mailed, resumed=once.resumed)

    async def watchful(self, request: Request, once: Once) -> Response:
        """Stops when it is told that the key may be somebody else's."""
        self._note("began", once)
        while self._scene.gate and not once.lost:  # noqa: ASYNC110 - it has nothing to wait for
            await asyncio.sleep(LOOK_AGAIN)
        self._note("lost", once)
        return _receipt(once)

    async def blocking(self, request: Request, once: Once) -> Response:
        """Keeps its event loop from everything else."""
        self._note("began", once)
        while self._scene.gate and not self._scene.gate.exists():
            threading.Event().wait(LOOK_AGAIN)
        return _receipt(once)

    async def _come_to(self, moment: str, once: Once) -> None:
        self._note(moment, once)
        gate = self._scene.gate
        if gate is not None and moment == self._scene.at:
            while not gate.exists():  # noqa: ASYNC110 - another process opens it
                await asyncio.sleep(LOOK_AGAIN)

    def _note(self, word: str, once: Once) -> None:
        self._scene.ledger.note(word, once.request_key or "-", once.fence or 0)

    def _insert(self, once: Once) -> str:
        effects = self._scene.place.effects
        return f"insert into {effects} values ('{once.request_key}', {once.fence})"

    def _charge(self, key: str) -> str:
        self._scene.ledger.note("charged", key)
        return uuid4().hex

    def _mail(self, key: str) -> str:
        self._scene.ledger.note("mailed", key)
        return uuid4().hex


def _receipt(once: Once, **more: object) -> Response:
    """No two attempts answer the same."""
    return JSONResponse({"receipt": uuid4().hex, "fence": once.fence, **more})


def build(scene: Scene, onefold: Onefold) -> Starlette:
    """The application, over a database that is there already."""
    handlers, idempotency = Handlers(scene), Idempotency(onefold, lease=scene.lease)

    def route(path: str, endpoint: Callable[..., Awaitable[Response]], **options: Any) -> Route:
        keyed = idempotency(principal=lambda _: WHO, **options)(endpoint)
        return Route(path, keyed, methods=["POST"])

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        yield
        await onefold.aclose()

    routes = [
        route("/joined", handlers.joined, transaction=onefold),
        *[route(f"/{how}", handlers.leased, takeover=how) for how in ("rerun", "refuse")],
        route("/resume", handlers.stepwise, takeover="resume"),
        route("/watchful", handlers.watchful, takeover="rerun"),
        route("/blocking", handlers.blocking, takeover="rerun"),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    idempotency.install(app)
    return app


def doomed(app: Any) -> Any:
    """The application in a process that dies when its first answer is about to be sent."""

    async def wrapped(scope: Message, receive: Any, send: Any) -> None:
        async def dying(message: Message) -> None:
            if message["type"] == "http.response.start":
                die()
            await send(message)

        await app(scope, receive, dying)

    return wrapped


def serve(scene: Scene, told: Connection) -> None:
    """The life of a server process: `told` is where to, once it can be called."""
    app = build(scene, scene.place.open(busy_timeout=scene.patience))
    run(doomed(app) if scene.dies else app, told)


def run(app: Any, told: Connection) -> None:
    """Serve until a signal comes."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        told.send(listener.getsockname()[1])
        config = uvicorn.Config(app, log_config=None, ws="none", lifespan="on")
        uvicorn.Server(config).run(sockets=[listener])
