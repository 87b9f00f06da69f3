"""Real servers on the loopback, and a server process that is killed after its commit."""

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime

import httpx
import pytest

from onefold.web.webhooks import Received, StandardWebhooks, Stripe, Twilio, Webhook
from tests.fixtures.colours import Clock, Store
from tests.fixtures.connections import Effects
from tests.http.apps_talk import served, served_wsgi
from tests.webhooks import senders
from tests.webhooks.senders import SECRET, WHSEC

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


PROGRAM = """
import sys
from datetime import datetime
from onefold import Onefold
from onefold.web.http import HttpRequest
from onefold.web.webhooks import StandardWebhooks, Webhook

url, schema, insert, at, secret, *flat = sys.argv[1:]
onefold = Onefold(url, schema=schema, clock=lambda: datetime.fromisoformat(at))
hook = Webhook(onefold, StandardWebhooks(secret), name="orders")

@hook.process
def handle(event):
    event.connection.execute(insert)

headers = tuple(zip(flat[::2], flat[1::2]))
answer = hook.receive(HttpRequest(method="POST", path="/", headers=headers), b"{}")
assert answer.status == 200
print("now", flush=True)
sys.stdin.read()  # the 2xx is never sent
"""


def test_w041_what_was_committed_before_a_crash_is_not_done_again(
    store: Store, clock: Clock, effects: Effects
) -> None:
    asked = senders.standard(b"{}", clock.now)
    arguments = [store.url, store.schema, effects.insert(1), clock.now.isoformat(), WHSEC]
    flat = [part for header in asked.headers for part in header]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments, *flat],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as victim:
        assert victim.stdout is not None
        said = victim.stdout.readline()
        victim.kill()
    assert (said, victim.returncode) == ("now\n", -signal.SIGKILL)
    assert effects.numbers == [1]

    hook = Webhook(store.open(clock=clock), StandardWebhooks(WHSEC), name="orders")

    @hook.process
    def handle(event: Received) -> None:
        event.connection.execute(effects.insert(2))

    assert hook.receive(asked, b"{}").status == 200
    store.close()
    assert effects.numbers == [1]
