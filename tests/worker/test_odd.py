"""Handlers and payloads that do what nobody expects: they end by themselves, and alone."""

import threading
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from onefold import Job, Onefold, Retry
from onefold.worker.threads import Threads
from tests.fixtures.place import Place
from tests.worker.stage import ended, perform, working


class OutOfTheOrdinary(BaseException):
    """As some libraries raise for timeouts of theirs."""


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise LookupError("odd")


def _ends(onefold: Onefold, *ids: str) -> list[Job]:
    """What becomes of jobs in a worker that has a place for one at a time."""

    async def play() -> list[Job]:
        async with working(onefold, concurrency=1):
            await ended(onefold, *ids)
            return [job for i in ids if (job := await onefold.aget(i)) is not None]

    return perform(play, onefold)


def _error_type(job: Job) -> Any:
    assert isinstance(job.error, dict)
    return job.error["type"]


class TestHandlers:
    def test_what_is_no_exception_fails_a_coroutine_and_gives_its_place_back(
        self, place: Place
    ) -> None:
        with place.open() as onefold:

            @onefold.job(max_attempts=1)
            async def strange() -> None:
                raise OutOfTheOrdinary

            @onefold.job
            async def plain() -> None: ...

            jobs = _ends(onefold, strange.enqueue().id, plain.enqueue().id)
            assert [job.state for job in jobs] == ["dead", "completed"]
            assert _error_type(jobs[0]).endswith("OutOfTheOrdinary")

    def test_an_outcome_that_means_nothing_fails_the_attempt(self, place: Place) -> None:
        with place.open() as onefold:

            @onefold.job(max_attempts=1)
            async def confused() -> None:
                outcome = Retry()
                outcome.after = 7  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
                raise outcome

            (job,) = _ends(onefold, confused.enqueue().id)
            assert job.state == "dead"
            assert _error_type(job).endswith("InvalidInput")

    def test_a_coroutine_that_nobody_awaits_is_not_taken_for_work_that_was_done(
        self, place: Place
    ) -> None:
        with place.open() as onefold:

            async def work() -> None: ...

            def wrapped(function: Callable[[], Any]) -> Callable[[], Any]:
                def call() -> Any:
                    return function()

                return call

            job = onefold.job(kind="work", max_attempts=1)(wrapped(work))
            (found,) = _ends(onefold, job.enqueue().id)
            assert found.state == "dead"
            assert _error_type(found).endswith("UsageError")


class TestPayloads:
    def test_code_of_a_payload_that_fails_ends_that_job_and_no_other(self, place: Place) -> None:
        with place.open() as onefold:

            @onefold.job(max_attempts=1)
            async def halve(even: Even) -> None: ...

            odd = onefold.enqueue("halve", {"even": {"number": 3}}, max_attempts=1)
            jobs = _ends(onefold, odd.id, halve.enqueue(Even(2)).id)
            assert [job.state for job in jobs] == ["dead", "completed"]
            assert _error_type(jobs[0]) == "builtins.LookupError"


class TestThreads:
    def test_what_was_given_up_before_it_began_is_not_begun(self) -> None:
        threads, ran = Threads("test", 1), list[str]()
        busy, may_end, over = threading.Event(), threading.Event(), threading.Event()

        def first() -> None:
            busy.set()
            may_end.wait(30)

        threads.submit(first, copy_context())
        assert busy.wait(30)
        given_up = threads.submit(lambda: ran.append("given up"), copy_context())
        given_up.interrupt()
        threads.submit(over.set, copy_context())
        may_end.set()
        assert over.wait(30)
        assert ran == []
        threads.close()
