"""`JobRunner` and its functions: a test runs jobs, waits for one, looks, and empties the tables."""

import asyncio
import threading
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from onefold import (
    Bury,
    Defer,
    Exponential,
    Fixed,
    JobFailed,
    Limit,
    NewJob,
    Rate,
    Retry,
    Run,
)
from onefold.errors import UsageError
from onefold.testing import (
    Clock,
    JobRunner,
    aassert_enqueued,
    adrain,
    aenqueued,
    arefute_enqueued,
    assert_enqueued,
    await_job,
    awipe,
    drain,
    enqueued,
    refute_enqueued,
    wait,
    wipe,
)
from tests.fixtures.place import Place
from tests.testing.stage import Stage

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def done() -> list[int]:
    return []


@pytest.fixture
def work(stage: Stage, done: list[int]) -> Any:
    """A job that notes its number, and fails for a negative one."""

    @stage.onefold.job(backoff=Fixed(MINUTE))
    def work(number: int) -> None:
        done.append(number)
        if number < 0:
            raise ValueError(f"{number} is negative")

    return work


# --- drain ----------------------------------------------------------------------------------------


def test_drain_runs_all_jobs_that_are_due_and_those_that_they_enqueue_in_any_queue(
    stage: Stage, work: Any, done: list[int]
) -> None:
    @stage.onefold.job
    def fan_out(number: int) -> None:
        if number:
            fan_out.enqueue(number - 1)
            work.using(queue=f"queue {number}").enqueue(number)

    ids = {work.enqueue(number).id for number in range(5)}
    fan_out.enqueue(3)
    work.tenant("alice").enqueue(7)

    jobs = stage.drain()

    assert sorted(done) == sorted([*range(5), 1, 2, 3, 7])
    assert ids < {job.id for job in jobs}
    assert (len(jobs), {job.state for job in jobs}) == (13, {"completed"})
    assert {job.tenant for job in jobs} == {"", "alice"}
    assert stage.drain() == []


def test_drain_runs_async_handlers_in_the_loop_of_its_caller(place: Place) -> None:
    loops: list[Any] = []
    with place.open() as onefold:

        @onefold.job
        async def note() -> None:
            loops.append(asyncio.get_running_loop())

        async def play() -> None:
            await note.aenqueue()
            await adrain(onefold)
            assert loops == [asyncio.get_running_loop()]
            await onefold.aclose()

        asyncio.run(play())


def test_drain_raises_what_a_handler_raised_after_the_other_jobs(
    stage: Stage, work: Any, done: list[int]
) -> None:
    failing = work.enqueue(-1)
    work.enqueue(2)
    work.enqueue(-3)

    with pytest.raises(ValueError, match="is negative") as caught:
        stage.drain()

    assert sorted(done) == [-3, -1, 2]
    notes = "\n".join(caught.value.__notes__)
    assert f"({failing.id})" in notes
    assert "attempt 1" in notes
    assert "raised ValueError" in notes


def test_a_job_that_is_tried_again_at_once_is_returned_once(stage: Stage) -> None:
    @stage.onefold.job(backoff=Fixed(timedelta(0)), max_attempts=3)
    def fail() -> None:
        raise ValueError("on purpose")

    fail.enqueue()

    (job,) = stage.drain(raises=False)

    assert (job.state, job.attempt) == ("dead", 3)
    assert job.error is not None
    assert job.error["message"] == "on purpose"


def test_outcomes_and_errors_with_a_rule_are_not_raised(stage: Stage) -> None:
    @stage.onefold.job
    def bury() -> Bury:
        return Bury("no such user")

    @stage.onefold.job
    def again() -> None:
        raise Retry(after=MINUTE)

    @stage.onefold.job(bury_on=KeyError, max_attempts=2)
    def ruled() -> None:
        raise KeyError("7")

    for job in (bury, again, ruled):
        job.enqueue()

    states = {job.kind: job.state for job in stage.drain()}

    assert states == {"bury": "dead", "again": "retrying", "ruled": "dead"}


def test_a_timeout_and_a_payload_that_does_not_fit_are_failed_jobs(stage: Stage, work: Any) -> None:
    stopped = threading.Event()

    @stage.onefold.job(timeout=timedelta(milliseconds=50), max_attempts=1)
    def hang() -> None:
        while not stopped.wait(0.01):
            pass

    @stage.onefold.job(timeout=timedelta(milliseconds=50), max_attempts=1)
    async def ahang() -> None:
        await asyncio.Event().wait()

    for job in (hang, ahang):
        job.enqueue()
        with pytest.raises(JobFailed, match="JobTimeout"):
            stage.drain()
    stopped.set()

    stage.onefold.enqueue("work", {"number": "many"})
    with pytest.raises(JobFailed, match="number"):
        stage.drain()


def test_an_exit_and_a_failed_test_are_raised_too(stage: Stage) -> None:
    @stage.onefold.job
    def leave() -> None:
        raise SystemExit("leaving")

    @stage.onefold.job
    def fail() -> None:
        pytest.fail("failing")

    leave.enqueue()
    with pytest.raises(SystemExit, match="leaving"):
        stage.drain()
    fail.enqueue()
    with pytest.raises(pytest.fail.Exception, match="failing"):
        stage.drain()


def test_a_job_whose_worker_has_vanished_runs_when_its_lease_has_ended(
    stage: Stage, work: Any, done: list[int]
) -> None:
    work.enqueue(1)
    stage.onefold.deliveries.take(worker="vanished", lease=MINUTE)

    assert stage.drain() == []
    stage.clock.advance(MINUTE)
    assert stage.drain() == []  # rescued, and the backoff begins
    stage.clock.advance(MINUTE)
    (job,) = stage.drain()

    assert (done, job.attempt) == ([1], 2)


def test_ticks_of_schedules_wait_for_the_clock(stage: Stage, work: Any, done: list[int]) -> None:
    stage.onefold.cron("0 * * * *", name="hourly")(work.using(queue="hours").call(1))

    assert stage.drain() == []  # stores the schedule
    stage.clock.advance(HOUR)
    (job,) = stage.drain()

    assert (done, job.queue) == ([1], "hours")


def test_jobs_of_paused_queues_and_those_that_no_function_runs_are_left(
    stage: Stage, work: Any, done: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    stage.onefold.queues.pause("default")
    for kind in ("elsewhere", "nowhere"):
        stage.onefold.enqueue(kind)
    work.enqueue(1)

    assert stage.drain() == []
    assert stage.run_until_idle() == []
    stage.onefold.queues.resume("default")
    assert len(stage.drain()) == 1

    assert done == [1]
    assert assert_enqueued(stage.onefold, "elsewhere").attempt == 0
    for kind in ("elsewhere", "nowhere"):
        assert caplog.text.count(f"Jobs of the kind '{kind}' are waiting") == 1


def test_a_job_can_wait_for_another_one(stage: Stage) -> None:
    @stage.onefold.job(store_result=True)
    def part() -> int:
        return 21

    @stage.onefold.job(store_result=True)
    def whole() -> int:
        return 2 * part.enqueue().result(timeout=MINUTE)

    found = whole.enqueue()

    stage.drain(concurrency=2)

    assert found.result(timeout=timedelta(0)) == 42


@pytest.mark.parametrize("defers", [False, True])
def test_a_job_that_comes_back_without_end_is_noticed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, defers: bool
) -> None:
    monkeypatch.setattr("onefold.testing.jobs.MOST", 5)

    @stage.onefold.job
    def again() -> None:
        if defers:
            raise Defer(MINUTE)
        again.enqueue()

    again.enqueue()

    with pytest.raises(UsageError, match="5 jobs ran, and more may be due"):
        stage.run_until_idle()


async def test_a_blocking_call_in_an_event_loop_is_refused_with_a_sentence(place: Place) -> None:
    with place.open() as onefold, pytest.raises(UsageError, match="with a leading a"):
        drain(onefold)


# --- run_one and run_until_idle -------------------------------------------------------------------


def test_run_one_runs_one(stage: Stage, done: list[int], caplog: pytest.LogCaptureFixture) -> None:
    """Also of async handlers that end at once."""

    @stage.onefold.job
    async def quick(number: int) -> None:
        done.append(number)

    ids = {quick.enqueue(number).id for number in range(6)}

    for count in range(1, 7):
        job = stage.run_one()
        assert len(done) == count
        assert job.id in ids
        assert job.state == "completed"
        waiting = [job for job in enqueued(stage.onefold) if job.state == "ready"]
        assert [job.attempt for job in waiting] == [0] * (6 - count)

    assert stage.run_one() is None
    assert "no handler" not in caplog.text


def test_run_until_idle_moves_the_clock_to_delays_and_backoffs(stage: Stage) -> None:
    attempts: list[int] = []
    started = stage.clock.now

    @stage.onefold.job(backoff=Exponential(MINUTE, jitter="none"), max_attempts=5)
    def stubborn(run: Run) -> None:
        attempts.append(run.attempt)
        if run.attempt < 3:
            raise ConnectionError("not yet")

    stubborn.using(delay=HOUR).enqueue()

    (job,) = stage.run_until_idle(raises=False)

    assert (attempts, job.state) == ([1, 2, 3], "completed")
    assert stage.clock.now - started == HOUR + MINUTE + 2 * MINUTE


def test_run_until_idle_moves_the_clock_until_limits_and_holds_allow_the_jobs(
    stage: Stage, work: Any, done: list[int]
) -> None:
    started = stage.clock.now
    stage.onefold.queues.declare("slow", limit=Limit(rate=Rate(2, MINUTE)))
    stage.onefold.queues.declare("groups", group_limit=Limit(rate=Rate(1, MINUTE)))
    stage.onefold.queues.declare("held")
    stage.onefold.queues.hold("held", after=HOUR, why="deferred")
    for number in range(4):
        work.using(queue="slow").enqueue(number)
        work.using(queue="groups", group_key="one").enqueue(number)
    work.using(queue="held").enqueue(9)
    stage.onefold.enqueue("elsewhere", queue="slow")

    assert len(stage.run_until_idle()) == 9

    assert done[-1] == 9
    assert stage.clock.now - started == HOUR
    assert stage.run_until_idle() == []
    assert stage.clock.now - started == HOUR


def test_run_until_idle_stops_at_the_first_error(stage: Stage, work: Any) -> None:
    work.using(delay=MINUTE).enqueue(-1)
    later = work.using(delay=HOUR).enqueue(2)

    with pytest.raises(ValueError, match="negative"):
        stage.run_until_idle()

    found = stage.onefold.get(later.id)
    assert found is not None
    assert found.state == "scheduled"


def test_run_until_idle_ends_although_schedules_tick_for_ever(
    stage: Stage, work: Any, done: list[int]
) -> None:
    stage.onefold.cron("* * * * *")(work.call(1))
    stage.drain()
    stage.clock.advance(MINUTE)

    stage.run_until_idle()

    assert done == [1]


@pytest.mark.parametrize("clock", [None, Clock()])
def test_run_until_idle_without_the_clock_of_onefold_says_what_to_do(
    place: Place, clock: Clock | None
) -> None:
    with place.open() as onefold, pytest.raises(UsageError, match="needs the clock of onefold"):
        JobRunner(onefold, clock).run_until_idle()


# --- wait -----------------------------------------------------------------------------------------


def test_wait_returns_a_job_when_a_worker_has_ended_it(stage: Stage, work: Any) -> None:
    job_id = work.enqueue(1).id
    runner = threading.Thread(target=stage.runner.drain)
    runner.start()

    job = stage.call(wait, await_job, stage.onefold, job_id)

    runner.join()
    assert (job.id, job.state) == (job_id, "completed")


def test_wait_returns_dead_and_cancelled_jobs(stage: Stage) -> None:
    cancelled = stage.onefold.enqueue("email")
    stage.onefold.cancel(cancelled.id)
    dead = stage.onefold.enqueue("email")
    deliveries = stage.onefold.deliveries
    deliveries.bury(deliveries.take(worker="ada", lease=MINUTE), reason="none")

    for job_id, state in ((cancelled.id, "cancelled"), (dead.id, "dead")):
        assert stage.call(wait, await_job, stage.onefold, job_id).state == state


# --- wipe -----------------------------------------------------------------------------------------


def test_wipe_deletes_everything_and_keeps_the_installation(stage: Stage) -> None:
    onefold = stage.onefold

    def use_everything() -> None:
        assert onefold.enqueue("email", unique_key="a", idempotency_key="b").inserted
        assert onefold.enqueue("email", unique_key="a").duplicate
        onefold.tenant("alice").enqueue("email")
        onefold.queues.pause("default")
        onefold.schedules.save("daily", "0 0 * * *", kind="email")
        onefold.api_keys.create(scopes=["work"])
        with onefold.once("import", "a key") as claim:
            assert claim.won
            claim.result = 1

    for _ in range(2):
        use_everything()
        stage.call(wipe, awipe, onefold)
        assert enqueued(onefold) == enqueued(onefold.tenant("alice")) == []
        assert onefold.schedules.find() == []
        assert onefold.queues.find().queues == ()
        assert onefold.migrate() == []


# --- enqueued -------------------------------------------------------------------------------------


def test_enqueued_lists_jobs_of_any_state_the_oldest_first_page_by_page(
    stage: Stage, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.testing.jobs.PAGE", 2)
    ids = [work.enqueue(number).id for number in range(5)]
    stage.run_one()
    stage.onefold.tenant("alice").enqueue("work")

    found = stage.call(enqueued, aenqueued, stage.onefold)

    assert [job.id for job in found] == ids
    assert stage.call(enqueued, aenqueued, stage.onefold, "work", {"number": 1})[0].id == ids[1]
    assert len(stage.call(enqueued, aenqueued, stage.onefold.tenant("alice"))) == 1


def asserted(stage: Stage, *args: Any, **options: Any) -> Any:
    return stage.call(assert_enqueued, aassert_enqueued, stage.onefold, *args, **options)


def refuted(stage: Stage, *args: Any, **options: Any) -> Any:
    return stage.call(refute_enqueued, arefute_enqueued, stage.onefold, *args, **options)


def test_a_payload_matches_as_it_is_stored_by_the_members_that_are_named(stage: Stage) -> None:
    payload = {"user": {"id": 7, "name": "Ada"}, "tags": [1, 2]}
    typed = {"at": stage.clock.now, "id": UUID(int=7), "sizes": (1, 2), "one": Decimal("0.1")}
    job_id = stage.onefold.enqueue("email", payload | typed).id

    for wanted in ({}, {"user": {"id": 7}}, {"tags": [1, 2]}, payload, typed):
        assert asserted(stage, "email", wanted).id == job_id
    for unlike in ({"user": 7}, {"tags": [1]}, {"other": None}, [7], "text"):
        refuted(stage, "email", unlike)
    refuted(stage, "email", {"at": stage.clock.now + HOUR})


def test_the_message_lists_the_jobs_that_are_there(stage: Stage) -> None:
    with pytest.raises(AssertionError, match=r"No job 'email' is enqueued\. There are no jobs\."):
        asserted(stage, "email")
    stage.onefold.enqueue("email", {"to": 8})

    with pytest.raises(AssertionError) as missing:
        asserted(stage, "email", {"to": 7})
    with pytest.raises(AssertionError) as unwanted:
        refuted(stage, "email")

    assert str(missing.value) == (
        "No job 'email' with {'to': 7} is enqueued. There are 1:\n  email {'to': 8} (ready)"
    )
    assert str(unwanted.value) == (
        "No job 'email' should be enqueued. There are 1:\n  email {'to': 8} (ready)"
    )


def test_a_long_list_is_cut(stage: Stage) -> None:
    stage.onefold.enqueue_many([NewJob("email", number) for number in range(12)])

    with pytest.raises(AssertionError, match="There are 12, the last 10 of them:") as caught:
        asserted(stage, "other")

    assert str(caught.value).count("email") == 10


def test_a_transaction_that_is_open_shows_its_jobs_alone(place: Place) -> None:
    with place.open() as onefold:
        with place.transaction() as connection:
            onefold.within(connection).enqueue("email", {"to": 7})

            assert_enqueued(onefold, "email", {"to": 7}, within=connection)
            assert len(enqueued(onefold, within=connection)) == 1
            refute_enqueued(onefold, "email")
            with pytest.raises(AssertionError, match="There are 1"):
                assert_enqueued(onefold, "text", within=connection)
        assert_enqueued(onefold, "email", {"to": 7})
