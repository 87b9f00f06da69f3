"""A job that kills every worker it is given to is buried; its neighbours are all done."""

from datetime import timedelta

import pytest

from onefold import Fixed, Onefold, Run
from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.kill import audit
from tests.kill.deaths import NEVER
from tests.kill.jobs import KINDS, Scene, declare, die, enqueue
from tests.kill.ledger import Ledger
from tests.kill.workers import LEASE, Shop, Worker, at_length, until

SOON = Fixed(timedelta(milliseconds=100))
ROUNDS = repetitions(1, soak=8)


def work_with_poison(place: Place, ledger: Ledger, name: str) -> None:
    """The life of a worker that has one handler too many."""
    scene = Scene(place, ledger, NEVER)
    with place.open() as onefold:
        declare(onefold, scene)
        declare_poison(onefold, scene)
        onefold.run_worker(lease=LEASE, poll=LEASE / 5, concurrency=4, name=name)


def declare_poison(onefold: Onefold, scene: Scene) -> None:
    @onefold.job
    def poison(run: Run) -> None:
        scene.note("poison", run)
        die()


def dies(shop: Shop, worker: Worker) -> bool:
    """Whether a worker dies before everything is done."""
    is_done = "for a worker to die, or to have done everything"
    until(lambda: not worker.is_alive or not audit.unfinished(shop.place), is_done)
    return not worker.is_alive


@pytest.mark.prove
@at_length
def test_a_job_that_kills_its_worker_five_times_is_buried_and_its_neighbours_are_done(
    shop: Shop,
) -> None:
    for _ in range(ROUNDS):
        with shop.place.open() as onefold:
            ids = enqueue(onefold, 3 * len(KINDS))
            poison = onefold.enqueue("poison", priority=-1, backoff=SOON).id
            ids += enqueue(onefold, 3 * len(KINDS))

        deaths = 0
        while audit.unfinished(shop.place):
            worker = shop.hire(work_with_poison, shop.place, shop.ledger, f"{deaths}")
            deaths += dies(shop, worker)

        with shop.place.open() as onefold:
            buried = onefold.get(poison)
            assert buried is not None
            history = onefold.deliveries.attempts(poison)
            assert onefold.delete(poison)
        assert (buried.state, buried.reason) == ("dead", "poison")
        assert [attempt.outcome for attempt in history] == ["lease expired"] * 5
        assert [line.fence for line in shop.ledger.lines("poison")] == [1, 2, 3, 4, 5]
        assert deaths == 5
        audit.check(shop.place, shop.ledger, ids)
        shop.clear()
