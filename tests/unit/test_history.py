"""How the history of a job is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onefold.model.attempt import Attempt, history, outcome_of
from onefold.model.ids import new_id
from onefold.model.job import Job
from onefold.model.lifecycle import Event, State
from onefold.model.timestamps import from_micros
from tests.fixtures.rows import NOW, SECOND, job_row

A = new_id()


def noted(fence: int, outcome: Any = "retried", worker: str = "w") -> Attempt:
    return Attempt(1, fence, worker, from_micros(NOW - SECOND), from_micros(NOW), outcome)


def job(state: int, **fields: Any) -> Job:
    return Job.from_row(job_row(A, state_number=state, **fields))


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
