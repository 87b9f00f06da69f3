"""Take, finish and heartbeat, stepped by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from onefold import Delivery, NewJob
from onefold.model.delivery import TAKEN_AT, Ended, Heartbeat, TakeOrder, take_order
from onefold.model.ids import new_id, shard_of
from onefold.model.job import JobRow
from onefold.model.new_job import prepare
from onefold.model.timestamps import from_micros
from onefold.operations.deliveries import (
    Finish,
    finish,
    finish_and_take,
    heartbeat,
    take,
    take_in_turn,
)
from onefold.operations.statement import Sql
from tests.fixtures.rows import NOW, delivery_state, taken_row
from tests.fixtures.steps import Steps

POSTGRES, SQLITE = Sql("postgres"), Sql("sqlite")
SHARDED = Sql("postgres", shards=4)
A, B, C = sorted(new_id() for _ in range(3))


def order(queues: dict[str, int] | None = None, limit: int = 10) -> TakeOrder:
    return take_order(queues or {"default": limit}, limit=limit, worker="w", lease=timedelta(1))


def by_shard() -> dict[int, list[str]]:
    """Ids on every one of four shards, none in order."""
    found: dict[int, list[str]] = {}
    for number in range(24):
        job_id = new_id(number * 171 % 4096)
        found.setdefault(shard_of(job_id, 4), []).insert(0, job_id)
    return found


# --- take -----------------------------------------------------------------------------------------


def test_postgres_takes_by_one_statement() -> None:
    run = Steps(take(POSTGRES, order({"b": 2, "a": 5}, limit=6), shard=3))

    statement = run.answer("exchange_jobs", [])

    assert statement.arrays() == {
        "id": [],
        "fence": [],
        "result": [],
        "plain": True,
        "keep": 86_400_000_000,
        "queues": ["b", "a"],
        "limits": [2, 5],
        "shard": 3,
        "limit": 6,
        "worker": "w",
        "take_id": None,
        "lease": 86_400_000_000,
        "unknown": [],
    }
    assert run.result == []


def test_jobs_come_in_the_order_in_which_they_are_to_run() -> None:
    rows = [
        taken_row(C, queue="a", priority=0, run_at_micros=NOW),
        taken_row(B, queue="a", priority=0, run_at_micros=NOW),
        taken_row(new_id(), queue="a", priority=0, run_at_micros=NOW - 1),
        taken_row(new_id(), queue="a", priority=-5, run_at_micros=NOW + 1),
        taken_row(A, queue="b", priority=9, run_at_micros=NOW + 9),
    ]
    run = Steps(take(POSTGRES, order({"b": 2, "a": 5})))

    run.answer("exchange_jobs", rows)

    expected = [rows[4], rows[3], rows[2], rows[1], rows[0]]
    leased: tuple[Any, ...] = (NOW + 86_400_000_000, "w")
    assert run.result == [JobRow(*row, *leased) for row in expected]


def test_sqlite_asks_for_the_priorities_of_each_queue_first() -> None:
    run = Steps(take(SQLITE, order({"b": 2, "a": 5}, limit=4)))

    first = run.answer("ready_priorities", [(0,), (7,)])
    at_zero = run.answer("take_jobs", [taken_row(A, queue="b")])
    at_seven = run.answer("take_jobs", [taken_row(B, queue="b", priority=7)])
    second = run.answer("ready_priorities", [(0,)])
    rest = run.answer("take_jobs", [])

    assert [one.parameters["queue"] for one in (first, at_zero, second, rest)] == [
        "b",
        "b",
        "a",
        "a",
    ]
    assert [one.parameters["priority"] for one in (at_zero, at_seven)] == [0, 7]
    assert [one.parameters["limit"] for one in (at_zero, at_seven, rest)] == [2, 1, 2]
    assert [job.id for job in run.result] == [A, B]


def test_sqlite_stops_at_the_limit() -> None:
    run = Steps(take(SQLITE, order({"b": 2, "a": 5}, limit=2)))

    run.answer("ready_priorities", [(0,), (7,)])
    run.answer("take_jobs", [taken_row(A, queue="b"), taken_row(B, queue="b")])

    assert [job.id for job in run.result] == [A, B]


def test_sqlite_goes_on_to_the_next_queue_where_one_has_nothing() -> None:
    run = Steps(take(SQLITE, order({"b": 2, "a": 5})))

    run.answer("ready_priorities", [])
    run.answer("ready_priorities", [])

    assert run.result == []


def test_a_take_begins_at_the_shard_whose_turn_it_is_and_ends_when_it_has_enough() -> None:
    run = Steps(take_in_turn(SHARDED, order({"b": 2, "a": 5}, limit=3), turn=6))

    first = run.answer("exchange_jobs", [taken_row(C, queue="b")])
    second = run.answer("exchange_jobs", [])
    third = run.answer("exchange_jobs", [taken_row(B, queue="a"), taken_row(A, queue="b")])

    assert [one.parameters["shard"] for one in (first, second, third)] == [2, 3, 0]
    assert [one.parameters["limit"] for one in (first, second, third)] == [3, 2, 2]
    assert [job.id for job in run.result] == [A, C, B]


def test_a_queue_that_has_given_its_most_is_not_asked_for_again() -> None:
    run = Steps(take_in_turn(SHARDED, order({"b": 2, "a": 5}, limit=10), turn=0))

    run.answer("exchange_jobs", [taken_row(A, queue="b")])
    second = run.answer("exchange_jobs", [taken_row(B, queue="b"), taken_row(C, queue="a")])
    third = run.answer("exchange_jobs", [taken_row(new_id(), queue="a") for _ in range(4)])

    assert (second.parameters["queues"], second.parameters["limits"]) == (["b", "a"], [1, 5])
    assert (third.parameters["queues"], third.parameters["limits"]) == (["a"], [4])
    assert len(run.result) == 7


def test_a_take_goes_once_round_where_there_is_too_little() -> None:
    run = Steps(take_in_turn(SHARDED, order(), turn=3))

    asked = [run.answer("exchange_jobs", []).parameters["shard"] for _ in range(4)]

    assert asked == [3, 0, 1, 2]
    assert run.result == []


# --- finish ---------------------------------------------------------------------------------------


def test_a_finish_is_one_statement() -> None:
    run = Steps(finish(POSTGRES, [Finish(Delivery(B, 2), "1"), Finish(Delivery(A, 1))]))

    statement = run.answer("finish_jobs", [(A, 1, None, False), (B, 2, None, False)])

    assert statement.rows == [(0, A, 1, None), (0, B, 2, "1")]
    assert statement.parameters == {"keep": 86_400_000_000}
    assert run.result == [
        Ended(B, 2, "accepted", "completed"),
        Ended(A, 1, "accepted", "completed"),
    ]


def test_locked_rows_are_passed_over_where_the_database_can() -> None:
    finishes = [Finish(Delivery(A, 1))]

    Steps(finish(POSTGRES, finishes, skip_locked=True)).asks("exchange_jobs")
    Steps(finish(SQLITE, finishes, skip_locked=True)).asks("finish_jobs")


def test_an_exchange_completes_deliveries_and_takes_jobs_by_one_statement() -> None:
    finishes = [Finish(Delivery(B, 2), "1", plain=True), Finish(Delivery(A, 1), plain=True)]
    run = Steps(finish_and_take(POSTGRES, finishes, order({"b": 2}), turn=0))

    statement = run.answer("exchange_jobs", [taken_row(C, queue="b")])

    assert (statement.alone, statement.waits) == (True, False)
    assert statement.rows == [(A, 1, None), (B, 2, "1")]
    ended, taken = run.result
    assert [(one.id, one.status) for one in ended] == [(B, "accepted"), (A, "accepted")]
    assert [job.id for job in taken] == [C]


def test_an_exchange_that_did_not_complete_all_is_judged() -> None:
    finishes = [Finish(Delivery(A, 1), plain=True), Finish(Delivery(B, 2), plain=True)]
    run = Steps(finish_and_take(POSTGRES, finishes, order({"b": 2}), turn=0))

    run.answer("exchange_jobs", [taken_row(C, queue="b"), completed_row(f'[["{A}",1,null,false]]')])
    run.answer("delivery_states", [delivery_state(B, 1, 2, 9)])

    ended, taken = run.result
    assert [one.status for one in ended] == ["accepted", "lost"]
    assert [job.id for job in taken] == [C]


def test_an_exchange_that_completed_nothing_is_judged() -> None:
    run = Steps(finish(POSTGRES, [Finish(Delivery(A, 1))], skip_locked=True))

    statement = run.answer("exchange_jobs", [completed_row(None)])
    run.answer("delivery_states", [delivery_state(A, 2, 1, None)])

    assert (statement.alone, statement.waits) == (False, True)
    assert [one.status for one in run.result] == ["already"]


def completed_row(text: str | None) -> tuple[str | None, ...]:
    """The last row of an exchange that did not complete all deliveries."""
    columns = JobRow.__struct_fields__[: TAKEN_AT + 1]
    return tuple(text if name == "payload_json" else None for name in columns)


def test_a_finish_that_did_not_count_is_judged() -> None:
    gone = new_id()
    deliveries = [Delivery(A, 1), Delivery(B, 1), Delivery(C, 1), Delivery(gone, 1)]
    run = Steps(finish(POSTGRES, [Finish(delivery) for delivery in deliveries]))

    run.answer("finish_jobs", [])
    look = run.answer(
        "delivery_states",
        [delivery_state(A, 2, 1, None), delivery_state(B, 2, 2, None), delivery_state(C, 1, 1, 9)],
    )

    assert look.rows == [(0, job_id) for job_id in sorted([A, B, C, gone])]
    assert run.result == [
        Ended(A, 1, "already", "completed"),
        Ended(B, 1, "lost", "completed"),
        Ended(C, 1, "lost", "running"),
        Ended(gone, 1, "lost", None),
    ]


def test_of_two_deliveries_of_one_job_only_the_present_one_counts() -> None:
    stale, present = Delivery(A, 1), Delivery(A, 2)

    for given in ([stale, present], [present, stale]):
        run = Steps(finish(POSTGRES, [Finish(delivery) for delivery in given]))
        run.answer("finish_jobs", [(A, 2, None, False)])
        run.answer("delivery_states", [delivery_state(A, 2, 2, None)])
        assert {ended.fence: ended.status for ended in run.result} == {1: "lost", 2: "accepted"}


def test_what_waited_for_a_finished_job_becomes_a_job() -> None:
    waiting = prepare(NewJob("email", unique_key="k"), "", now=NOW).request
    text = msgspec.json.encode(waiting).decode()
    run = Steps(finish(POSTGRES, [Finish(Delivery(A, 1)), Finish(Delivery(B, 1))]))

    run.answer("finish_jobs", [(A, 1, text, False), (B, 1, None, False)])
    insert = run.answer("insert_jobs", [(waiting.id,)])
    clear = run.answer("clear_successors")

    assert insert.rows == [msgspec.structs.astuple(waiting)]
    assert clear.rows == [(0, A)]
    assert [ended.status for ended in run.result] == ["accepted", "accepted"]


def test_a_job_that_is_not_to_be_kept_is_removed_or_stripped_at_once() -> None:
    run = Steps(finish(POSTGRES, [Finish(Delivery(job_id, 1)) for job_id in (A, B, C)]))

    run.answer("finish_jobs", [(C, 1, None, True), (A, 1, None, True), (B, 1, None, False)])
    promised = run.answer("keys_promised", [(C,)])
    strip = run.answer("strip_jobs")
    gone = [run.answer(name) for name in ("delete_jobs", "delete_duplicates", "delete_tallies")]

    assert {job_id for _, job_id in promised.rows} == {A, C}
    assert strip.rows == [(0, C)]
    assert [one.rows for one in gone] == [[(0, A)]] * 3
    assert len(run.result) == 3


def test_a_batch_is_finished_shard_by_shard_in_lock_order() -> None:
    ids = by_shard()
    given = [Delivery(job_id, 1) for shard in (2, 0, 3, 1) for job_id in ids[shard]]
    run = Steps(finish(SHARDED, [Finish(delivery) for delivery in given]))

    asked = [run.answer("finish_jobs", []) for _ in range(4)]
    looks = [run.answer("delivery_states", []) for _ in range(4)]

    for shard, (statement, look) in enumerate(zip(asked, looks, strict=True)):
        assert [row[:2] for row in statement.rows] == [(shard, i) for i in sorted(ids[shard])]
        assert look.rows == [(shard, i) for i in sorted(ids[shard])]
    assert [ended.id for ended in run.result] == [delivery.id for delivery in given]


# --- heartbeat ------------------------------------------------------------------------------------


def test_a_heartbeat_extends_what_still_has_its_fence() -> None:
    run = Steps(heartbeat(POSTGRES, [Delivery(B, 2), Delivery(A, 1)], lease=5))

    statement = run.answer("heartbeat_jobs", [(A, 1, NOW + 5)])
    silent = run.answer("delivery_states", [delivery_state(B, 1, 3, NOW + 9)])

    assert statement.rows == [(0, A, 1), (0, B, 2)]
    assert statement.parameters == {"lease": 5}
    assert silent.rows == [(0, B)]
    assert run.result == [Heartbeat(B, 2, None), Heartbeat(A, 1, from_micros(NOW + 5))]


def test_a_job_that_somebody_has_locked_keeps_the_lease_it_has() -> None:
    run = Steps(heartbeat(POSTGRES, [Delivery(A, 1), Delivery(B, 1), Delivery(C, 1)], lease=5))

    run.answer("heartbeat_jobs", [])
    run.answer("delivery_states", [delivery_state(A, 1, 1, NOW + 2), delivery_state(B, 4, 1, None)])

    assert [beat.lost for beat in run.result] == [False, True, True]


def test_a_stale_delivery_does_not_live_on_the_present_ones_heartbeat() -> None:
    run = Steps(heartbeat(POSTGRES, [Delivery(A, 1), Delivery(A, 2)], lease=5))

    run.answer("heartbeat_jobs", [(A, 2, NOW + 5)])
    run.answer("delivery_states", [delivery_state(A, 1, 2, NOW + 5)])

    assert [beat.lost for beat in run.result] == [True, False]


def test_heartbeats_go_shard_by_shard_in_lock_order() -> None:
    ids = by_shard()
    given = [Delivery(job_id, 1) for shard in (2, 0, 3, 1) for job_id in ids[shard]]
    run = Steps(heartbeat(SHARDED, given, lease=5))

    for shard in range(4):
        statement = run.answer("heartbeat_jobs", [])
        run.answer("delivery_states", [])
        assert statement.rows == [(shard, i, 1) for i in sorted(ids[shard])]

    assert all(beat.lost for beat in run.result)
