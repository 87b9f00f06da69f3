"""A real server process that is killed in the middle of a delivery, and what the next one finds."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

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

url, schema, when, insert, at, secret, *flat = sys.argv[1:]
onefold = Onefold(url, schema=schema, clock=lambda: datetime.fromisoformat(at))
hook = Webhook(onefold, StandardWebhooks(secret), name="orders")

def wait_for_death():
    print("now", flush=True)
    sys.stdin.read()

@hook.process
def handle(event):
    event.connection.execute(insert)
    if when == "before the commit":
        wait_for_death()

headers = tuple(zip(flat[::2], flat[1::2]))
answer = hook.receive(HttpRequest(method="POST", path="/", headers=headers), b"{}")
assert answer.status == 200
wait_for_death()  # the 2xx is never sent
"""


@pytest.fixture
def killed(store: Store, clock: Clock, effects: Effects) -> Iterator["Victim"]:
    victim = Victim(store, clock, effects)
    yield victim
    victim.clean_up()


class Victim:
    """A process that receives one event, and is killed."""

    def __init__(self, store: Store, clock: Clock, effects: Effects) -> None:
        self.asked = senders.standard(b"{}", clock.now)
        self._arguments = [
            store.url, store.schema, effects.insert(1), clock.now.isoformat(), WHSEC,
            *(part for header in self.asked.headers for part in header),
        ]  # fmt: skip
        self._process: subprocess.Popen[str] | None = None

    def when(self, when: str) -> None:
        url, schema, *rest = self._arguments
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, schema, when, *rest],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "now\n"
        self._process.kill()
        assert self._process.wait() == -signal.SIGKILL

    def clean_up(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def redelivered(store: Store, clock: Clock, effects: Effects, victim: Victim) -> int:
    hook = Webhook(store.open(clock=clock), StandardWebhooks(WHSEC), name="orders")

    @hook.process
    def handle(event: Received) -> None:
        event.connection.execute(effects.insert(2))

    while (answer := hook.receive(victim.asked, b"{}")).status == 409:
        """The database has not noticed yet that its client is gone."""
    store.close()
    return answer.status


def test_w041_what_was_committed_before_a_crash_is_not_done_again(
    store: Store, clock: Clock, effects: Effects, killed: Victim
) -> None:
    killed.when("after the commit")
    assert effects.numbers == [1]

    assert redelivered(store, clock, effects, killed) == 200
    assert effects.numbers == [1]


@pytest.mark.prove
def test_w040_what_was_not_committed_before_a_crash_is_done(
    store: Store, clock: Clock, effects: Effects, killed: Victim
) -> None:
    killed.when("before the commit")
    assert effects.numbers == []

    assert redelivered(store, clock, effects, killed) == 200
    assert effects.numbers == [2]
