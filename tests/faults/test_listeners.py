"""A worker that does not listen: it listens again soon, and until then it looks often."""

from datetime import timedelta
from functools import partial

import pytest

from onefold import Onefold
from onefold.databases.postgres import notify
from onefold.worker import queue_monitor
from tests.faults.proxy import Proxy
from tests.faults.servers import reached, state_of
from tests.fixtures.patience import BRIEF

NEVER = timedelta(minutes=10)
LOOK = b"with recursive clock"


async def test_a_worker_listens_again_as_soon_as_a_look_was_answered(
    proxy: Proxy,
    migrated: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(notify, "LONGEST_PAUSE", NEVER.total_seconds())
    async with (
        Onefold(proxy.url, schema=migrated, busy_timeout=BRIEF) as onefold,
        onefold.worker(poll=timedelta(milliseconds=100), chores=False) as worker,
    ):
        await reached(lambda: worker.is_notified)
        proxy.refuse()
        await reached(lambda: "Could not look for jobs" in caplog.text)
        assert not worker.is_notified
        proxy.pick_up()
        await reached(lambda: worker.is_notified)


async def test_an_exchange_shows_that_the_database_answers(proxy: Proxy, migrated: str) -> None:
    async with Onefold(proxy.url, schema=migrated) as onefold:

        @onefold.job
        def work() -> None: ...

        async with onefold.worker(poll=NEVER, chores=False) as worker:
            await reached(lambda: worker.is_notified)
            monitor = worker._monitor
            assert monitor is not None
            monitor.stop()  # no looks, which are answered, too
            monitor.answered.clear()
            await work.aenqueue()
            await reached(monitor.answered.is_set)


async def test_a_worker_that_does_not_listen_looks_often_after_it_has_found_jobs(
    proxy: Proxy, migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_monitor, "POLL", NEVER.total_seconds())

    def looks() -> int:
        return sum(LOOK in data for data in proxy.sent)

    def is_completed(job_id: str) -> bool:
        return state_of(onefold, job_id) == "completed"

    def has_looked(before: int) -> bool:
        # The first look follows each take.
        return looks() > before + 2

    async with Onefold(
        proxy.url, schema=migrated, notify=False, prepared_statements=False
    ) as onefold:

        @onefold.job
        def work() -> None: ...

        async with onefold.worker(poll=NEVER, chores=False):
            for _ in range(2):
                job = await work.aenqueue()
                await reached(partial(is_completed, job.id))
                await reached(partial(has_looked, looks()))
