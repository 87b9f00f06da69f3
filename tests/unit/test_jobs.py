"""Get, find, delete, replay and duplicates, stepped by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onefold import Enqueued, Gone, InvalidInput, Job, JobNotFound, JobPage, NewJob, WrongState
from onefold.model.ids import hash_of, new_id, shard_of
from onefold.model.lifecycle import State
from onefold.model.new_job import INSERT_COLUMNS, prepare
from onefold.model.stored_key import Duplicates, Suppressed
from onefold.model.timestamps import from_micros
from onefold.operations.endings import MOVE_COLUMNS
from onefold.operations.jobs import (
    RECENT_DUPLICATES,
    JobFilter,
    delete,
    duplicates,
    find,
    get,
    job_filter,
    replay,
)
from onefold.operations.statement import Sql
from tests.fixtures.rows import NOW, job_row, locked_row, replayable_row
from tests.fixtures.steps import Steps

SQL = Sql("postgres", notifies=False)
SHARDED = Sql("postgres", shards=4, notifies=False)
A, B, C = sorted(new_id() for _ in range(3))
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUEUED, RUNNING, COMPLETED, DEAD, CANCELLED = map(int, State)


def spread() -> list[str]:
    """Ids on all of four shards."""
    return [new_id(number * 171 % 4096) for number in range(24)]


def on(shard: int, ids: list[str]) -> list[str]:
    return sorted(job_id for job_id in ids if shard_of(job_id, 4) == shard)


# --- get and find ---------------------------------------------------------------------------------


def test_jobs_are_got_by_id() -> None:
    row = job_row(A)
    run = Steps(get(SQL, "acme", [B, A, A]))

    statement = run.answer("get_jobs", [row])

    assert statement.rows == [(0, A), (0, B)]
    assert statement.parameters == {"tenant": "acme"}
    assert run.result == {A: Job.from_row(row)}


def test_jobs_are_got_shard_by_shard() -> None:
    ids = spread()
    run = Steps(get(SHARDED, "", ids))

    for shard in range(4):
        assert run.answer("get_jobs").rows == [(shard, i) for i in on(shard, ids)]

    assert run.result == {}


@pytest.mark.parametrize(
    ("state", "states", "retrying", "due"),
    [
        (None, None, None, None),
        ((), None, None, None),
        ("scheduled", (0,), False, False),
        ("ready", (0,), False, True),
        ("retrying", (0,), True, None),
        ("running", (1,), None, None),
        ("completed", (2,), None, None),
        ("dead", (3,), None, None),
        ("cancelled", (4,), None, None),
        (["dead"], (3,), None, None),
        (["dead", "cancelled"], (3, 4), None, None),
        (("ready", "running", "retrying", "scheduled"), (0, 1), None, None),
    ],
)
def test_a_state_selects_what_is_stored(
    state: Any, states: tuple[int, ...] | None, *, retrying: bool | None, due: bool | None
) -> None:
    assert job_filter(state=state) == JobFilter(states=states, retrying=retrying, due=due)


def test_the_fields_of_a_filter_are_checked_and_stored() -> None:
    found = job_filter(
        queue="mail",
        kind="email",
        unique_key="k",
        reason="poison",
        error_type="builtins.ValueError",
        created_from=AT,
        created_before=AT + timedelta(seconds=1),
        ended_from=AT + timedelta(seconds=2),
        ended_before=AT + timedelta(seconds=3),
        tag="nightly",
    )

    assert found == JobFilter(
        queue="mail",
        kind="email",
        unique_key="k",
        reason="poison",
        error_type="builtins.ValueError",
        created_from=NOW,
        created_before=NOW + 1_000_000,
        ended_from=NOW + 2_000_000,
        ended_before=NOW + 3_000_000,
        tag="nightly",
    )


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"state": "lost"}, "state"),
        ({"state": ["dead", "lost"]}, "state"),
        ({"state": ["dead", "ready"]}, "state"),
        ({"queue": "a,b"}, "queue"),
        ({"kind": ""}, "kind"),
        ({"unique_key": ""}, "unique_key"),
        ({"reason": 7}, "reason"),
        ({"error_type": "\x00"}, "error_type"),
        ({"created_from": AT.replace(tzinfo=None)}, "created_from"),
        ({"created_before": AT.replace(tzinfo=None)}, "created_before"),
        ({"ended_from": AT.replace(tzinfo=None)}, "ended_from"),
        ({"ended_before": AT.replace(tzinfo=None)}, "ended_before"),
        ({"tag": ""}, "tag"),
    ],
)
def test_a_bad_filter_is_refused_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        job_filter(**options)

    assert caught.value.field == field


def test_a_page_asks_for_one_more_to_know_whether_it_is_the_last() -> None:
    rows = [job_row(job_id) for job_id in (A, B, C)]
    run = Steps(find(SQL, "acme", JobFilter(states=(3,), queue="mail"), limit=2, after=A.upper()))

    statement = run.answer("find_jobs", rows)

    assert statement.parameters["limit"] == 3
    assert (statement.parameters["after"], statement.parameters["before"]) == (A, None)
    assert (statement.parameters["states"], statement.parameters["queue"]) == ([3], "mail")
    assert statement.parameters["kind"] is None
    assert run.result == JobPage(tuple(map(Job.from_row, rows[:2])), B)


def test_the_last_page_has_no_cursor() -> None:
    run = Steps(find(SQL, "", JobFilter(), limit=2))

    statement = run.answer("find_jobs", [job_row(A), job_row(B)])

    assert statement.parameters["states"] is None
    assert run.result.next is None


def test_newest_first_goes_down_from_the_cursor() -> None:
    run = Steps(find(SQL, "", JobFilter(), limit=2, after=C, newest_first=True))

    statement = run.answer("find_jobs_newest", [job_row(B), job_row(A)])

    assert (statement.parameters["after"], statement.parameters["before"]) == (None, C)
    assert [job.id for job in run.result] == [B, A]


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_of_several_shards_are_merged(*, newest_first: bool) -> None:
    ids = sorted(spread(), reverse=newest_first)
    run = Steps(find(SHARDED, "", JobFilter(), limit=10, newest_first=newest_first))

    for shard in range(4):
        statement = run.answer(
            "find_jobs_newest" if newest_first else "find_jobs",
            [job_row(job_id) for job_id in ids if shard_of(job_id, 4) == shard],
        )
        assert statement.parameters["shard"] == shard

    assert [job.id for job in run.result] == ids[:10]
    assert run.result.next == ids[9]


@pytest.mark.parametrize("limit", [0, 10_001, True, 1.5])
def test_a_page_has_a_size(limit: Any) -> None:
    with pytest.raises(InvalidInput, match="limit must be a whole number from 1 to 10000"):
        Steps(find(SQL, "", JobFilter(), limit=limit))


def test_a_cursor_is_an_id() -> None:
    with pytest.raises(InvalidInput) as caught:
        Steps(find(SQL, "", JobFilter(), limit=1, after="7"))

    assert caught.value.field == "after"


# --- delete ---------------------------------------------------------------------------------------


def test_a_delete_frees_the_keys_and_stores_what_waited() -> None:
    waiting = prepare(NewJob("email", unique_key="k"), "", now=NOW).request
    text = msgspec.json.encode(waiting).decode()
    run = Steps(delete(SQL, "", [B, A, C]))

    rows = [
        locked_row(A, next=text),
        locked_row(B, state=DEAD, stripped=True),
    ]
    lock = run.answer("lock_deliveries", rows)
    gone = [run.answer(name) for name in ("delete_jobs", "delete_duplicates", "delete_tallies")]
    insert = run.answer("insert_jobs", [])

    assert lock.rows == [(0, A), (0, B), (0, C)]
    assert [one.rows for one in gone] == [[(0, A), (0, B)]] * 3
    assert insert.rows == [msgspec.structs.astuple(waiting)]
    # Another tenant's is not even locked. A tombstone goes too, and its key with it.
    assert run.result == {A, B}


def test_a_delete_of_nothing_deletes_nothing() -> None:
    run = Steps(delete(SQL, "", [A]))

    run.answer("lock_deliveries")

    assert run.result == set()


def test_deletes_go_shard_by_shard() -> None:
    ids = spread()
    run = Steps(delete(SHARDED, "", ids))

    for shard in range(4):
        here = on(shard, ids)
        assert run.answer("lock_deliveries", [locked_row(i) for i in here]).rows == [
            (shard, i) for i in here
        ]
        for name in ("delete_jobs", "delete_duplicates", "delete_tallies"):
            assert run.answer(name).rows == [(shard, i) for i in here]

    assert run.result == set(ids)


def test_of_jobs_that_were_seen_those_go_that_stand_as_they_did() -> None:
    seen = {
        job_id: Job.from_row(job_row(job_id, state_number=DEAD, fence=3, ended_at_micros=NOW))
        for job_id in (A, B, C)
    }
    run = Steps(delete(SQL, "", [A, B, C], seen=seen))

    rows = [
        locked_row(A, state=DEAD, fence=3, ended_at=NOW),
        locked_row(B, state=QUEUED, fence=3),
        locked_row(C, state=DEAD, fence=4, ended_at=NOW),
    ]
    run.answer("lock_deliveries", rows)

    assert run.answer("delete_jobs", [(A, "")]).rows == [(0, A)]
    for name in ("delete_duplicates", "delete_tallies", "delete_attempts", "find_job_claims"):
        run.answer(name)
    assert run.result == {A}


# --- replay ---------------------------------------------------------------------------------------


def moves(statement: Any) -> list[dict[str, Any]]:
    return [dict(zip(MOVE_COLUMNS, row, strict=True)) for row in statement.rows]


@pytest.mark.parametrize("state", [DEAD, CANCELLED])
def test_an_ended_job_without_a_key_goes_round_again(state: int) -> None:
    run = Steps(replay(SQL, "acme", [A]))

    look = run.answer("find_replayable", [replayable_row(A, state=state)])
    run.answer("lock_deliveries", [locked_row(A, state=state, attempt=8, vanished=5)])
    (row,) = moves(run.answer("move_jobs"))

    assert not row["reserved"]
    assert (look.rows, look.parameters) == ([(0, A)], {"tenant": "acme"})
    assert (row["state"], row["attempt"], row["vanished"]) == (QUEUED, 0, 0)
    assert (row["run_at"], row["replayed"], row["generations"]) == (NOW, True, 0)
    assert (row["ended_at"], row["keep_until"]) == (None, None)
    assert run.result == [Enqueued(A)]


def test_a_fresh_replay_starts_a_new_generation() -> None:
    run = Steps(replay(SQL, "", [A], fresh=True))

    run.answer("find_replayable", [replayable_row(A, state=COMPLETED)])
    run.answer("lock_deliveries", [locked_row(A, state=COMPLETED)])
    (row,) = moves(run.answer("move_jobs"))

    assert row["generations"] == 1
    assert run.result == [Enqueued(A)]


def test_the_delivery_that_completed_a_job_is_remembered_when_it_is_replayed() -> None:
    run = Steps(replay(SQL, "", [A], fresh=True))

    run.answer("find_replayable", [replayable_row(A, state=COMPLETED)])
    run.answer("lock_deliveries", [locked_row(A, state=COMPLETED, ended_at=NOW - 1)])
    run.answer("move_jobs")
    noted = run.answer("insert_attempts")

    assert [row[4:8] for row in noted.rows] == [("completed", "worker", NOW, NOW - 1)]
    assert run.result == [Enqueued(A)]


def test_a_replay_wakes_the_workers_of_the_queue() -> None:
    run = Steps(replay(Sql("postgres"), "", [A]))

    run.answer("find_replayable", [replayable_row(A)])
    run.answer("lock_deliveries", [locked_row(A, state=DEAD, queue="mail")])
    run.answer("move_jobs")

    assert run.answer("notify").rows == [("mail",)]
    assert run.result == [Enqueued(A)]


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([], JobNotFound),
        ([replayable_row(A, stripped=True)], Gone),
        ([replayable_row(A, state=COMPLETED)], WrongState),
    ],
    ids=["gone", "a tombstone", "completed"],
)
def test_a_job_that_cannot_be_replayed_is_refused(
    rows: list[tuple[Any, ...]], error: type[Exception]
) -> None:
    run = Steps(replay(SQL, "", [A]))

    with pytest.raises(error):
        run.answer("find_replayable", rows)


def test_in_bulk_what_cannot_be_replayed_is_left_out() -> None:
    run = Steps(replay(SQL, "", [A, B, C], strict=False))

    run.answer(
        "find_replayable", [replayable_row(A, stripped=True), replayable_row(B, state=COMPLETED)]
    )

    assert run.result == []


@pytest.mark.parametrize(("state", "word"), [(QUEUED, "ready"), (RUNNING, "running")])
def test_a_job_that_has_not_ended_is_its_own_duplicate(state: int, word: Any) -> None:
    run = Steps(replay(SQL, "", [A]))

    run.answer("find_replayable", [replayable_row(A, state=state)])

    assert run.result == [Enqueued(A, duplicate=True, state=word)]


KEYED = {"unique_kind": "email", "unique_key": "k", "unique_states": 3}


def test_a_key_is_reserved_by_a_placeholder_that_nobody_sees() -> None:
    run = Steps(replay(SQL, "", [A]))

    run.answer("find_replayable", [replayable_row(A, **KEYED)])
    insert = run.asks("insert_jobs")
    placeholder = dict(zip(INSERT_COLUMNS, insert.rows[0], strict=True))
    run.answer("insert_jobs", [(placeholder["id"],)])
    removed = run.answer("delete_jobs")
    run.answer("lock_deliveries", [locked_row(A, state=DEAD)])
    (row,) = moves(run.answer("move_jobs"))

    assert row["reserved"]
    assert (placeholder["unique_kind"], placeholder["unique_key"]) == ("email", "k")
    assert placeholder["delay"] > 0
    assert hash_of(placeholder["id"]) == hash_of(A)
    assert removed.rows == [(0, placeholder["id"])]
    assert run.result == [Enqueued(A)]


def test_a_job_whose_key_a_newer_one_holds_stays_where_it_is() -> None:
    run = Steps(replay(SQL, "", [A]))

    run.answer("find_replayable", [replayable_row(A, **KEYED)])
    insert = run.answer("insert_jobs", [])
    run.answer("find_holders", [(insert.rows[0][0], B, RUNNING, None, NOW, 0, 0, NOW, None)])

    assert run.result == [Enqueued(B, duplicate=True, state="running")]


def test_of_two_ended_jobs_with_one_key_the_first_named_is_replayed() -> None:
    run = Steps(replay(SQL, "", [B, A]))

    run.answer("find_replayable", [replayable_row(A, **KEYED), replayable_row(B, **KEYED)])
    (placeholder,) = run.asks("insert_jobs").rows
    run.answer("insert_jobs", [(placeholder[0],)])
    run.answer("delete_jobs")
    lock = run.answer("lock_deliveries", [locked_row(B, state=DEAD)])
    run.answer("move_jobs")

    assert lock.rows == [(0, B)]
    assert run.result == [Enqueued(B), Enqueued(B, duplicate=True)]


WINDOW_OVER = {**KEYED, "unique_states": 0, "unique_until": NOW, "yielded": True}


def test_windows_that_are_over_pass_the_key_on_in_one_go() -> None:
    ids = sorted(new_id() for _ in range(500))
    run = Steps(replay(SQL, "", ids))

    run.answer("find_replayable", [replayable_row(i, **WINDOW_OVER) for i in ids])
    (placeholder,) = run.asks("insert_jobs").rows
    run.answer("insert_jobs", [(placeholder[0],)])
    run.answer("delete_jobs")
    run.answer("lock_deliveries", [locked_row(i, state=DEAD) for i in ids])
    rows = moves(run.answer("move_jobs"))

    assert [row["id"] for row in rows if row["reserved"]] == ids[-1:]
    assert run.result == [Enqueued(i) for i in ids]


def test_a_job_that_holds_its_key_answers_for_its_rivals() -> None:
    """Those before it find it dead, those after it queued again."""
    run = Steps(replay(SQL, "", [A, B, C]))

    run.answer(
        "find_replayable",
        [replayable_row(i, **KEYED) for i in (A, C)]
        + [replayable_row(B, **KEYED, unique_until=NOW + 1)],
    )
    insert = run.answer("insert_jobs", [])
    run.answer("find_holders", [(insert.rows[0][0], B, DEAD, None, NOW, 0, 0, NOW, None)])
    run.answer("lock_deliveries", [locked_row(B, state=DEAD)])
    (row,) = moves(run.answer("move_jobs"))

    assert not row["reserved"], "it has the key already"
    assert run.result == [
        Enqueued(B, duplicate=True, state="dead"),
        Enqueued(B),
        Enqueued(B, duplicate=True, state="ready"),
    ]


def test_rivals_of_a_job_that_was_deleted_meanwhile_are_left_out() -> None:
    run = Steps(replay(SQL, "", [A, B], strict=False))

    run.answer("find_replayable", [replayable_row(i, **KEYED) for i in (A, B)])
    (placeholder,) = run.asks("insert_jobs").rows
    run.answer("insert_jobs", [(placeholder[0],)])
    run.answer("delete_jobs")
    run.answer("lock_deliveries", [])

    assert run.result == []


def test_a_job_that_somebody_replayed_meanwhile_is_its_own_duplicate() -> None:
    run = Steps(replay(SQL, "", [A]))

    run.answer("find_replayable", [replayable_row(A)])
    run.answer("lock_deliveries", [locked_row(A, state=RUNNING)])

    assert run.result == [Enqueued(A, duplicate=True, state="running")]


@pytest.mark.parametrize(
    "rows", [[], [locked_row(A, state=DEAD, stripped=True)]], ids=["deleted", "stripped"]
)
def test_a_job_that_was_pruned_meanwhile_is_not_found(rows: list[tuple[Any, ...]]) -> None:
    strict = Steps(replay(SQL, "", [A]))
    strict.answer("find_replayable", [replayable_row(A)])
    with pytest.raises(JobNotFound):
        strict.answer("lock_deliveries", rows)

    bulk = Steps(replay(SQL, "", [A], strict=False))
    bulk.answer("find_replayable", [replayable_row(A)])
    bulk.answer("lock_deliveries", rows)
    assert bulk.result == []


def test_replays_ask_for_keys_and_rows_in_lock_order() -> None:
    ids = spread()
    keys = {job_id: f"k{number * 7 % 24}" for number, job_id in enumerate(ids)}
    run = Steps(replay(SHARDED, "", ids))

    for shard in range(4):
        here = on(shard, ids)
        rows = [replayable_row(i, **{**KEYED, "shard": shard, "unique_key": keys[i]}) for i in here]
        assert run.answer("find_replayable", rows).rows == [(shard, i) for i in here]
    for shard in range(4):
        insert = run.asks("insert_jobs")
        stored = [dict(zip(INSERT_COLUMNS, row, strict=True)) for row in insert.rows]
        assert {row["shard"] for row in stored} == {shard}
        assert [row["unique_key"] for row in stored] == sorted(row["unique_key"] for row in stored)
        run.answer("insert_jobs", [(row["id"],) for row in stored])
    for shard in range(4):
        removed = run.answer("delete_jobs").rows
        assert list(removed) == sorted(removed)
        assert {row[0] for row in removed} == {shard}
    for shard in range(4):
        here = on(shard, ids)
        lock = run.answer("lock_deliveries", [locked_row(i, state=DEAD) for i in here])
        assert lock.rows == [(shard, i) for i in here]
        run.answer("move_jobs")

    assert run.result == [Enqueued(job_id) for job_id in ids]


# --- duplicates -----------------------------------------------------------------------------------


def test_duplicates_are_counted_from_what_is_folded_and_what_is_not() -> None:
    run = Steps(duplicates(SQL, "", A))

    run.answer("find_replayable", [replayable_row(A)])
    folded = f'[[{NOW + 2},"r-2"],[{NOW},null]]'
    statement = run.answer(
        "read_duplicates",
        [(5, NOW, NOW + 2, folded, None), (1, NOW + 3, NOW + 3, None, "r-3")],
    )

    assert statement.parameters == {"shard": 0, "id": A}
    assert run.result == Duplicates(
        count=6,
        first_at=AT,
        last_at=from_micros(NOW + 3),
        recent=(
            Suppressed(from_micros(NOW + 3), "r-3"),
            Suppressed(from_micros(NOW + 2), "r-2"),
            Suppressed(AT, None),
        ),
    )


def test_the_last_duplicates_are_bounded() -> None:
    run = Steps(duplicates(SQL, "", A))

    run.answer("find_replayable", [replayable_row(A)])
    run.answer("read_duplicates", [(1, NOW + n, NOW + n, None, str(n)) for n in range(30)])

    assert run.result.count == 30
    assert [note.request_id for note in run.result.recent] == [
        str(n) for n in range(29, 29 - RECENT_DUPLICATES, -1)
    ]


def test_a_job_that_suppressed_nothing_says_so() -> None:
    run = Steps(duplicates(SQL, "", A))

    run.answer("find_replayable", [replayable_row(A)])
    run.answer("read_duplicates")

    assert run.result == Duplicates(0, None, None, ())


def test_a_job_that_is_not_there_has_no_duplicates() -> None:
    run = Steps(duplicates(SQL, "", A))

    with pytest.raises(JobNotFound):
        run.answer("find_replayable")
