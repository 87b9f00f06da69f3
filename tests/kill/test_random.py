"""Workers under load are killed, stopped and woken up at random."""

import random
import signal

import pytest

from tests.fixtures.proof import repetitions
from tests.kill import audit
from tests.kill.jobs import enqueue
from tests.kill.workers import Shop, Worker, at_length, until

ROUNDS = repetitions(1, soak=100)
JOBS = 160
BLOWS = 4
"""In each round. A fifth in a row, and a job would rightly be thought of as poison."""


@pytest.mark.prove
@at_length
def test_workers_that_are_killed_and_stopped_at_random_lose_nothing_and_double_nothing(
    shop: Shop,
) -> None:
    dice = random.Random()
    for _ in range(ROUNDS):
        with shop.place.open() as onefold:
            ids = enqueue(onefold, JOBS)
        names = [f"{number}" for number in range(2)]
        workers = {name: shop.start(name=name) for name in names}
        for left in sorted((dice.randrange(JOBS) for _ in range(BLOWS)), reverse=True):
            until(lambda left=left: audit.unfinished(shop.place) <= left, "for some jobs to end")  # type: ignore[misc]
            name = dice.choice(names)
            if dice.random() < 0.7:
                workers[name].kill()
                workers[name] = shop.start(name=name)
            else:
                stop_past_the_lease(shop, name, workers[name])
        shop.drain()

        for worker in workers.values():
            worker.stop()
        audit.check(shop.place, shop.ledger, ids)
        shop.clear()


def stop_past_the_lease(shop: Shop, name: str, worker: Worker) -> None:
    """SIGSTOP until everything that it holds may be somebody else's, and SIGCONT."""
    worker.signal(signal.SIGSTOP)
    until(lambda: not shop.has_lease(name), "for its leases to end")
    worker.signal(signal.SIGCONT)
