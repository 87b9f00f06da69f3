"""Handlers in processes of their own: what crashes or hangs there takes nobody with it."""

import importlib
import math
import os
import subprocess
import sys
from collections.abc import Generator
from types import ModuleType

import pytest

from onefold import Job
from onefold.worker import executor, processes
from tests.fixtures.patience import HANG
from tests.fixtures.place import Place
from tests.worker import apps
from tests.worker.stage import ended, perform, working


@pytest.fixture
def app(place: Place, monkeypatch: pytest.MonkeyPatch) -> Generator[ModuleType]:
    """The module, here and in the children, on this database."""
    monkeypatch.setenv("ONEFOLD_TEST_URL", place.url)
    monkeypatch.setenv("ONEFOLD_TEST_SCHEMA", place.schema)
    module = importlib.reload(apps)
    yield module
    module.onefold.close()


def _run(app: ModuleType, *names: str, **options: int) -> list[Job]:
    async def play() -> list[Job]:
        ids = [(await getattr(app, name).aenqueue()).id for name in names]
        async with working(app.onefold, **options):
            await ended(app.onefold, *ids)
        jobs = [await app.onefold.aget(job_id) for job_id in ids]
        return [job for job in jobs if job is not None]

    return perform(play, app.onefold)


def test_a_handler_runs_in_another_process_and_the_next_one_too(app: ModuleType) -> None:
    first, second = _run(app, "pid", "pid", concurrency=1)
    assert first.result == second.result != os.getpid()


def test_what_crashes_hangs_or_leaves_is_counted_and_nobody_else_is_harmed(app: ModuleType) -> None:
    jobs = _run(app, "crash", "pid", "kill", "pid", "leave", "hang", "fail", "pid", concurrency=3)
    by_kind = {job.kind: job for job in jobs}
    assert [job.state for job in jobs if job.kind == "pid"] == ["completed"] * 3
    errors = {kind: job.error or {} for kind, job in by_kind.items() if kind != "pid"}
    assert {kind: job.state for kind, job in by_kind.items() if kind != "pid"} == dict.fromkeys(
        ("crash", "kill", "leave", "hang", "fail"), "dead"
    )
    assert "signal 11" in errors["crash"]["message"]
    assert "signal 9" in errors["kill"]["message"]
    assert "status 7" in errors["leave"]["message"]
    assert errors["hang"]["type"] == "onefold.errors.JobTimeout"
    assert errors["fail"]["type"] == "SystemExit"


def test_a_process_is_given_the_whole_payload_and_refuses_one_that_does_not_fit(
    app: ModuleType,
) -> None:
    async def play() -> list[Job]:
        ids = [
            (await app.onefold.aenqueue("whole", payload, max_attempts=1)).id
            for payload in ([1, 2], "text")
        ]
        async with working(app.onefold):
            await ended(app.onefold, *ids)
        return [await app.onefold.aget(job_id) for job_id in ids]

    fits, misfits = perform(play, app.onefold)
    assert (fits.state, fits.result) == ("completed", 3)
    assert (misfits.state, misfits.reason) == ("dead", "payload")


def test_the_start_of_a_process_is_not_counted_as_time_of_the_handler(app: ModuleType) -> None:
    (job,) = _run(app, "hurry")
    assert job.state == "completed"


def test_a_job_whose_lease_has_ended_while_its_process_started_goes_back(
    app: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was frozen meanwhile. The job is taken again, and runs in the same process."""
    times = iter([math.inf])
    real = executor.lease_time
    monkeypatch.setattr(processes, "lease_time", lambda: next(times, None) or real())
    (job,) = _run(app, "pid")
    assert (job.state, job.attempt, job.fence) == ("completed", 1, 2)


def test_a_transaction_in_a_child_completes_the_job(app: ModuleType, place: Place) -> None:
    with place.connection() as connection:
        connection.execute(f"create table {place.effects} (job_id text primary key)")

    async def play() -> str:
        enqueued = await app.write.aenqueue(place.effects)
        async with working(app.onefold):
            await ended(app.onefold, enqueued.id)
        return str(enqueued.id)

    job_id = perform(play, app.onefold)
    assert place.rows("select job_id from {effects}", effects=place.effects) == [(job_id,)]


LEAVES_ITS_WORKER = """
import asyncio, threading
from tests.worker.apps import onefold, pid

done = threading.Event()

async def work():
    job = await pid.aenqueue()
    async with onefold.worker():
        await job.aresult()
        done.set()
        await asyncio.Event().wait()

threading.Thread(target=lambda: asyncio.run(work()), daemon=True).start()
assert done.wait(100)
"""


@pytest.mark.usefixtures("app")
def test_a_program_ends_although_its_worker_still_runs_in_a_thread() -> None:
    ended = subprocess.run([sys.executable, "-c", LEAVES_ITS_WORKER], timeout=HANG, check=False)
    assert ended.returncode == 0
