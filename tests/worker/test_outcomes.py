"""How deliveries end: what handlers return and raise, in tasks and threads, on both databases."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onefold import (
    Bury,
    Cancel,
    Defer,
    Exponential,
    Fixed,
    Job,
    Onefold,
    Retry,
)
from onefold.errors import Busy, OutcomeUnknown
from tests.fixtures.place import Place
from tests.worker.stage import ended, get_job, perform, spin, until, working

NOW = Fixed(timedelta(0))
HOUR = timedelta(hours=1)


def _as_task(onefold: Onefold, body: Callable[[], Any], **options: Any) -> Any:
    @onefold.job(kind="work", **options)
    async def work() -> Any:
        return body()

    return work


def _in_thread(onefold: Onefold, body: Callable[[], Any], **options: Any) -> Any:
    @onefold.job(kind="work", **options)
    def work() -> Any:
        return body()

    return work


@pytest.fixture(params=[_as_task, _in_thread], ids=["task", "thread"])
def declare(request: pytest.FixtureRequest) -> Any:
    return request.param


def _raise(error: BaseException) -> Any:
    raise error


def _settled(
    place: Place,
    declare: Any,
    body: Callable[[], Any],
    condition: Callable[[Job], bool],
    **options: Any,
) -> Job:
    """One job of that body, run by a worker until it stands as it should."""
    with place.open() as onefold:
        work = declare(onefold, body, **options)

        async def play() -> Job:
            enqueued = await work.aenqueue()
            found: list[Job] = []

            async def stands() -> bool:
                job = await get_job(onefold, enqueued.id)
                found[:] = [job]
                return condition(job)

            async with working(onefold):
                await until(stands)
            return found[0]

        return perform(play, onefold)


def _ended(place: Place, declare: Any, body: Callable[[], Any], **options: Any) -> Job:
    """One job of that body, run by a worker until it has ended."""
    return _settled(
        place,
        declare,
        body,
        lambda job: job.state in {"completed", "dead", "cancelled"},
        **options,
    )


def test_a_handler_that_returns_completes_its_job(place: Place, declare: Any) -> None:
    job = _ended(place, declare, lambda: None)
    assert (job.state, job.attempt, job.result) == ("completed", 1, None)


def test_a_result_is_kept_where_it_was_asked_for(place: Place, declare: Any) -> None:
    assert _ended(place, declare, lambda: {"a": 1}, store_result=True).result == {"a": 1}


def test_a_result_that_cannot_be_stored_buries_the_job(place: Place, declare: Any) -> None:
    job = _ended(place, declare, object, store_result=True)
    assert job.state == "dead"
    assert job.reason == "the result cannot be stored"


def test_an_exception_is_a_failure_and_is_tried_again(place: Place, declare: Any) -> None:
    tries: list[int] = []

    def body() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")

    job = _ended(place, declare, body, backoff=NOW)
    assert (job.state, job.attempt, len(tries)) == ("completed", 3, 3)


def test_a_job_without_attempts_left_is_buried_with_its_error(place: Place, declare: Any) -> None:
    job = _ended(place, declare, lambda: _raise(ValueError("no")), backoff=NOW, max_attempts=2)
    assert (job.state, job.attempt) == ("dead", 2)
    assert job.error is not None
    assert job.error["type"] == "builtins.ValueError"
    assert job.error["message"] == "no"
    assert "ValueError" in job.error["traceback"]


def test_sys_exit_in_a_handler_is_a_failure_of_the_job_alone(place: Place, declare: Any) -> None:
    job = _ended(place, declare, lambda: _raise(SystemExit(3)), max_attempts=1)
    assert job.state == "dead"


@pytest.mark.parametrize("way", ["returned", "raised"])
class TestOutcomes:
    def body(self, way: str, outcome: Exception) -> Callable[[], Any]:
        return (lambda: outcome) if way == "returned" else (lambda: _raise(outcome))

    def test_retry_comes_back_after_its_own_time(
        self, place: Place, declare: Any, way: str
    ) -> None:
        job = _settled(
            place,
            declare,
            self.body(way, Retry(HOUR)),
            lambda job: job.state == "retrying",
            backoff=NOW,
        )
        assert job.attempt == 1
        assert job.run_at - job.created_at > HOUR * 0.9

    def test_defer_burns_no_attempt(self, place: Place, declare: Any, way: str) -> None:
        job = _settled(
            place,
            declare,
            self.body(way, Defer(HOUR)),
            lambda job: job.state == "scheduled" and job.fence == 1,
        )
        assert job.attempt == 0
        assert job.run_at - job.created_at > HOUR * 0.9

    def test_bury_is_the_end(self, place: Place, declare: Any, way: str) -> None:
        job = _ended(place, declare, self.body(way, Bury("no such account")))
        assert (job.state, job.reason, job.attempt) == ("dead", "no such account", 1)

    def test_cancel_is_no_failure(self, place: Place, declare: Any, way: str) -> None:
        job = _ended(place, declare, self.body(way, Cancel("superseded")))
        assert (job.state, job.reason) == ("cancelled", "superseded")


def test_a_busy_key_defers_the_job(place: Place, declare: Any) -> None:
    busy = Busy(key="k", retry_after=HOUR)
    job = _settled(
        place,
        declare,
        lambda: _raise(busy),
        lambda job: job.state == "scheduled" and job.fence == 1,
    )
    assert job.attempt == 0


def test_an_unknown_outcome_parks_the_job(place: Place, declare: Any) -> None:
    job = _ended(place, declare, lambda: _raise(OutcomeUnknown(key="k", since=None)))
    assert (job.state, job.reason) == ("dead", "unknown")


def test_an_unknown_outcome_that_may_be_verified_is_tried_again_and_ends_as_unknown(
    place: Place, declare: Any
) -> None:
    unknown = OutcomeUnknown(key="k", verifiable=True)
    job = _ended(place, declare, lambda: _raise(unknown), max_attempts=3, backoff=NOW)
    assert (job.state, job.reason, job.attempt) == ("dead", "unknown", 3)


def test_errors_mean_what_the_declaration_says(place: Place, declare: Any) -> None:
    assert _ended(place, declare, lambda: _raise(KeyError("a")), done_on=(KeyError,)).state == (
        "completed"
    )
    job = _ended(place, declare, lambda: _raise(TypeError("b")), bury_on=(TypeError,))
    assert (job.state, job.attempt) == ("dead", 1)
    assert job.error is not None
    assert job.error["type"] == "builtins.TypeError"


def test_only_what_retry_on_names_is_tried_again(place: Place, declare: Any) -> None:
    job = _ended(place, declare, lambda: _raise(TypeError("b")), retry_on=(KeyError,), backoff=NOW)
    assert (job.state, job.attempt) == ("dead", 1)


async def test_a_payload_that_does_not_fit_fails_like_any_other_attempt(onefold: Onefold) -> None:
    @onefold.job(retry_on=KeyError)
    async def add(number: int) -> None: ...

    enqueued = await onefold.aenqueue("add", {"number": "seven"}, max_attempts=2, backoff=NOW)
    async with working(onefold):
        await ended(onefold, enqueued.id)
    job, attempts = await onefold.aget(enqueued.id), await onefold.deliveries.aattempts(enqueued.id)
    assert job is not None
    assert (job.state, job.attempt, job.reason) == ("dead", 2, "payload")
    assert [attempt.outcome for attempt in attempts] == ["retried", "dead"]


def test_a_job_of_newer_code_outlives_a_worker_of_older_code(place: Place) -> None:
    """A rolling deploy: the new code adds a parameter, and an old worker takes the job first."""
    with place.open() as old, place.open() as new:

        @old.job(kind="send", backoff=NOW)
        async def before(user_id: int) -> None: ...

        @new.job(kind="send", backoff=NOW, store_result=True)
        async def after(user_id: int, template: str = "welcome") -> str:
            return f"{template} {user_id}"

        async def play() -> Job | None:
            enqueued = await after.aenqueue(7)
            async with working(old):
                await until(lambda: _is_retrying(old, enqueued.id))
            async with working(new):
                await ended(new, enqueued.id)
            await old.aclose()
            return await new.aget(enqueued.id)

        job = perform(play, new)
        assert job is not None
        assert (job.state, job.result) == ("completed", "welcome 7")
        assert before.kind == "send"


async def _is_retrying(onefold: Onefold, job_id: str) -> bool:
    job = await onefold.aget(job_id)
    return job is not None and job.attempt > 0 and job.error is not None


def test_a_handler_that_takes_too_long_is_stopped(place: Place) -> None:
    stopped: list[str] = []
    with place.open() as onefold:

        @onefold.job(timeout=timedelta(milliseconds=50), max_attempts=1)
        async def task() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.append("task")
                raise

        @onefold.job(timeout=timedelta(milliseconds=50), max_attempts=1)
        def thread() -> None:
            try:
                spin()
            except BaseException:
                stopped.append("thread")
                raise

        async def play() -> list[Job | None]:
            ids = [(await task.aenqueue()).id, (await thread.aenqueue()).id]
            async with working(onefold):
                await ended(onefold, *ids)
                await until(lambda: len(stopped) == 2)
            return [await onefold.aget(job_id) for job_id in ids]

        for job in perform(play, onefold):
            assert job is not None
            assert job.state == "dead"
            assert job.error is not None
            assert job.error["type"] == "onefold.errors.JobTimeout"


async def test_a_kind_without_a_handler_waits_and_is_named(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    @onefold.job
    async def known() -> None: ...

    unknown = await onefold.aenqueue("unheard-of", priority=-1)
    ours = await known.aenqueue()
    async with working(onefold):
        await ended(onefold, ours.id)

        async def is_back() -> bool:
            job = await onefold.aget(unknown.id)
            return job is not None and job.state == "ready" and job.fence == 1

        await until(is_back)
    waiting, done = await get_job(onefold, unknown.id), await get_job(onefold, ours.id)
    assert (waiting.state, waiting.attempt, done.state) == ("ready", 0, "completed")
    assert "'unheard-of'" in caplog.text


async def test_on_dead_is_called_with_the_dead_letter(onefold: Onefold) -> None:
    seen: list[Job] = []

    @onefold.job(max_attempts=1, on_dead=seen.append)
    async def fail() -> None:
        raise ValueError("no")

    await fail.aenqueue()
    async with working(onefold):
        await until(lambda: seen)
    assert [(job.kind, job.state) for job in seen] == [("fail", "dead")]


async def test_what_one_handler_puts_into_its_context_the_next_does_not_see(
    onefold: Onefold,
) -> None:
    from contextvars import ContextVar

    mine: ContextVar[str] = ContextVar("mine", default="nothing")
    seen: list[str] = []

    @onefold.job
    async def task(name: str) -> None:
        seen.append(mine.get())
        mine.set(name)

    @onefold.job
    def thread(name: str) -> None:
        seen.append(mine.get())
        mine.set(name)

    ids = [(await job.aenqueue(name=str(n))).id for n in range(5) for job in (task, thread)]
    async with working(onefold, concurrency=1):
        await ended(onefold, *ids)
    assert seen == ["nothing"] * 10


def test_backoff_of_the_kind_is_the_jobs(place: Place, declare: Any) -> None:
    backoff = Exponential(base=HOUR, cap=HOUR, jitter="none")
    job = _settled(
        place,
        declare,
        lambda: _raise(ValueError("no")),
        lambda job: job.state == "retrying",
        backoff=backoff,
    )
    assert job.run_at - job.created_at > HOUR * 0.9
