"""Real servers on the loopback: what they make of a request is what is verified."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import uvicorn

from onefold.web.webhooks import Received, Stripe, Twilio, Webhook
from tests.fixtures.colours import Store
from tests.fixtures.connections import Effects
from tests.fixtures.waitress_server import Waitress
from tests.webhooks import senders
from tests.webhooks.senders import SECRET

BODY = b'{"id": "evt_1"}'
PUBLIC = "https://example.com"
PATH = "/hooks/a%20b?x=%27y&z=1"


@pytest.fixture
def hooks(store: Store, effects: Effects) -> Iterator[tuple[Webhook, Webhook]]:
    """Two endpoints whose handler waits for nobody, in either colour."""
    onefold = store.open()
    made = (
        Webhook(onefold, Stripe(SECRET), name="stripe", max_body=10_000),
        Webhook(onefold, Twilio(SECRET, PUBLIC), name="twilio"),
    )
    yield made
    store.close()


class Uvicorn:
    """An ASGI server in a thread of its own."""

    def __init__(self, app: Any) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(app, log_level="warning", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def drive(client: httpx.Client, effects: Effects) -> None:
    """What a sender sees of each server."""

    def post(body: bytes = BODY, secret: str = SECRET, *, in_pieces: bool = False) -> int:
        asked = senders.stripe(body, datetime.now(UTC), secret=secret)
        sent = iter([body[:5], body[5:]]) if in_pieces else body
        return client.post("/hooks", content=sent, headers=dict(asked.headers)).status_code

    assert [post(), post(), post(in_pieces=True)] == [200, 200, 200]
    assert post(secret="forged") == 401
    assert [post(b"x" * 10_001), post(b"x" * 10_001, in_pieces=True)] == [413, 413]
    assert client.get("/hooks").status_code == 405
    assert effects.numbers == [1]


def drive_twilio(client: httpx.Client) -> None:
    asked, body = senders.twilio_form({"Sid": "1", "Empty": ""}, url=PUBLIC, path=PATH)
    request = client.build_request("POST", PATH, content=body, headers=dict(asked.headers))

    assert client.send(request).status_code == 200


def test_w033_w037_w038_an_asgi_server(hooks: tuple[Webhook, Webhook], effects: Effects) -> None:
    stripe, twilio = hooks

    @stripe.process
    async def paid(event: Received) -> None:
        await event.connection.execute(effects.insert(1))

    @twilio.process
    async def texted(event: Received) -> None:
        assert event.id

    for hook in hooks:
        server = Uvicorn(hook.asgi)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
                if hook is stripe:
                    drive(client, effects)
                else:
                    drive_twilio(client)
        finally:
            server.stop()


def test_w033_w037_w038_a_wsgi_server(hooks: tuple[Webhook, Webhook], effects: Effects) -> None:
    stripe, twilio = hooks

    @stripe.process
    def paid(event: Received) -> None:
        event.connection.execute(effects.insert(1))

    @twilio.process
    def texted(event: Received) -> None:
        assert event.id

    for hook in hooks:
        server = Waitress(hook.wsgi)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
                if hook is stripe:
                    drive(client, effects)
                else:
                    drive_twilio(client)
        finally:
            server.stop()
