"""Processes that are killed in the middle of a step or a transaction: a real SIGKILL."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onefold import OutcomeUnknown
from onefold.claims import NotDone
from tests.effects.deliveries import Deliveries, Effect
from tests.fixtures.colours import Store
from tests.fixtures.connections import Effects

pytestmark = pytest.mark.parametrize("colour", ["sync"])

PROGRAM = """
import sys
from datetime import UTC, datetime, timedelta
from onefold import Onefold, Run

url, schema, what, table, ledger = sys.argv[1:]
now = datetime(2020, 1, 1, tzinfo=UTC)
onefold = Onefold(url, schema=schema, clock=lambda: now)
lease = timedelta(seconds=60)
(job,) = onefold.deliveries.take(worker="doomed", lease=lease)
run = Run(onefold.context, job, lease=lease, worker="doomed")

def wait_for_death():
    print("holding", flush=True)
    sys.stdin.read()

def charge(value):
    with open(ledger, "a") as file:
        file.write("charged\\n")
    if what != "after":
        wait_for_death()
    return value

def pay(tx, number):
    tx.execute(f"insert into {table} (number) values ({number})")
    if what == "transact":
        wait_for_death()

def main():
    match what:
        case "step":
            run.step("charge", charge, 7)
        case "unsafe":
            run.using(unsafe=True).step("charge", charge, 7)
        case "after":
            run.step("charge", charge, 7)
            wait_for_death()
        case "transact":
            run.transact("pay", pay, 1)
        case "transacted":
            run.transact("pay", pay, 1)
            wait_for_death()

main()
"""


class Killer:
    """Starts a worker, and kills it where it was told to wait for that."""

    def __init__(self, store: Store, table: str, ledger: Path) -> None:
        self._store = store
        self._table = table
        self.ledger = ledger
        self._processes: list[subprocess.Popen[str]] = []

    def __call__(self, what: str) -> None:
        store = self._store
        arguments = [store.url, store.schema, what, self._table, str(self.ledger)]
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        process.kill()
        assert process.wait() == -signal.SIGKILL

    @property
    def charges(self) -> int:
        return len(self.ledger.read_text().splitlines())

    def clean_up(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def kill(store: Store, effects: Effects, tmp_path: Path) -> Iterator[Killer]:
    killer = Killer(store, effects.table, tmp_path / "ledger")
    yield killer
    killer.clean_up()


@pytest.mark.prove
async def test_f051_a_worker_killed_after_the_effect_has_it_done_again(
    deliveries: Deliveries, kill: Killer
) -> None:
    deliveries.enqueue()
    kill("step")
    effect = Effect()

    assert await deliveries.vanish().step("charge", effect, 7) == {"done": 7}
    assert (kill.charges, effect.count) == (1, 1)


@pytest.mark.prove
async def test_f050_a_worker_killed_after_the_record_has_it_not_done_again(
    deliveries: Deliveries, kill: Killer
) -> None:
    deliveries.enqueue()
    kill("after")
    effect = Effect()

    assert await deliveries.vanish().step("charge", effect, 7) == 7
    assert (kill.charges, effect.count) == (1, 0)


def not_done(key: str) -> NotDone:
    return NotDone()


@pytest.mark.prove
async def test_f051_what_is_unsafe_is_unknown_after_a_kill(
    deliveries: Deliveries, kill: Killer
) -> None:
    deliveries.enqueue()
    kill("unsafe")
    effect = Effect()

    run = deliveries.vanish()
    with pytest.raises(OutcomeUnknown):
        await run.using(unsafe=True).step("charge", effect, 7)
    assert (kill.charges, effect.count) == (1, 0)
    run = deliveries.again(run)
    careful = run.using(unsafe=True, verify=not_done)
    assert await careful.step("charge", effect, 7) == {"done": 7}


@pytest.mark.parametrize(("what", "left"), [("transact", []), ("transacted", [1])])
async def test_f052_an_effect_and_its_record_are_one_commit_wherever_it_is_killed(
    deliveries: Deliveries, kill: Killer, effects: Effects, what: str, left: list[int]
) -> None:
    deliveries.enqueue()
    kill(what)
    run = deliveries.vanish()
    steps = deliveries.onefold.deliveries.steps(run.target.id)
    assert (effects.numbers, len(steps)) == (left, len(left))

    def pay(tx: Any, number: int) -> None:
        tx.execute(effects.insert(number))

    await run.transact("pay", pay, 1)

    assert effects.numbers == [1]
