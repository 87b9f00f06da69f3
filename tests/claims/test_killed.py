"""Processes that are killed while they hold something: a real SIGKILL, and what others then see."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from onefold import Busy, OutcomeUnknown
from onefold.claims import Replay, Unknown
from tests.fixtures.colours import Store

LEASE = timedelta(milliseconds=700)
PATIENCE = timedelta(minutes=2)

PROGRAM = """
import sys
from datetime import timedelta
from onefold import Onefold

url, schema, what, effect = sys.argv[1:]
onefold = Onefold(url, schema=schema)
lease = timedelta(milliseconds=700)

def wait_for_death():
    print("holding", flush=True)
    sys.stdin.read()

def once(takeover):
    with onefold.once("charge", "order:7", lease=lease, takeover=takeover):
        with open(effect, "a") as ledger:
            ledger.write("charged\\n")
        wait_for_death()

match what:
    case "lock":
        with onefold.lock("nightly", ttl=lease):
            wait_for_death()
    case "rerun" | "resume" | "refuse":
        once(what)
"""


class Victim:
    """A process that holds something and waits to be killed."""

    def __init__(self, store: Store, what: str, effect: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, store.url, store.schema, what, effect],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def kill_when_it_holds(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "holding\n"
        self._process.kill()
        assert self._process.wait() == -signal.SIGKILL

    def clean_up(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def kill(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Killer"]:
    killer = Killer(store, str(tmp_path_factory.mktemp("effects") / "ledger"))
    yield killer
    for victim in killer.victims:
        victim.clean_up()


class Killer:
    """Starts processes and kills them while they hold what they were told to take."""

    def __init__(self, store: Store, effect: str) -> None:
        self._store = store
        self.effect = effect
        self.victims: list[Victim] = []

    def __call__(self, what: str) -> None:
        victim = Victim(self._store, what, self.effect)
        self.victims.append(victim)
        victim.kill_when_it_holds()


async def test_f009_a_lock_of_a_killed_process_is_acquired_by_who_waits_for_it(
    store: Store, kill: Killer
) -> None:
    onefold = store.open()
    kill("lock")

    with onefold.lock("nightly", wait=PATIENCE) as lock:
        assert not lock.lost


@pytest.mark.prove
async def test_f009_the_lease_of_a_killed_process_is_respected_and_no_longer(
    store: Store, kill: Killer
) -> None:
    started = datetime.now(UTC)
    kill("lock")
    # The victim's lease began after `started`, and before now.
    before, after = started + LEASE / 2, datetime.now(UTC) + LEASE

    with pytest.raises(Busy), store.open(clock=lambda: before).lock("nightly"):
        pass
    with store.open(clock=lambda: after).lock("nightly") as lock:
        assert not lock.lost


@pytest.mark.prove
@pytest.mark.parametrize("takeover", ["rerun", "resume"])
async def test_f035_what_a_killed_process_did_is_done_again_where_it_said_so(
    store: Store, kill: Killer, takeover: str
) -> None:
    onefold = store.open()
    kill(takeover)

    async with onefold.once("charge", "order:7", wait=PATIENCE) as claim:
        assert claim is not None
        assert claim.won
        assert claim.claim is not None
        assert claim.claim.resumed == (takeover == "resume")


@pytest.mark.prove
async def test_f035_what_a_killed_process_did_is_unknown_where_it_must_not_be_done_again(
    store: Store, kill: Killer
) -> None:
    onefold = store.open()
    kill("refuse")

    with pytest.raises(OutcomeUnknown), onefold.once("charge", "order:7", wait=PATIENCE):
        pytest.fail("charged twice")

    with open(kill.effect) as ledger:  # noqa: PTH123, ASYNC230 - what a shell would do
        assert ledger.read() == "charged\n"
    assert isinstance(await onefold.aclaim("charge", "order:7"), Unknown)
    assert onefold.keys.force_settle("charge", "order:7", "charged")
    assert isinstance(onefold.claim("charge", "order:7"), Replay)
