"""`deliver` calls a handler with a real `Run` on a real job, as often as a test wants."""

from typing import Any

import pytest

from onefold import Bury, InvalidInput, Limit, Retry, Run, Unique
from onefold.testing import DeliveryResults, adeliver, assert_enqueued, deliver, drain, enqueued
from tests.fixtures.place import Place
from tests.testing.stage import Stage


def delivered(stage: Stage, job: Any, *args: Any, **options: Any) -> DeliveryResults:
    found: DeliveryResults = stage.call(deliver, adeliver, job, *args, **options)
    return found


def test_a_handler_is_called_as_often_as_said_and_steps_survive(stage: Stage) -> None:
    calls: list[tuple[int, int, str]] = []
    fences: list[int] = []
    sent: list[str] = []

    @stage.onefold.job(store_result=True)
    def send(run: Run, user: int) -> int:
        calls.append((user, run.attempt, run.id))
        fences.append(run.fence)
        key = run.key("mail")
        run.step("mail", lambda: sent.append(key))
        return run.attempt

    found = delivered(stage, send, 7, times=3)

    job_id = found.job.id
    assert calls == [(7, 1, job_id), (7, 2, job_id), (7, 3, job_id)]
    assert sent == [f"{job_id}:mail"]
    assert len(set(fences)) == 3
    assert fences == sorted(fences)
    assert found.results == [1, 2, 3]
    assert (found.job.state, found.job.attempt, found.job.result) == ("completed", 3, 3)
    assert [step.label for step in found.steps] == ["mail"]


def test_the_first_attempt_can_be_a_later_one(stage: Stage) -> None:
    attempts: list[int] = []

    @stage.onefold.job(max_attempts=3)
    def work(run: Run) -> None:
        attempts.append(run.attempt)

    delivered(stage, work, attempt=3, times=2)

    assert attempts == [3, 4]


def test_a_handler_that_has_completed_its_job_is_not_called_again(stage: Stage) -> None:
    calls: list[int] = []

    @stage.onefold.job
    def pay(run: Run) -> None:
        calls.append(run.attempt)
        with run.transaction() as tx:
            tx.execute("select 1")

    found = delivered(stage, pay, times=3)

    assert calls == [1]
    assert found.job.state == "completed"


def test_what_the_handler_raises_is_raised_and_nothing_stays_active(stage: Stage) -> None:
    @stage.onefold.job
    def fail() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        delivered(stage, fail)

    job = assert_enqueued(stage.onefold, "fail")
    assert job.state == "dead"
    assert job.error is not None
    assert job.error["message"] == "on purpose"


def test_an_outcome_is_raised_whether_it_is_raised_or_returned(stage: Stage) -> None:
    @stage.onefold.job
    def bury() -> Bury:
        return Bury("no such user")

    @stage.onefold.job
    def again() -> None:
        raise Retry

    with pytest.raises(Bury):
        delivered(stage, bury)
    with pytest.raises(Retry):
        delivered(stage, again)


def test_an_error_after_the_commit_leaves_the_job_completed(stage: Stage) -> None:
    @stage.onefold.job
    def pay(run: Run) -> None:
        with run.transaction() as tx:
            tx.execute("select 1")
        raise ValueError("too late")

    with pytest.raises(ValueError, match="too late"):
        delivered(stage, pay)

    assert assert_enqueued(stage.onefold, "pay").state == "completed"


def test_async_handlers_are_delivered_in_both_colours(stage: Stage) -> None:
    sent: list[str] = []

    async def send(key: str) -> None:
        sent.append(key)

    @stage.onefold.job
    async def work(run: Run, user: int) -> int:
        await run.astep("mail", send, run.key("mail"))
        if user > 7:
            async with run.transaction() as tx:
                await tx.execute("select 1")
        return user

    assert delivered(stage, work, 7).results == [7, 7]
    assert delivered(stage, work, 8).results == [8]
    assert len(sent) == 2


def test_keys_and_limits_of_other_jobs_do_not_matter(stage: Stage) -> None:
    stage.onefold.queues.declare("narrow", limit=Limit(concurrency=1), ordered=True)

    @stage.onefold.job(unique=Unique(), queue="narrow", group="number")
    def work(number: int) -> int:
        return number

    work.enqueue(7)

    assert delivered(stage, work, 7).results == [7, 7]
    assert delivered(stage, work, 7).results == [7, 7]


def test_no_worker_takes_the_job_meanwhile(place: Place) -> None:
    ran: list[int] = []
    with place.open() as onefold:

        @onefold.job
        def other() -> None:
            ran.append(1)

        @onefold.job
        def work() -> None:
            other.enqueue()
            drain(onefold)

        deliver(work)

        assert ran == [1, 1]
        assert [job.state for job in enqueued(onefold)] == ["completed"] * 3


def test_what_makes_no_sense_is_refused(stage: Stage) -> None:
    def never_job(number: int) -> None: ...

    job = stage.onefold.job(never_job)
    for given in (never_job, "never_job", None):
        with pytest.raises(InvalidInput, match=r"must be a function with @onefold\.job"):
            delivered(stage, given, 1)
    for options in ({"times": 0}, {"times": 1.5}, {"attempt": 0}, {"times": 101}):
        with pytest.raises(InvalidInput, match="must be a whole number from 1 to 100"):
            delivered(stage, job, 1, **options)
    for arguments in (("seven",), (), (1, 2)):
        with pytest.raises(InvalidInput):
            delivered(stage, job, *arguments)
    assert enqueued(stage.onefold) == []
