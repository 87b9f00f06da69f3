"""The history of a job: what is noted of its deliveries, and how it is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onefold import JobNotFound
from onefold.model.attempt import Attempt, history, outcome_of
from onefold.model.ids import new_id
from onefold.model.job import Job
from onefold.model.lifecycle import Event, State
from onefold.model.timestamps import from_micros
from onefold.operations.attempts import (
    ATTEMPT_COLUMNS,
    KEPT_DELIVERIES,
    Past,
    attempts,
    forget,
    note,
)
from onefold.operations.statement import Sql
from tests.fixtures.rows import NOW, SECOND, job_row
from tests.fixtures.steps import Steps

SQL = Sql("postgres")
A, B = sorted(new_id() for _ in range(2))


def past(job_id: str = A, *, fence: int = 1, outcome: str = "retried") -> Past:
    return Past(job_id, fence, 1, outcome, "w", NOW - SECOND, NOW, None, '{"message":"no"}')


def noted(fence: int, outcome: Any = "retried", worker: str = "w") -> Attempt:
    return Attempt(1, fence, worker, from_micros(NOW - SECOND), from_micros(NOW), outcome)


def job(state: int, **fields: Any) -> Job:
    return Job.from_row(job_row(A, state_number=state, **fields))


# --- what is stored -------------------------------------------------------------------------------


def test_deliveries_are_noted_in_one_statement() -> None:
    run = Steps(note(SQL, 2, [past(A), past(B, outcome="dead")]))

    rows = run.answer("insert_attempts").rows

    first = dict(zip(ATTEMPT_COLUMNS, rows[0], strict=True))
    assert (first["shard"], first["job_id"], first["fence"], first["attempt"]) == (2, A, 1, 1)
    assert (first["started_at"], first["ended_at"]) == (NOW - SECOND, NOW)
    assert (first["worker"], first["reason"], first["error"]) == ("w", None, '{"message":"no"}')
    assert [row[4] for row in rows] == ["retried", "dead"]
    assert run.result is None


def test_where_nothing_ended_nothing_is_noted() -> None:
    assert Steps(note(SQL, 0, [])).result is None
    assert Steps(forget(SQL, 0, [])).result is None


def test_of_very_many_deliveries_the_last_ones_are_kept() -> None:
    most = KEPT_DELIVERIES
    run = Steps(note(SQL, 2, [past(A, fence=most), past(B, fence=most + 7)]))

    run.answer("insert_attempts")

    assert run.answer("delete_old_attempts").rows == [(2, B, 7)]
    assert run.result is None


def test_what_is_beside_jobs_goes_with_them() -> None:
    run = Steps(forget(SQL, 2, [(B, "acme"), (A, "")]))

    assert run.answer("delete_attempts").rows == [(2, A), (2, B)]
    steps = [("acme", "step", B, "0:charge#0"), ("acme", "once", B, "mail")]
    assert run.answer("find_job_claims", steps).rows == [(2, "", A), (2, "acme", B)]
    assert run.answer("delete_job_claims").rows == [(2, *step) for step in steps]
    assert run.result is None


# --- how it is told -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "state", "word"),
    [
        (Event.FAIL, State.QUEUED, "retried"),
        (Event.FAIL, State.DEAD, "dead"),
        (Event.BURY, State.DEAD, "dead"),
        (Event.DEFER, State.QUEUED, "deferred"),
        (Event.CANCEL, State.CANCELLED, "cancelled"),
        (Event.LAPSE, State.QUEUED, "lease expired"),
        (Event.LAPSE, State.DEAD, "lease expired"),
    ],
)
def test_every_end_has_its_word(event: Event, state: State, word: str) -> None:
    assert outcome_of(event, state) == word


def test_the_delivery_that_is_running_is_told_by_the_job() -> None:
    running = job(1, attempt=2, fence=3, worker="other", taken_at_micros=NOW)

    *earlier, last = history(running, [noted(1), noted(2)])

    assert earlier == [noted(1), noted(2)]
    assert last == Attempt(2, 3, "other", from_micros(NOW), None, "running")
    assert last.duration is None


def test_the_delivery_that_completed_it_is_told_by_the_job() -> None:
    done = job(2, attempt=1, fence=1, worker="w", taken_at_micros=NOW, ended_at_micros=NOW + SECOND)

    (only,) = history(done, [])

    assert (only.outcome, only.worker, only.duration) == ("completed", "w", timedelta(seconds=1))


def test_a_finish_that_came_late_is_told_as_one_and_by_the_worker_that_was_lost() -> None:
    done = job(2, attempt=1, fence=1, taken_at_micros=NOW - SECOND, ended_at_micros=NOW)

    (only,) = history(done, [noted(1, "lease expired", worker="slow")])

    assert (only.outcome, only.worker) == ("completed", "slow")


@pytest.mark.parametrize("state", [0, 3, 4])
def test_a_job_that_nobody_has_tells_of_no_delivery(state: int) -> None:
    assert history(job(state, attempt=1, fence=1), [noted(1)]) == [noted(1)]
    assert history(job(state), []) == []


def test_a_delivery_that_ended_while_we_looked_is_told_once() -> None:
    assert history(job(1, fence=1), [noted(1)]) == [noted(1)]


def test_attempts_are_looked_up_on_the_shard_of_the_job() -> None:
    run = Steps(attempts(SQL, "acme", A))

    get = run.answer("get_jobs", [job_row(A, state_number=3, fence=1)])
    row = (1, 1, "w", None, NOW, "dead", "failed", '{"type":"x","message":"no"}')
    find = run.answer("find_attempts", [row])

    assert get.rows == [(0, A)]
    assert get.parameters == {"tenant": "acme"}
    assert find.parameters == {"shard": 0, "id": A}
    (only,) = run.result
    assert (only.number, only.reason, only.started_at, only.duration) == (1, "failed", None, None)
    assert only.error == {"type": "x", "message": "no"}


def test_there_is_no_history_of_a_job_that_is_not_there() -> None:
    run = Steps(_caught(A))
    run.answer("get_jobs", [])

    assert run.result == A


def _caught(job_id: str) -> Any:
    try:
        yield from attempts(SQL, "", job_id)
    except JobNotFound as error:
        return error.job_id
