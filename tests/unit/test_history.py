"""How the history of a job is told."""

from __future__ import annotations

from typing import Any

from onefold.model.attempt import Attempt, history
from onefold.model.ids import new_id
from onefold.model.job import Job
from onefold.model.timestamps import from_micros
from tests.fixtures.rows import NOW, SECOND, job_row

A = new_id()


def noted(fence: int, outcome: Any = "retried", worker: str = "w") -> Attempt:
    return Attempt(1, fence, worker, from_micros(NOW - SECOND), from_micros(NOW), outcome)


def job(state: int, **fields: Any) -> Job:
    return Job.from_row(job_row(A, state_number=state, **fields))


def test_a_delivery_that_ended_while_we_looked_is_told_once() -> None:
    assert history(job(1, fence=1), [noted(1)]) == [noted(1)]
