"""Real servers on the loopback: what they make of a request is what is verified."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime

import httpx
import pytest

from onefold.web.webhooks import Received, Stripe, Twilio, Webhook
from tests.fixtures.colours import Store
from tests.fixtures.connections import Effects
from tests.http.apps_talk import served, served_wsgi
from tests.webhooks import senders
from tests.webhooks.senders import SECRET

BODY = b'{"id": "evt_1"}'
PUBLIC = "https://example.com"
PATH = "/hooks/a%20b?x=%27y&z=1"


@contextmanager
def visited(hook: Webhook, server: str) -> Generator[httpx.Client]:
    serving = served_wsgi(hook.wsgi) if server == "wsgi" else served(hook.asgi, lifespan="off")
    with serving as url, httpx.Client(base_url=url) as client:
        yield client


@pytest.mark.parametrize("server", ["asgi", "wsgi"])
def test_w033_w037_w038_a_server(store: Store, effects: Effects, server: str) -> None:
    onefold = store.open()
    stripe = Webhook(onefold, Stripe(SECRET), name="stripe", max_body=10_000)
    twilio = Webhook(onefold, Twilio(SECRET, PUBLIC), name="twilio")

    @stripe.process
    def paid(event: Received) -> None:
        event.connection.execute(effects.insert(1))

    @twilio.process
    def texted(event: Received) -> None:
        assert event.id

    def post(body: bytes = BODY, secret: str = SECRET, *, in_pieces: bool = False) -> int:
        asked = senders.stripe(body, datetime.now(UTC), secret=secret)
        sent = iter([body[:5], body[5:]]) if in_pieces else body
        answer = client.post("/hooks", content=sent, headers=dict(asked.headers))
        return int(answer.status_code)

    with visited(stripe, server) as client:
        assert [post(), post(), post(in_pieces=True)] == [200, 200, 200]
        assert post(secret="forged") == 401
        assert [post(b"x" * 10_001), post(b"x" * 10_001, in_pieces=True)] == [413, 413]
        assert client.get("/hooks").status_code == 405
    with visited(twilio, server) as client:
        asked, body = senders.twilio_form({"Sid": "1", "Empty": ""}, url=PUBLIC, path=PATH)
        request = client.build_request("POST", PATH, content=body, headers=dict(asked.headers))
        assert client.send(request).status_code == 200
    store.close()
    assert effects.numbers == [1]
