"""One line of the log for each job that ends, and not too many of them."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from onefold import Bury, Cancel, Defer, Fixed, Onefold, Run
from onefold.worker.executor import running
from onefold.worker.job_log import MOST, Sample, lasted
from tests.fixtures.patience import BRIEF
from tests.worker.stage import Slow, ended, until, working

JOBS = "onefold.worker.jobs"


def _lines(caplog: pytest.LogCaptureFixture, level: int) -> list[dict[str, Any]]:
    return [
        {**record.__dict__, "line": record.getMessage()}
        for record in caplog.records
        if record.name == JOBS and record.levelno == level
    ]


def _ended(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    levels = (logging.INFO, logging.WARNING, logging.ERROR)
    return [line for level in levels for line in _lines(caplog, level)]


async def test_a_job_that_ends_has_a_line_that_says_how(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, JOBS)

    @onefold.job
    async def good() -> None: ...

    @onefold.job(backoff=Fixed(timedelta(hours=1)))
    def bad() -> None:
        raise ValueError("no such luck")

    @onefold.job
    async def worse() -> None:
        raise Bury("hopeless")

    @onefold.job
    async def later() -> None:
        raise Defer(timedelta(minutes=2))

    @onefold.job
    async def dropped() -> None:
        raise Cancel("no longer\nwanted")

    jobs = (good, bad, worse, later, dropped)
    ids = {job.kind: (await job.aenqueue()).id for job in jobs}
    async with working(onefold):
        await until(lambda: len({line["kind"] for line in _ended(caplog)}) == len(ids))

    by_kind = {line["kind"]: line for line in _ended(caplog)}
    assert len(_ended(caplog)) == len(ids)
    for kind, line in by_kind.items():
        assert line["line"].startswith(f"Job {ids[kind]} ({kind}) was ")
        assert (line["job_id"], line["attempt"]) == (ids[kind], 1)
        assert line["duration"] >= 0
    assert {kind: (line["levelname"], line["state"]) for kind, line in by_kind.items()} == {
        "good": ("INFO", "completed"),
        "bad": ("WARNING", "retrying"),
        "worse": ("ERROR", "dead"),
        "later": ("INFO", "scheduled"),
        "dropped": ("INFO", "cancelled"),
    }
    assert "was completed in attempt 1 after " in by_kind["good"]["line"]
    assert "next try in 3600 s: ValueError: no such luck" in by_kind["bad"]["line"]
    assert by_kind["dropped"]["line"].endswith(": no longer")
    assert (by_kind["bad"]["retry_in"], by_kind["later"]["retry_in"]) == (3600, 120)
    started = [line["line"] for line in _lines(caplog, logging.DEBUG)]
    assert sum(line.endswith("was taken for attempt 1.") for line in started) == len(ids)
    assert sum(line.endswith("has started attempt 1.") for line in started) == len(ids)


async def test_a_job_that_is_handed_back_has_a_line_that_says_why(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, JOBS)
    slow = Slow(onefold)
    ids = [(await slow.job.aenqueue()).id for _ in range(2)]
    async with working(onefold, concurrency=1, prefetch=1, grace=BRIEF):

        async def one_waits_for_the_other() -> bool:
            return slow.begun.is_set() and len(await onefold.afind(state="running")) == len(ids)

        await until(one_waits_for_the_other)

    begun, waiting = sorted(_ended(caplog), key=lambda line: ids.index(line["job_id"]))
    assert begun["line"].startswith(f"Job {ids[0]} (slow) was handed back in attempt 1 after ")
    assert begun["line"].endswith(": the worker stops")
    assert waiting["line"] == f"Job {ids[1]} (slow) was handed back before its handler began."
    assert (begun["state"], waiting["state"]) == ("ready", "ready")


async def test_a_failure_after_the_transaction_that_completes_a_job_names_that_job(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    @onefold.job
    def late(run: Run) -> None:
        with run.transaction():
            pass
        raise ValueError("too late")

    job_id = (await late.aenqueue()).id
    async with working(onefold):
        await ended(onefold, job_id)

    (record,) = [record for record in caplog.records if "failed afterwards" in record.getMessage()]
    assert record.__dict__["job_id"] == job_id


def test_above_a_rate_lines_are_counted_instead(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, JOBS)

    async def play() -> list[bool]:
        sample = Sample()
        admitted = [sample.admits() for _ in range(MOST + 7)]
        sample.flush()
        assert sample.admits(), "another second begins"
        sample.flush()
        return admitted

    assert sum(asyncio.run(play())) == MOST
    (line,) = _lines(caplog, logging.INFO)
    assert line["line"].startswith("7 more jobs ended within a second.")
    assert line["left_out"] == 7


def test_the_rest_is_counted_when_the_second_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, JOBS)
    contexts: list[Any] = []

    def note(_: logging.LogRecord) -> bool:
        contexts.append(running.get())
        return True

    caplog.handler.addFilter(note)

    async def play() -> None:
        handled: Any = "a job that its own transaction has completed"
        running.set(handled)
        sample = Sample(most=1)
        assert [sample.admits(), sample.admits()] == [True, False]
        await until(lambda: _lines(caplog, logging.INFO))

    asyncio.run(play())
    assert "1 more jobs ended" in _lines(caplog, logging.INFO)[0]["line"]
    assert contexts == [None], "the line is about no single job"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0003, "0.3 ms"), (0.0125, "12.5 ms"), (3.44, "3.4 s"), (90, "90 s")],
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert lasted(seconds) == text
