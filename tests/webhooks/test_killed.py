"""A real server process that is killed after its commit, and what the next one finds."""

import signal
import subprocess
import sys

from onefold.web.webhooks import Received, StandardWebhooks, Webhook
from tests.fixtures.colours import Clock, Store
from tests.fixtures.connections import Effects
from tests.webhooks import senders
from tests.webhooks.senders import WHSEC

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
