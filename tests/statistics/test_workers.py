"""Workers that run have a row: it is renewed, and deleted when they stop."""

import asyncio
import os
from datetime import timedelta

import pytest

from onefold import NewJob, Onefold
from onefold.app.doctor import findings
from onefold.model.ids import new_id
from onefold.model.queue import QueueSettings
from onefold.model.statistics import WorkerStatus
from onefold.operations import workers
from onefold.operations.workers import WorkerRow
from onefold.testing.clock import Clock
from onefold.worker.settings import worker_settings
from onefold.worker.statistics import SelfReport
from tests.fixtures.patience import BRIEF
from tests.fixtures.place import Place
from tests.push.stage import pushing
from tests.statistics.stage import locked
from tests.worker.stage import perform, until, working


def test_a_worker_is_listed_while_it_runs(spread: Place) -> None:
    with spread.open() as onefold:

        async def play() -> None:
            async with working(onefold, queues=["b", "a"], concurrency=7, name="one"):
                await until(onefold.workers.find)
                (found,) = await onefold.workers.afind()
                assert (found.name, found.pid, found.queues) == ("one", os.getpid(), ("b", "a"))
                assert (found.concurrency, found.running, found.alive) == (7, 0, True)
                assert found.host
                assert found.started_at <= found.seen_at
            assert await onefold.workers.afind() == ()

        perform(play, onefold)


def test_a_worker_says_its_kinds_and_a_push_worker_takes_only_from_queues_with_an_endpoint(
    spread: Place,
) -> None:
    with spread.open() as onefold:

        @onefold.job
        def mail() -> None: ...

        onefold.queues.save("hooks", QueueSettings(endpoint="http://127.0.0.1:9/"))
        onefold.queues.pause("hooks")
        for queue in ("hooks", "default", "default"):
            onefold.enqueue("mail", queue=queue)
        onefold.enqueue("mail", queue="later", delay=timedelta(hours=1))

        def warned() -> list[str]:
            found = [one for one in findings(onefold.context) if one.check == "workers"]
            return [one.message for one in found if one.level == "warning"]

        async def play() -> None:
            async with pushing(onefold, chores=False):
                (pushes,) = await until_found(onefold)
                assert pushes.kinds is None
                assert await asyncio.to_thread(warned) == [
                    "0 workers, 1 push worker, and none takes from default: 2 due jobs wait."
                ]
            await onefold.queues.apause("default")
            async with working(onefold, name="mailer", chores=False):
                (takes,) = await until_found(onefold)
                assert (takes.queues, takes.kinds) == (("default",), ("mail",))
                assert await asyncio.to_thread(warned) == [
                    "1 worker, and none takes from hooks: 1 due job waits."
                ]

        perform(play, onefold)


async def until_found(onefold: Onefold) -> tuple[WorkerStatus, ...]:
    await until(onefold.workers.find)
    return await onefold.workers.afind()


def test_a_worker_renews_its_row(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.worker.statistics.RENEWAL", timedelta(0))
    monkeypatch.setattr("onefold.worker.statistics.WRITTEN", 0.01)
    with place.open() as onefold:

        def is_renewed() -> bool:
            return any(one.seen_at > one.started_at for one in onefold.workers.find())

        async def play() -> None:
            async with working(onefold):
                await until(is_renewed)

        perform(play, onefold)


def stored(onefold: Onefold, name: str) -> None:
    row = WorkerRow(new_id(), name, "host", 1, ("default",), None, 5)
    onefold.context.store.transact(lambda sql: workers.save(sql, row))


def test_the_jobs_that_a_worker_runs_are_counted(spread: Place) -> None:
    with spread.open() as onefold:
        for name in ("one", "two"):
            stored(onefold, name)
        onefold.enqueue_many([NewJob("work")] * 9)
        for name in ("one", "one", "gone"):
            onefold.deliveries.take(limit=2, worker=name, lease=timedelta(hours=1))

        assert [(one.name, one.running) for one in onefold.workers.find()] == [
            ("one", 4),
            ("two", 0),
        ]


def test_a_worker_that_was_killed_is_not_alive_and_then_not_listed(spread: Place) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:
        stored(onefold, "killed")
        clock.advance(timedelta(seconds=119))
        assert [one.alive for one in onefold.workers.find()] == [True]
        clock.advance(timedelta(seconds=1))
        assert [one.alive for one in onefold.workers.find()] == [False]
        onefold.deliveries.prune()
        assert onefold.workers.find()
        clock.advance(timedelta(hours=1))
        onefold.deliveries.prune()
        assert onefold.workers.find() == ()


def test_a_row_that_cannot_be_written_is_logged(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with place.open(busy_timeout=BRIEF) as onefold:
        onefold.workers.find()

        async def play() -> None:
            report = SelfReport(onefold.context, onefold.jobs, worker_settings({}), dict)
            report.stop()
            with locked(place, "worker"):
                await report.run()

        perform(play, onefold)

    assert "The row of this worker could not be written" in caplog.text
