"""Handlers that would not stop, and stops that nobody announced."""

import asyncio
import subprocess
import sys
from datetime import timedelta

import pytest

from onefold import Job, Onefold
from tests.fixtures.place import Place
from tests.worker.stage import PATIENCE, get_job, until, working

PROGRAM = """
import asyncio, os, signal, threading
from datetime import timedelta
from onefold import Onefold

onefold = Onefold({url!r}, schema={schema!r})

def stop_soon() -> None:
    os.kill(os.getpid(), signal.SIGTERM)

@onefold.job
async def blocks() -> None:
    stop_soon()
    threading.Event().wait()

@onefold.job
async def ignores() -> None:
    stop_soon()
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

@onefold.job
async def waits_for_a_thread() -> None:
    stop_soon()
    await asyncio.to_thread(threading.Event().wait)

@onefold.job
async def names_its_loop() -> None:
    print(type(asyncio.get_running_loop()).__module__.partition(".")[0])
    stop_soon()

{kind}.enqueue()
onefold.run_worker(grace=timedelta(milliseconds=300))
"""

HIDE_UVLOOP = "import sys; sys.modules['uvloop'] = None"


def _run(place: Place, kind: str, *, before: str = "") -> subprocess.CompletedProcess[str]:
    """A worker of its own, and one job of this kind."""
    program = before + PROGRAM.format(url=place.url, schema=place.schema, kind=kind)
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


@pytest.mark.parametrize("kind", ["blocks", "ignores", "waits_for_a_thread"])
def test_a_process_ends_after_its_grace_whatever_its_handlers_do(place: Place, kind: str) -> None:
    done = _run(place, kind)
    assert (done.returncode, "ending now" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(("hide", "loop"), [("", "uvloop"), (HIDE_UVLOOP, "asyncio")])
def test_a_worker_runs_on_uvloop_where_it_is_installed(place: Place, hide: str, loop: str) -> None:
    done = _run(place, "names_its_loop", before=hide)
    assert (done.returncode, done.stdout.split()) == (0, [loop]), done.stderr


async def test_a_cancelled_worker_hands_back_what_it_runs(onefold: Onefold) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @onefold.job
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    enqueued = await endless.aenqueue()
    running = asyncio.create_task(onefold.worker().run())
    await until(begun.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stopped.is_set()
    job = await get_job(onefold, enqueued.id)
    assert (job.state, job.attempt) == ("ready", 0)


async def test_an_on_dead_that_does_not_end_is_given_up_with_the_grace(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    called = asyncio.Event()

    async def mourn(job: Job) -> None:
        del job
        called.set()
        await asyncio.Event().wait()

    @onefold.job(max_attempts=1, on_dead=mourn)
    async def fails() -> None:
        raise ValueError

    await fails.aenqueue()
    async with working(onefold, grace=timedelta(milliseconds=300)):
        await until(called.is_set)
    assert "on_dead have not ended" in caplog.text
