"""Leases and their ends, stops, and what wakes a worker: on both databases."""

import asyncio
import threading
import time
from datetime import datetime, timedelta

import pytest

from onefold import Delivery, Fixed, Onefold
from onefold.events import Event, JobEnded, LeasesExpired, WriteFenced
from tests.fixtures.patience import HANG, LOCK
from tests.fixtures.place import Place
from tests.worker.stage import BEAT, HELD, Slow, ended, get_job, perform, spin, until, working


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chores come soon, whatever the lease is."""
    monkeypatch.setattr("onefold.worker.chores.LOOK", BEAT)


class TestLeases:
    async def test_a_job_keeps_its_lease_while_it_runs_and_while_it_waits_for_its_turn(
        self, onefold: Onefold
    ) -> None:
        slow = Slow(onefold)

        ids = [(await slow.job.aenqueue()).id for _ in range(2)]

        async def leases() -> list[datetime]:
            jobs = [await get_job(onefold, job_id) for job_id in ids]
            return [job.lease_until for job in jobs if job.lease_until is not None]

        async with working(onefold, concurrency=1, prefetch=1, chores=False, **HELD):
            await until(slow.begun.is_set)

            async def both_are_held() -> bool:
                return len(await leases()) == 2

            await until(both_are_held)
            first = await leases()

            async def both_are_extended() -> bool:
                now = await leases()
                return all(one > other + 3 * BEAT for one, other in zip(now, first, strict=True))

            await until(both_are_extended)
            assert (await onefold.deliveries.arescue()).total == 0
            slow.may_end.set()
            await ended(onefold, *ids)
        assert [(await get_job(onefold, job_id)).fence for job_id in ids] == [1, 1]

    async def test_a_coroutine_that_blocks_the_loop_costs_nobody_a_lease(
        self, onefold: Onefold
    ) -> None:
        begun, may_end = threading.Event(), threading.Event()

        @onefold.job
        async def rude() -> None:
            begun.set()
            may_end.wait(HANG)

        def observe(job_id: str) -> None:
            """From another thread, while the loop stands still."""
            begun.wait(HANG)
            job = onefold.get(job_id)
            assert job is not None
            first = job.lease_until
            deadline = time.monotonic() + HANG
            while time.monotonic() < deadline:
                job = onefold.get(job_id)
                assert job is not None
                if job.lease_until and first and job.lease_until > first + 3 * BEAT:
                    break
            may_end.set()

        enqueued = await rude.aenqueue()
        observer = threading.Thread(target=observe, args=(enqueued.id,))
        observer.start()
        async with working(onefold, chores=False, **HELD):
            await ended(onefold, enqueued.id)
        observer.join()
        assert (await get_job(onefold, enqueued.id)).fence == 1

    async def test_a_cancelled_job_stops_its_handler(self, onefold: Onefold) -> None:
        """That of a thread, too: see test_threads."""
        begun, stopped = asyncio.Event(), asyncio.Event()

        @onefold.job
        async def task() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        enqueued = await task.aenqueue()
        async with working(onefold, **HELD):
            await until(begun.is_set)
            await onefold.acancel(enqueued.id, reason="not wanted")
            await until(stopped.is_set)
        assert (await get_job(onefold, enqueued.id)).reason == "not wanted"

    async def test_a_finish_after_the_job_was_taken_again_is_refused_and_told(
        self, onefold: Onefold
    ) -> None:
        events: list[Event] = []
        slow = Slow(onefold)
        onefold.subscribe(events.append)

        enqueued = await slow.job.aenqueue()
        async with working(
            onefold, lease=timedelta(hours=1), chores=False, concurrency=1, prefetch=0
        ):
            await until(slow.begun.is_set)
            # An operator's hand: the delivery is ended from outside, and taken by another.
            job = await get_job(onefold, enqueued.id)
            await onefold.deliveries.ahand_back([Delivery(job.id, job.fence)])
            [taken] = await onefold.deliveries.atake(worker="other", lease=LOCK)
            slow.may_end.set()
            await until(lambda: any(isinstance(e, WriteFenced) for e in events))
            await until(
                lambda: any(isinstance(e, JobEnded) and e.outcome == "lost" for e in events)
            )
            assert (await onefold.deliveries.afinish([taken]))[0].status == "accepted"

    async def test_jobs_of_a_vanished_worker_are_rescued_by_any_other(
        self, onefold: Onefold, often: None
    ) -> None:
        events: list[Event] = []
        onefold.subscribe(events.append)

        @onefold.job
        async def work() -> None: ...

        enqueued = await work.using(backoff=None).aenqueue()
        [_] = await onefold.deliveries.atake(worker="gone", lease=timedelta(milliseconds=1))
        async with working(onefold):
            await ended(onefold, enqueued.id)
        assert (await get_job(onefold, enqueued.id)).attempt == 2
        assert any(isinstance(event, LeasesExpired) for event in events)

    async def test_a_job_that_waits_for_its_ack_in_vain_is_not_a_vanished_workers(
        self, onefold: Onefold, often: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        events: list[Event] = []
        onefold.subscribe(events.append)

        @onefold.job
        async def work() -> None: ...

        enqueued = await work.using(backoff=Fixed(timedelta(0))).aenqueue()
        [job] = await onefold.deliveries.atake(worker="courier", lease=timedelta(hours=1))
        await onefold.deliveries.apark(job, ack_timeout=timedelta(milliseconds=1))
        async with working(onefold):
            await ended(onefold, enqueued.id)
        assert (await get_job(onefold, enqueued.id)).attempt == 2
        assert not any(isinstance(event, LeasesExpired) for event in events)
        assert "Pushed jobs were not acknowledged in time: 1 are retried" in caplog.text


class TestStops:
    async def test_what_has_not_begun_is_handed_back_at_once(self, onefold: Onefold) -> None:
        slow = Slow(onefold)

        ids = [(await slow.job.aenqueue()).id for _ in range(4)]
        async with working(onefold, concurrency=1, prefetch=3) as worker:
            await until(slow.begun.is_set)

            async def all_held() -> bool:
                return all([(await get_job(onefold, i)).state == "running" for i in ids])

            await until(all_held)
            worker.stop()

            async def back() -> bool:
                jobs = [await get_job(onefold, i) for i in ids[1:]]
                return all((j.state, j.attempt) == ("ready", 0) for j in jobs)

            await until(back)
            assert (await get_job(onefold, ids[0])).state == "running"
            slow.may_end.set()
        states = [(await get_job(onefold, i)).state for i in ids]
        assert states == ["completed", "ready", "ready", "ready"]

    async def test_a_handler_that_outlasts_the_grace_is_interrupted_and_handed_back(
        self, onefold: Onefold
    ) -> None:
        stopped: list[str] = []
        begun = [threading.Event(), threading.Event()]

        @onefold.job
        async def task() -> None:
            begun[0].set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append("task")

        @onefold.job
        def thread() -> None:
            begun[1].set()
            spin()

        ids = [(await task.aenqueue()).id, (await thread.aenqueue()).id]
        async with working(onefold, grace=timedelta(milliseconds=500)):
            await until(lambda: all(event.is_set() for event in begun))
        for job_id in ids:
            job = await get_job(onefold, job_id)
            assert (job.state, job.attempt, job.fence) == ("ready", 0, 1)
        assert stopped == ["task"]

    async def test_a_worker_runs_once(self, onefold: Onefold) -> None:
        async with working(onefold) as worker:
            pass
        with pytest.raises(Exception, match="has run already"):
            await worker.run()


class TestWaking:
    async def test_a_job_is_run_when_it_is_due_though_nobody_rings(self, onefold: Onefold) -> None:
        ran: list[datetime] = []

        @onefold.job
        async def later() -> None:
            ran.append(datetime.now().astimezone())

        async with working(onefold, poll=timedelta(hours=1)):
            enqueued = await later.using(delay=timedelta(milliseconds=300)).aenqueue()
            await ended(onefold, enqueued.id)
            assert ran[0] >= (await get_job(onefold, enqueued.id)).run_at

    def test_a_job_that_another_process_stores_is_heard_of(self, place: Place) -> None:
        with place.open() as onefold, place.open() as other:

            @onefold.job
            async def work() -> None: ...

            async def play() -> None:
                async with working(onefold, poll=timedelta(hours=1)):
                    for _ in range(3):
                        enqueued = await asyncio.to_thread(other.enqueue, "work")
                        await ended(onefold, enqueued.id)

            perform(play, onefold)

    async def test_a_paused_queue_waits_and_goes_on(self, onefold: Onefold) -> None:
        @onefold.job
        async def work() -> None: ...

        @onefold.job(queue="other")
        async def other() -> None: ...

        await onefold.queues.apause("default")
        async with working(onefold, queues=["default", "other"]):
            first, second = await work.aenqueue(), await other.aenqueue()
            await ended(onefold, second.id)
            assert (await get_job(onefold, first.id)).state == "ready"
            await onefold.queues.aresume("default")
            await ended(onefold, first.id)
