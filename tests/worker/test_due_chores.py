"""What a worker looks for before it does a chore: only a chore that may have work is claimed."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from onefold import Limit, Onefold, Retention
from onefold.model.ids import new_id
from onefold.operations import maintenance, workers
from onefold.operations.maintenance import Look
from onefold.testing.clock import Clock
from onefold.worker import chores
from tests.fixtures.place import Place
from tests.worker.stage import until, working

DAY = timedelta(days=1)
BRIEF = Retention(cancelled=timedelta(milliseconds=1))


def look(onefold: Onefold) -> Look:
    read: Look = onefold.context.runtime.run(onefold.context.shards.read("tick", maintenance.look))
    return read


def running(onefold: Onefold, clock: Clock) -> None:
    del clock
    onefold.enqueue("work")
    assert onefold.deliveries.take(worker="w", lease=DAY)


def expired(onefold: Onefold, clock: Clock) -> None:
    onefold.enqueue("work", expires_at=clock.now + timedelta(hours=1))


def suppressed(onefold: Onefold, clock: Clock) -> None:
    del clock
    onefold.enqueue("work", unique_key="k")
    onefold.enqueue("work", unique_key="k")
    onefold.keys.why("k")  # it writes the notes that wait


def ended(onefold: Onefold, clock: Clock) -> None:
    del clock
    onefold.cancel(onefold.enqueue("work", retention=BRIEF).id)


def settled(onefold: Onefold, clock: Clock) -> None:
    del clock
    onefold.claim("once", "k", retention=timedelta(hours=1))
    onefold.keys.force_settle("once", "k")


def limited(onefold: Onefold, clock: Clock) -> None:
    del clock
    onefold.queues.set_limits("default", limit=Limit(rate="10/m"))
    onefold.enqueue("work")
    assert onefold.deliveries.take_limited("default", limit=1, worker="w", lease=DAY).jobs


def counted(onefold: Onefold, clock: Clock) -> None:
    del clock
    onefold.enqueue("work")
    (job,) = onefold.deliveries.take(worker="w", lease=DAY)
    onefold.deliveries.acknowledge(job.id)
    onefold.statistics.read()  # it writes the counts that wait


def killed(onefold: Onefold, clock: Clock) -> None:
    del clock
    row = workers.WorkerRow(new_id(), "w", "host", 1, ("default",), (), 1)
    onefold.context.store.transact(lambda sql: workers.save(sql, row))


@pytest.mark.parametrize(
    ("prepare", "chore"),
    [
        (running, "rescue"),
        (expired, "rescue"),
        (suppressed, "fold"),
        (ended, "prune"),
        (counted, "prune"),
        (killed, "prune"),
        (settled, "sweep"),
        (limited, "sweep"),
    ],
)
def test_a_look_names_a_chore_until_it_is_done(
    spread: Place, prepare: Callable[[Onefold, Clock], None], chore: str
) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:
        assert look(onefold).chores == frozenset()
        prepare(onefold, clock)
        clock.advance(2 * DAY)
        assert chore in look(onefold).chores
        getattr(onefold.deliveries, chore)()
        assert chore not in look(onefold).chores


async def test_a_worker_does_the_chores_that_are_due_and_claims_no_other(
    onefold: Onefold, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "LOOK", timedelta(milliseconds=20))
    monkeypatch.setattr(chores, "MINUTE", timedelta(milliseconds=20))
    monkeypatch.setattr(chores, "SAMPLE", DAY)  # it is claimed whenever its time has come

    def counts() -> list[int]:
        tables = ("duplicate", "duplicate_tally", "job")
        return [place.rows(f"select count(*) from {{{table}}}")[0][0] for table in tables]

    suppressed(onefold, Clock())
    async with working(onefold, queues=["other"]):
        await until(lambda: counts() == [0, 1, 1])
        ended(onefold, Clock())
        await until(lambda: counts() == [0, 1, 1])
    claimed = place.rows("select key from {claim} where surface = 'chore' order by key")
    assert claimed == [("fold",), ("prune",)]
