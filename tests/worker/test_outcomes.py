"""How deliveries end: what handlers return and raise, in tasks and threads, on both databases."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from onefold import Bury, Cancel, Defer, Exponential, Fixed, Job, Onefold, Retry
from onefold.errors import Busy, OutcomeUnknown
from onefold.model.outcome import Outcome
from tests.fixtures.place import Place
from tests.worker.stage import ended, get_job, perform, spin, until, working

NOW = Fixed(timedelta(0))
HOUR = timedelta(hours=1)


class OutOfTheOrdinary(BaseException):
    """As some libraries raise for timeouts of theirs."""


class End(NamedTuple):
    """What a handler does, the options of its kind, and how its job stands then."""

    body: Callable[[], Any]
    options: dict[str, Any]
    stands: dict[str, Any]


def _raising(error: BaseException) -> Callable[[], Any]:
    def body() -> None:
        raise error

    return body


def _returning(outcome: Outcome) -> Callable[[], Any]:
    return lambda: outcome


def _confused() -> Retry:
    outcome = Retry()
    outcome.after = 7  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    return outcome


async def _never_awaited() -> None: ...


def _ends() -> dict[str, End]:
    tries: list[int] = []

    def third_time_lucky() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")

    no, busy = ValueError("no"), Busy(key="k", retry_after=HOUR)
    unknown, verifiable = OutcomeUnknown(key="k"), OutcomeUnknown(key="k", verifiable=True)
    once: dict[str, Any] = {"max_attempts": 1}
    late = Exponential(base=HOUR, cap=HOUR, jitter="none")
    outcomes: dict[Outcome, dict[str, Any]] = {
        Retry(HOUR): {"state": "retrying", "attempt": 1},
        Defer(HOUR): {"state": "scheduled", "attempt": 0},
        Bury("no such account"): {"state": "dead", "attempt": 1, "reason": "no such account"},
        Cancel("superseded"): {"state": "cancelled", "reason": "superseded"},
    }
    return {
        "returned": End(lambda: None, {}, {"state": "completed", "attempt": 1, "result": None}),
        "result": End(lambda: [1], {"store_result": True}, {"state": "completed", "result": [1]}),
        "no result": End(
            object, {"store_result": True},
            {"state": "dead", "reason": "the result cannot be stored"},
        ),
        "retried": End(third_time_lucky, {"backoff": NOW}, {"state": "completed", "attempt": 3}),
        "failed": End(
            _raising(no), {"backoff": NOW, "max_attempts": 2},
            {"state": "dead", "attempt": 2, "error": "ValueError"},
        ),
        "late": End(_raising(no), {"backoff": late}, {"state": "retrying", "attempt": 1}),
        "exit": End(_raising(SystemExit(3)), once, {"state": "dead"}),
        "odd": End(
            _raising(OutOfTheOrdinary()), once,
            {"state": "dead", "error": f"{__name__}.OutOfTheOrdinary"},
        ),
        "confused": End(
            _confused, once, {"state": "dead", "error": "onefold.errors.InvalidInput"}
        ),
        "coroutine": End(
            _never_awaited, once, {"state": "dead", "error": "onefold.errors.UsageError"}
        ),
        "busy": End(_raising(busy), {}, {"state": "scheduled", "attempt": 0}),
        "unknown": End(
            _raising(unknown), {}, {"state": "dead", "attempt": 1, "reason": "unknown"}
        ),
        "verifiable": End(
            _raising(verifiable), {"backoff": NOW, "max_attempts": 3},
            {"state": "dead", "attempt": 3, "reason": "unknown"},
        ),
        "done on": End(_raising(KeyError()), {"done_on": KeyError}, {"state": "completed"}),
        "bury on": End(
            _raising(TypeError()), {"bury_on": (TypeError,)},
            {"state": "dead", "attempt": 1, "error": "TypeError"},
        ),
        "retry on": End(
            _raising(TypeError()), {"retry_on": (KeyError,)}, {"state": "dead", "attempt": 1}
        ),
        **{
            f"{said.__name__} {type(outcome).__name__}": End(said(outcome), {}, stands)
            for outcome, stands in outcomes.items()
            for said in (_returning, _raising)
        },
    }  # fmt: skip


def _as_task(body: Callable[[], Any]) -> Callable[[], Any]:
    async def task() -> Any:
        return body()

    return task


def _in_thread(body: Callable[[], Any]) -> Callable[[], Any]:
    def thread() -> Any:
        return body()

    return thread


def _is_settled(job: Job) -> bool:
    """It has ended, or goes on in an hour."""
    if job.state in {"completed", "dead", "cancelled"}:
        return True
    return job.fence > 0 and job.run_at - job.created_at > HOUR * 0.9


@pytest.mark.parametrize("sort", ["task", "thread"])
async def test_a_job_stands_as_its_handler_has_left_it(onefold: Onefold, sort: str) -> None:
    """In a worker with one place: each of them gives it back."""
    ends = _ends()
    for kind, end in ends.items():
        handler = _as_task(end.body) if sort == "task" else _in_thread(end.body)
        job: Any = onefold.job(kind=kind, **end.options)(handler)
        await job.aenqueue()
    found: list[Job] = []

    async def all_are_settled() -> bool:
        found[:] = await onefold.afind()
        return all(map(_is_settled, found))

    async with working(onefold, concurrency=1):
        await until(all_are_settled)

    def shown(job: Job, name: str) -> Any:
        value = getattr(job, name)
        return value["type"] if name == "error" else value

    stand = {job.kind: {name: shown(job, name) for name in ends[job.kind].stands} for job in found}
    assert stand == {kind: end.stands for kind, end in ends.items()}


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise LookupError("odd")


async def test_code_of_a_payload_that_fails_ends_that_job_and_no_other(onefold: Onefold) -> None:
    @onefold.job(max_attempts=1)
    async def halve(even: Even) -> None: ...

    odd = await onefold.aenqueue("halve", {"even": {"number": 3}}, max_attempts=1)
    even = await halve.aenqueue(Even(2))
    async with working(onefold, concurrency=1):
        await ended(onefold, odd.id, even.id)
    failed = await get_job(onefold, odd.id)
    assert (failed.state, (await get_job(onefold, even.id)).state) == ("dead", "completed")
    assert failed.error is not None
    assert failed.error["type"] == "LookupError"


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

            async def is_retrying() -> bool:
                job = await get_job(old, enqueued.id)
                return job.attempt > 0 and job.error is not None

            async with working(old):
                await until(is_retrying)
            async with working(new):
                await ended(new, enqueued.id)
            await old.aclose()
            return await new.aget(enqueued.id)

        job = perform(play, new)
        assert job is not None
        assert (job.state, job.result) == ("completed", "welcome 7")
        assert before.kind == "send"


async def test_a_handler_that_takes_too_long_is_stopped(onefold: Onefold) -> None:
    stopped: list[str] = []

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

    ids = [(await task.aenqueue()).id, (await thread.aenqueue()).id]
    async with working(onefold):
        await ended(onefold, *ids)
        await until(lambda: len(stopped) == 2)
    for job_id in ids:
        job = await get_job(onefold, job_id)
        assert job.error is not None
        assert (job.state, job.error["type"]) == ("dead", "onefold.errors.JobTimeout")


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
