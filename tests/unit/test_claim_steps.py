"""Steps of a claim, stepped by hand: what seldom happens."""

from __future__ import annotations

from typing import Any

import pytest

from onefold import LeaseLost
from onefold.model.claim import Claim, ClaimKey, Holding
from onefold.model.step import Notes, StepRow
from onefold.operations import steps
from onefold.operations.statement import Sql
from onefold.operations.steps import StepWrite
from tests.fixtures.steps import Steps

SQL = Sql("postgres", shards=4)
KEY = ClaimKey("acme", "http", "alice", "k")
CLAIM = Claim(KEY, "claim-1", "me", 7, None, "at least once")
ROW: tuple[Any, ...] = ("1:charge#1", "step-1", 1, 7, None, 0, 1, 1, "{}")


def wanted(**fields: Any) -> StepWrite:
    given: dict[str, Any] = {
        "key": "1:charge#1",
        "owner": "step-1",
        "state": Holding.SETTLED,
        "notes": Notes(),
    }
    return StepWrite(**{**given, **fields})


def test_a_step_is_written_by_one_statement_beside_its_claim() -> None:
    run = Steps(steps.write_claim_step(SQL, CLAIM, wanted()))

    statement = run.answer("insert_claim_step", [ROW])

    assert statement.parameters["shard"] == KEY.hash % 4
    assert (statement.parameters["owner"], statement.parameters["fence"]) == ("me", 7)
    assert statement.parameters["steps"] == KEY.steps
    assert statement.alone
    assert run.result == StepRow.from_row(ROW)


def test_a_step_that_is_as_it_was_seen_was_refused_because_of_its_claim() -> None:
    seen = StepRow.from_row(ROW)
    run = Steps(steps.write_claim_step(SQL, CLAIM, wanted(seen=seen)))

    run.answer("write_claim_step")
    with pytest.raises(LeaseLost, match="http 'k'"):
        run.answer("read_steps", [ROW])


def test_a_step_that_somebody_else_has_written_is_answered_with() -> None:
    other = ("1:charge#1", "other", *ROW[2:])
    run = Steps(steps.write_claim_step(SQL, CLAIM, wanted()))

    run.answer("insert_claim_step")
    run.answer("read_steps", [other])

    assert run.result.owner == "other"


def test_surfaces_without_steps_are_not_asked_for_any() -> None:
    keys = [ClaimKey("", surface, "", "k") for surface in sorted(steps.STEPLESS)]

    assert Steps(steps.forget(SQL, 0, keys)).result == 0
