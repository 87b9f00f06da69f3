"""Which queues a worker serves: what is declared, or what it is given."""

import asyncio
import logging
from typing import Any

import pytest

from onefold import InvalidInput, Limit, Onefold
from onefold.worker import deliveries, producer
from onefold.worker.settings import read_queues
from tests.worker.stage import ended, working


def _declared(onefold: Onefold) -> None:
    @onefold.job(queue="email")
    async def send() -> None: ...

    @onefold.job
    async def plain() -> None: ...

    @onefold.cron("0 3 * * *")
    @onefold.job(queue="nightly")
    async def report() -> None: ...

    onefold.cron("0 4 * * *", name="by call")(send.using(queue="calls").call())
    onefold.queues.declare("bulk", limit=Limit(concurrency=1))


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "onefold.worker" and record.levelno == logging.WARNING
    ]


async def test_by_default_it_serves_the_queues_of_declared_jobs_and_default(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    worker = onefold.worker()
    _declared(onefold)  # after it was made: what counts is what is declared at its start
    ids = [
        (await onefold.aenqueue(kind, queue=queue)).id
        for kind, queue in (("send", "email"), ("plain", "default"), ("report", "nightly"))
    ]
    async with worker:
        await ended(onefold, *ids)
        served = list(worker.settings.queues)
    assert sorted(served) == ["calls", "default", "email", "nightly"]
    (warning,) = _warnings(caplog)
    assert "does not serve these declared queues: bulk." in warning


async def test_it_warns_about_what_it_does_not_serve_and_what_no_job_is_declared_for(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    _declared(onefold)

    async with working(onefold, queues=["email", "emial"]):
        pass
    unserved, unused = _warnings(caplog)
    assert "does not serve these declared queues: bulk, default, nightly, calls." in unserved
    assert "No job is declared for these queues of this worker: emial." in unused


async def test_a_look_at_the_moment_of_a_response_takes_no_more_than_the_queue_may_have(
    onefold: Onefold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The places of a take are released when it has ended: its own jobs have them then."""
    running: list[int] = []

    @onefold.job
    async def count() -> None:
        running.append((running[-1] if running else 0) + 1)
        await asyncio.sleep(0.02)
        running.append(running[-1] - 1)

    ids = [(await count.aenqueue()).id for _ in range(6)]
    real = deliveries.finish_and_take
    async with working(onefold, queues={"default": 1}, concurrency=4) as worker:

        async def then_look(*args: Any, **options: Any) -> Any:
            result = await real(*args, **options)
            worker.look()
            return result

        monkeypatch.setattr(producer, "finish_and_take", then_look)
        await ended(onefold, *ids)
    assert max(running) == 1


def test_commas_and_spaces_separate_queues() -> None:
    for text in ("a,b:5", "a b:5", " a ,  b:5 ", "a\nb:5"):
        assert read_queues(text) == {"a": None, "b": 5}
    for text in ("", " ", "a,a", ",a", "a a:5"):
        with pytest.raises(InvalidInput, match="queues must"):
            read_queues(text)
