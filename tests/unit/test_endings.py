"""Retry, defer, bury, hand back, rescue and cancel, stepped by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from onefold import Delivery, Fixed, NewJob, Retention
from onefold.model.delivery import Ended
from onefold.model.ids import new_id, shard_of
from onefold.model.lifecycle import KEEP, Event, State
from onefold.model.new_job import prepare
from onefold.operations.endings import (
    LEASE_EXPIRED,
    MOVE_COLUMNS,
    Ending,
    Rescued,
    RescuedJob,
    cancel,
    end,
    rescue,
)
from onefold.operations.statement import Sql, Statement
from tests.fixtures.rows import NOW, SECOND, delivery_state, locked_row
from tests.fixtures.steps import Steps

SQL = Sql("postgres")
SHARDED = Sql("postgres", shards=4)
A, B, C = sorted(new_id() for _ in range(3))
FINAL = {"completed": State.COMPLETED, "dead": State.DEAD, "cancelled": State.CANCELLED}


def moved(statement: Statement) -> list[dict[str, Any]]:
    """The rows of move_jobs by the names of its columns."""
    assert statement.columns == MOVE_COLUMNS
    return [dict(zip(MOVE_COLUMNS, row, strict=True)) for row in statement.rows]


def options(**settings: Any) -> str | None:
    """The settings of a job as they are stored."""
    return prepare(NewJob("email", **settings), "", now=NOW).request.options


def successor() -> str:
    """A request that waits for a holder's end."""
    request = prepare(NewJob("email", unique_key="k"), "", now=NOW).request
    return msgspec.json.encode(request).decode()


def test_the_defaults_of_retention_are_those_of_the_design() -> None:
    day = 24 * 3600 * SECOND

    assert {State.COMPLETED: day, State.DEAD: 30 * day, State.CANCELLED: 7 * day} == KEEP


# --- the words ------------------------------------------------------------------------------------


def test_a_retry_is_decided_from_the_locked_row() -> None:
    ending = Ending(Delivery(A, 1), Event.FAIL, after=5 * SECOND, error='{"message":"no"}')
    run = Steps(end(SQL, [ending]))

    lock = run.answer("lock_deliveries", [locked_row(A)])
    (row,) = moved(run.answer("move_jobs"))
    run.answer("insert_attempts")

    assert lock.rows == [(0, A)]
    assert (row["shard"], row["id"], row["state"]) == (0, A, State.QUEUED)
    assert (row["attempt"], row["vanished"], row["error"]) == (1, 0, '{"message":"no"}')
    assert row["run_at"] == row["not_before"] == NOW + 5 * SECOND
    assert (row["reason"], row["ended_at"], row["keep_until"]) == (None, None, None)
    assert (row["replayed"], row["reserved"], row["generations"]) == (False, False, 0)
    assert run.result == [Ended(A, 1, "accepted", "retrying", timedelta(seconds=5))]


def test_a_jobs_own_backoff_is_used() -> None:
    settings = options(backoff=Fixed(timedelta(seconds=30)))
    run = Steps(end(SQL, [Ending(Delivery(A, 1), Event.FAIL)]))

    run.answer("lock_deliveries", [locked_row(A, options_text=settings)])
    (row,) = moved(run.answer("move_jobs"))

    assert row["run_at"] == NOW + 30 * SECOND


@pytest.mark.parametrize(
    ("settings", "keep"),
    [({}, KEEP[State.DEAD]), ({"retention": Retention(dead=timedelta(seconds=7))}, 7 * SECOND)],
    ids=["default", "its own"],
)
def test_a_dead_letter_is_kept_as_long_as_it_says(settings: dict[str, Any], keep: int) -> None:
    run = Steps(end(SQL, [Ending(Delivery(A, 1), Event.BURY, reason="no such card")]))

    run.answer("lock_deliveries", [locked_row(A, options_text=options(**settings))])
    (row,) = moved(run.answer("move_jobs"))
    run.answer("insert_attempts")

    assert (row["state"], row["reason"]) == (State.DEAD, "no such card")
    assert (row["ended_at"], row["keep_until"]) == (NOW, NOW + keep)
    assert run.result == [Ended(A, 1, "accepted", "dead")]


def test_every_word_of_a_batch_is_decided_by_itself() -> None:
    endings = [
        Ending(Delivery(C, 1), Event.HAND_BACK),
        Ending(Delivery(A, 1), Event.FAIL),
        Ending(Delivery(B, 1), Event.DEFER, after=SECOND),
    ]
    run = Steps(end(SQL, endings))

    lock = run.answer(
        "lock_deliveries", [locked_row(A, attempt=8), locked_row(B), locked_row(C, vanished=2)]
    )
    rows = moved(run.answer("move_jobs"))
    noted = run.answer("insert_attempts")
    bell = run.answer("notify")

    assert lock.rows == [(0, A), (0, B), (0, C)]
    assert [row[1] for row in noted.rows] == [A, B], "handed back unstarted is no delivery to tell"
    assert bell.rows == [("default",)], "for the one that is due at once"
    assert [(row["state"], row["attempt"], row["vanished"]) for row in rows] == [
        (State.DEAD, 8, 0),
        (State.QUEUED, 0, 0),
        (State.QUEUED, 0, 2),
    ]
    assert [ended.state for ended in run.result] == ["ready", "dead", "scheduled"]


@pytest.mark.parametrize(
    ("state", "fence"),
    [("ready", 1), ("running", 2), ("completed", 1), ("dead", 1), ("cancelled", 1)],
)
def test_a_word_about_another_delivery_writes_nothing(state: str, fence: int) -> None:
    number = State.QUEUED if state == "ready" else State[state.upper()]
    run = Steps(end(SQL, [Ending(Delivery(A, 1), Event.BURY)]))

    run.answer("lock_deliveries", [locked_row(A, state=number, fence=fence)])
    run.answer("delivery_states", [delivery_state(A, number, fence, None)])

    expected = "already" if state == "dead" else "lost"
    assert run.result == [Ended(A, 1, expected, state)]  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("event", "states"),
    [
        (Event.FAIL, {"queued", "dead"}),
        (Event.DEFER, {"queued"}),
        (Event.HAND_BACK, {"queued"}),
        (Event.BURY, {"dead"}),
        (Event.CANCEL, {"cancelled"}),
    ],
)
def test_a_word_said_twice_is_known_by_where_it_left_the_job(
    event: Event, states: set[str]
) -> None:
    already: set[str] = set()
    for state in State:
        run = Steps(end(SQL, [Ending(Delivery(A, 1), event)]))
        run.answer("lock_deliveries", [])
        run.answer("delivery_states", [delivery_state(A, state, 1, None)])
        if run.result[0].status == "already":
            already.add(state.word)

    assert already == states


def test_of_two_deliveries_of_one_job_only_the_present_one_counts() -> None:
    stale = Ending(Delivery(A, 1), Event.BURY)
    present = Ending(Delivery(A, 2), Event.DEFER, after=SECOND)

    for given in ([stale, present], [present, stale]):
        run = Steps(end(SQL, given))
        lock = run.answer("lock_deliveries", [locked_row(A, fence=2)])
        (row,) = moved(run.answer("move_jobs"))
        run.answer("insert_attempts")
        run.answer("delivery_states", [delivery_state(A, 0, 2, None)])
        assert lock.rows == [(0, A)]
        assert row["state"] == State.QUEUED
        assert {ended.fence: ended.status for ended in run.result} == {1: "lost", 2: "accepted"}


def test_a_job_that_is_gone_has_lost_its_deliveries() -> None:
    run = Steps(end(SQL, [Ending(Delivery(A, 1), Event.FAIL)]))

    run.answer("lock_deliveries", [])
    run.answer("delivery_states", [])

    assert run.result == [Ended(A, 1, "lost", None)]


def test_what_waited_becomes_a_job_when_its_holder_ends_and_not_before() -> None:
    retried = Steps(end(SQL, [Ending(Delivery(A, 1), Event.FAIL, after=SECOND)]))
    retried.answer("lock_deliveries", [locked_row(A, next=successor())])
    retried.answer("move_jobs")
    retried.answer("insert_attempts")
    assert retried.result[0].state == "retrying"

    buried = Steps(end(SQL, [Ending(Delivery(A, 1), Event.BURY)]))
    buried.answer("lock_deliveries", [locked_row(A, next=successor())])
    buried.answer("move_jobs")
    buried.answer("insert_attempts")
    buried.answer("insert_jobs", [])
    assert buried.result[0].state == "dead"


def test_a_job_without_retention_is_removed_at_once() -> None:
    settings = options(retention=Retention(dead=timedelta(0)))
    run = Steps(end(SQL, [Ending(Delivery(A, 1), Event.BURY)]))

    run.answer("lock_deliveries", [locked_row(A, options_text=settings)])
    run.answer("move_jobs")
    run.answer("insert_attempts")
    run.answer("keys_promised", [])
    assert run.answer("delete_jobs", [(A, "acme")]).rows == [(0, A)]
    for name in ("delete_duplicates", "delete_tallies", "delete_attempts"):
        assert run.answer(name).rows == [(0, A)]
    assert run.answer("find_job_claims").rows == [(0, "acme", A)]

    assert run.result == [Ended(A, 1, "accepted", "dead")]


def test_a_job_without_retention_whose_key_is_promised_becomes_a_tombstone() -> None:
    settings = options(retention=Retention(dead=timedelta(0)))
    run = Steps(end(SQL, [Ending(Delivery(A, 1), Event.BURY)]))

    run.answer("lock_deliveries", [locked_row(A, options_text=settings)])
    run.answer("move_jobs")
    run.answer("insert_attempts")
    run.answer("keys_promised", [(A,)])

    assert run.answer("strip_jobs", [(A, "acme")]).rows == [(0, A)]
    assert run.answer("delete_attempts").rows == [(0, A)]
    assert run.answer("find_job_claims").rows == [(0, "acme", A)]
    assert run.result == [Ended(A, 1, "accepted", "dead")]


def test_words_go_shard_by_shard_in_lock_order() -> None:
    ids = [new_id(number * 171 % 4096) for number in range(24)]
    endings = [Ending(Delivery(job_id, 1), Event.FAIL, after=SECOND) for job_id in ids]
    run = Steps(end(SHARDED, endings))

    for shard in range(4):
        here = sorted(job_id for job_id in ids if shard_of(job_id, 4) == shard)
        lock = run.answer("lock_deliveries", [locked_row(job_id) for job_id in here])
        assert lock.rows == [(shard, job_id) for job_id in here]
        assert {row["shard"] for row in moved(run.answer("move_jobs"))} == {shard}
        assert {row[0] for row in run.answer("insert_attempts").rows} == {shard}

    assert [ended.id for ended in run.result] == ids


# --- rescue ---------------------------------------------------------------------------------------


def test_a_rescue_requeues_lapsed_deliveries_and_buries_the_expired() -> None:
    run = Steps(rescue(SQL, shard=2, limit=50))
    late = new_id()

    lapsed = run.answer(
        "lock_lapsed_deliveries",
        [locked_row(A, tenant="acme"), locked_row(B, attempt=8), locked_row(C, vanished=4)],
    )
    rows = moved(run.answer("move_jobs"))
    noted = run.answer("insert_attempts")
    # A full jitter may leave no delay at all.
    if rows[0]["run_at"] <= NOW:
        run.answer("notify")
    expired = run.answer("lock_expired_jobs", [locked_row(late, state=0)])
    (buried,) = moved(run.answer("move_jobs"))

    assert lapsed.parameters == {"shard": 2, "limit": 50}
    assert expired.parameters == {"shard": 2, "limit": 47}
    assert [(row["state"], row["reason"], row["vanished"]) for row in rows] == [
        (State.QUEUED, None, 1),
        (State.DEAD, "lease expired", 1),
        (State.DEAD, "poison", 5),
    ]
    assert {row["error"] for row in rows} == {LEASE_EXPIRED}
    assert [row[1] for row in noted.rows] == [A, B, C]
    assert {row["shard"] for row in [*rows, buried]} == {2}
    assert (buried["state"], buried["reason"], buried["error"]) == (State.DEAD, "expired", None)
    assert (run.result.requeued, run.result.buried, run.result.expired) == (1, 2, 1)
    assert run.result.total == 4
    assert run.result.jobs == (
        RescuedJob(A, "email", "default", "acme", buried=False),
        RescuedJob(B, "email", "default", "", buried=True, reason="lease expired"),
        RescuedJob(C, "email", "default", "", buried=True, reason="poison"),
        RescuedJob(late, "email", "default", "", buried=True, reason="expired"),
    )


def test_a_rescue_moves_no_more_than_it_was_told_to() -> None:
    run = Steps(rescue(SQL, limit=1))

    run.answer("lock_lapsed_deliveries", [locked_row(A, attempt=8)])
    run.answer("move_jobs")
    run.answer("insert_attempts")

    assert run.result.total == 1


def test_a_rescue_with_nothing_to_do_writes_nothing() -> None:
    run = Steps(rescue(SQL))

    run.answer("lock_lapsed_deliveries")
    run.answer("lock_expired_jobs")

    assert run.result == Rescued()


# --- cancel ---------------------------------------------------------------------------------------


def test_a_cancel_answers_with_the_state_before() -> None:
    ids = [new_id() for _ in State]
    rows = [locked_row(job_id, state=state) for job_id, state in zip(ids, State, strict=True)]
    run = Steps(cancel(SQL, "", ids, reason="not wanted"))

    lock = run.answer("lock_deliveries", rows)
    cancelled = moved(run.answer("move_jobs"))
    noted = run.answer("insert_attempts")

    assert lock.rows == [(0, job_id) for job_id in sorted(ids)]
    assert [(row["id"], row["state"], row["reason"]) for row in cancelled] == [
        (ids[0], State.CANCELLED, "not wanted"),
        (ids[1], State.CANCELLED, "not wanted"),
    ]
    assert [row[1] for row in noted.rows] == [ids[1]], "the other one was not running"
    assert run.result == dict(zip(ids, State, strict=True))


def test_a_cancelled_job_without_words_says_that_it_was_cancelled() -> None:
    run = Steps(cancel(SQL, "", [A]))

    run.answer("lock_deliveries", [locked_row(A, next=successor())])
    (row,) = moved(run.answer("move_jobs"))
    run.answer("insert_attempts")
    run.answer("insert_jobs", [])

    assert (row["reason"], row["keep_until"]) == ("cancel", NOW + KEEP[State.CANCELLED])
    assert run.result == {A: State.RUNNING}


@pytest.mark.parametrize(
    "rows",
    [[], [locked_row(A, state=3, stripped=True)]],
    ids=["gone, or another tenant's", "a tombstone"],
)
def test_a_job_that_is_not_there_is_not_cancelled(rows: list[tuple[Any, ...]]) -> None:
    run = Steps(cancel(SQL, "", [A]))

    run.answer("lock_deliveries", rows)

    assert run.result == {A: None}
