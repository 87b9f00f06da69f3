"""Enqueue, stepped by hand: which statements it asks for, and what it makes of the answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onefold import (
    AlreadyEnqueued,
    ConflictingOptions,
    DatabaseBusy,
    Enqueued,
    InvalidInput,
    KeyReused,
    NewJob,
)
from onefold.model.ids import new_id, shard_of
from onefold.model.new_job import INSERT_COLUMNS, NewJobRow, Prepared, prepare
from onefold.operations import unique_keys
from onefold.operations.enqueue import KEEP_HOLDER, DuplicatePolicy, enqueue, policy, publish
from onefold.operations.on_duplicate import REPLACE_COLUMNS, LockedHolder
from onefold.operations.statement import Sql, Statement
from onefold.operations.unique_keys import Restart, chunks_by_shard, insert_successors, lock_order
from tests.fixtures.steps import Steps

NOW = 1_772_366_400_000_000
SECOND = 1_000_000
# Where one statement cannot insert or find.
SQL = Sql("postgres", distributed=True, notifies=False)
SHARDED = Sql("postgres", shards=4, distributed=True, notifies=False)
AT_ONCE = Sql("postgres")
OURS = Sql("postgres", restarts=True)
AGAIN = Sql("postgres", restarts=True, resends=True)
HOLDER = new_id()
NOTIFIED = (None,) * 9
"""The last row of store_keyed_jobs."""
QUEUED, RUNNING, COMPLETED = 0, 1, 2


def new(key: str | None = None, **options: Any) -> Prepared:
    return prepare(NewJob("email", unique_key=key, **options), "", now=NOW)


def steps(items: list[Prepared], sql: Sql = SQL, **options: Any) -> Steps[list[Enqueued]]:
    return Steps(enqueue(sql, items, policy(**options)))


def inserted(*items: Prepared) -> list[tuple[str]]:
    return [(item.request.id,) for item in items]


def held(
    item: Prepared,
    holder: str = HOLDER,
    *,
    state: int = QUEUED,
    fingerprint: str | None = None,
    lapsed: bool = False,
) -> tuple[Any, ...]:
    """A row of find_holders; by default the holder has the same payload."""
    stored = item.request.fingerprint if fingerprint is None else fingerprint
    return (item.request.id, holder, state, stored, NOW, lapsed, 0, NOW, None)


def locked(holder: str = HOLDER, state: int = QUEUED, **fields: Any) -> tuple[Any, ...]:
    """A row of lock_holders."""
    row: dict[str, Any] = {
        "run_at": NOW, "not_before": None, "created_at": NOW - SECOND, "unique_states": 3,
        "unique_until": None, "holds": True, "attempt": 0, "awaits": None, **fields
    }  # fmt: skip
    return msgspec.structs.astuple(LockedHolder(holder, state, now=NOW, **row))


def job_state(job_id: str, state: int) -> tuple[Any, ...]:
    """A row of job_states."""
    return (job_id, state, 0, NOW, None, NOW)


def column(statement: Statement, name: str) -> list[Any]:
    place = statement.columns.index(name)
    return [row[place] for row in statement.rows]


# --- the options of a call ------------------------------------------------------------------------


def test_the_options_of_a_call_are_checked() -> None:
    assert policy() == DuplicatePolicy("keep", "flag", None)
    assert policy("replace", max_wait=timedelta(seconds=1)) == DuplicatePolicy(
        "replace", "flag", SECOND
    )


@pytest.mark.parametrize(
    ("options", "kind", "field"),
    [
        ({"on_duplicate": "drop"}, InvalidInput, "on_duplicate"),
        ({"on_mismatch": "drop"}, InvalidInput, "on_mismatch"),
        ({"on_duplicate": "rerun", "on_mismatch": "raise"}, ConflictingOptions, "on_mismatch"),
        ({"on_duplicate": "replace", "on_mismatch": "raise"}, ConflictingOptions, "on_mismatch"),
        ({"max_wait": timedelta(seconds=1)}, ConflictingOptions, "max_wait"),
        ({"on_duplicate": "replace", "max_wait": timedelta(-1)}, InvalidInput, "max_wait"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: dict[str, Any], kind: type[InvalidInput], field: str
) -> None:
    with pytest.raises(kind) as caught:
        policy(**options)

    assert caught.value.field == field


# --- inserting and finding ------------------------------------------------------------------------


def test_a_new_job_is_one_statement() -> None:
    item = new("k")
    run = steps([item])

    statement = run.answer("insert_jobs", inserted(item))

    assert statement.columns == INSERT_COLUMNS
    assert statement.rows == [msgspec.structs.astuple(item.request)]
    assert run.result == [Enqueued(item.request.id)]


def test_a_held_key_is_answered_with_its_holder_and_noted() -> None:
    item = new("k", request_id="r-1")
    run = steps([item])

    run.answer("insert_jobs", [])
    find = run.answer("find_holders", [held(item, state=RUNNING)])
    note = run.answer("log_duplicates")

    assert find.rows == [(item.request.id, 0, "", "email", "k")]
    assert note.rows == [(0, HOLDER, None, "r-1")]
    assert run.result == [Enqueued(HOLDER, duplicate=True, state="running")]


def found(
    holder: str = HOLDER, *, state: int = QUEUED, fingerprint: str | None = None, lapsed: int = 0
) -> tuple[Any, ...]:
    """A row of enqueue_one."""
    return (holder, state, fingerprint, NOW, lapsed, 0, NOW, None)


def test_one_statement_inserts_a_keyed_job() -> None:
    item = new("k")
    run = steps([item], AT_ONCE)

    statement = run.answer("enqueue_one", [found(item.request.id)])

    assert statement.rows == [msgspec.structs.astuple(item.request)]
    assert (statement.alone, statement.waits) == (True, False)
    assert run.result == [Enqueued(item.request.id)]


def test_one_statement_finds_the_holder() -> None:
    item = new("k", request_id="r-1")
    run = steps([item], AT_ONCE)

    run.answer("enqueue_one", [found(state=RUNNING, fingerprint=item.request.fingerprint)])
    note = run.answer("log_duplicates")

    assert note.rows == [(0, HOLDER, None, "r-1")]
    assert run.result == [Enqueued(HOLDER, duplicate=True, state="running")]


@pytest.mark.parametrize(
    ("options", "kind"),
    [({"on_duplicate": "raise"}, AlreadyEnqueued), ({"on_mismatch": "raise"}, KeyReused)],
)
def test_a_holder_that_is_found_at_once_leaves_nothing_to_take_back(
    options: dict[str, Any], kind: type[Exception]
) -> None:
    run = steps([new("k")], AT_ONCE, **options)

    with pytest.raises(kind):
        run.answer("enqueue_one", [found(fingerprint="other")])


def test_what_one_statement_does_not_see_is_tried_twice() -> None:
    item = new("k")
    run = steps([item], AT_ONCE)

    run.answer("enqueue_one", [])
    run.answer("enqueue_one", [])
    run.answer("find_holders", [held(item)])
    run.answer("log_duplicates")

    assert run.result[0].id == HOLDER


@pytest.mark.parametrize("lapsed", [1, 2])
def test_a_lapsed_holder_is_left_to_the_general_way(lapsed: int) -> None:
    run = steps([new("k")], AT_ONCE)

    run.answer("enqueue_one", [found(lapsed=lapsed)])

    run.asks("find_holders")


@pytest.mark.parametrize("on_duplicate", ["replace", "rerun"])
def test_a_holder_to_be_changed_is_locked_at_once(on_duplicate: str) -> None:
    run = steps([new("k")], AT_ONCE, on_duplicate=on_duplicate)

    run.answer("enqueue_one", [found()])

    assert column(run.asks("lock_holders"), "id") == [HOLDER]


def test_after_a_lost_response_the_job_itself_is_looked_for() -> None:
    item = new("k")
    run = steps([item], Sql("postgres", restarts=True, resends=True))

    run.answer("insert_jobs", [])
    find = run.asks("find_holders")

    assert find.parameters["resent"] is True


def test_on_citus_the_notification_is_apart() -> None:
    item = new("k")
    run = steps([item], Sql("postgres", distributed=True))

    run.answer("insert_jobs", inserted(item))
    bell = run.answer("notify")

    assert column(bell, "queue") == ["default"]
    assert run.result == [Enqueued(item.request.id)]


def test_another_payload_is_flagged() -> None:
    item = new("k")
    run = steps([item])

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item, fingerprint="other")])
    run.answer("log_duplicates")

    assert run.result == [Enqueued(HOLDER, duplicate=True, mismatch=True)]


def test_a_job_whose_answer_was_lost_finds_itself_and_is_no_duplicate() -> None:
    item = new("k")
    run = steps([item])

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item, item.request.id, state=COMPLETED, lapsed=True)])

    assert run.result == [Enqueued(item.request.id, state="completed")]


def test_a_holder_whose_window_is_over_is_released_and_the_insert_tried_again() -> None:
    item = new("k")
    run = steps([item])

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item, lapsed=True)])
    release = run.answer("release_holders")
    run.answer("insert_jobs", inserted(item))

    assert release.rows == [(0, HOLDER)]
    assert release.parameters == {"at": NOW}
    assert run.result == [Enqueued(item.request.id)]


def test_a_holder_that_ended_between_insert_and_look_means_one_more_round() -> None:
    item = new("k")
    run = steps([item])

    run.answer("insert_jobs", [])
    run.answer("find_holders", [])
    run.answer("insert_jobs", inserted(item))

    assert run.result == [Enqueued(item.request.id)]


def test_a_key_that_keeps_changing_hands_is_given_up_after_eight_rounds() -> None:
    run = steps([new("k")])

    for _ in range(7):
        run.answer("insert_jobs", [])
        run.answer("find_holders", [])
    run.answer("insert_jobs", [])
    run.answer("find_holders", [])
    with pytest.raises(DatabaseBusy, match="the key 'k' changed hands 8 times while we looked"):
        run.answer("delete_jobs")


def test_only_what_has_no_job_yet_goes_round_again() -> None:
    first, second, third = new("a"), new("b"), new("c")
    run = steps([first, second, third])

    run.answer("insert_jobs", inserted(second))
    find = run.answer("find_holders", [held(third)])
    again = run.answer("insert_jobs", inserted(first))
    run.answer("log_duplicates")

    assert column(find, "unique_key") == ["a", "c"]
    assert column(again, "unique_key") == ["a"]
    assert [answer.id for answer in run.result] == [first.request.id, second.request.id, HOLDER]


# --- batches --------------------------------------------------------------------------------------


def test_keys_are_asked_for_in_one_order_and_answers_come_in_the_order_of_the_request() -> None:
    items = [new("b"), new(), new("a", across_kinds=True), new("a"), new()]
    run = steps(items)

    statement = run.answer("insert_jobs", inserted(*items))

    keys_asked = list(
        zip(column(statement, "unique_kind"), column(statement, "unique_key"), strict=True)
    )
    assert keys_asked == [(None, None), (None, None), ("", "a"), ("email", "a"), ("email", "b")]
    assert column(statement, "id")[:2] == [items[1].request.id, items[4].request.id]
    assert [answer.id for answer in run.result] == [item.request.id for item in items]


def test_a_duplicate_inside_a_batch_is_answered_with_the_first_items_job() -> None:
    first, second = new("k", payload={"a": 1}), new("k", payload={"a": 2})
    run = steps([first, second])

    statement = run.answer("insert_jobs", inserted(first))
    run.answer("log_duplicates")

    assert column(statement, "id") == [first.request.id]
    assert run.result == [
        Enqueued(first.request.id),
        Enqueued(first.request.id, duplicate=True, mismatch=True),
    ]


def test_two_items_that_meet_one_holder_are_compared_with_it_each() -> None:
    first, second = new("k", payload={"a": 1}), new("k", payload={"a": 2})
    run = steps([first, second])

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(first, fingerprint=second.request.fingerprint)])
    note = run.answer("log_duplicates")

    assert [answer.mismatch for answer in run.result] == [True, False]
    assert len(note.rows) == 2


def test_our_own_batch_is_one_statement_that_stores_or_finds() -> None:
    items = [new("b"), new("a"), new(), new("b")]
    run = Steps(enqueue(OURS, items, policy(), notes=False))

    asked = run.answer(
        "store_keyed_jobs", [(3, HOLDER, RUNNING, "other", NOW, 0, 1, NOW, None), NOTIFIED]
    )

    assert column(asked, "unique_key") == [None, "a", "b"]
    assert not asked.alone
    assert run.result == [
        Enqueued(HOLDER, duplicate=True, state="running", mismatch=True),
        Enqueued(items[1].request.id),
        Enqueued(items[2].request.id),
        Enqueued(HOLDER, duplicate=True, state="running", mismatch=True),
    ]


def test_our_own_batch_on_several_shards_is_inserted_first() -> None:
    """Citus does not route a statement that looks and inserts."""
    items = [new(f"key {number}") for number in range(20)]
    run = Steps(enqueue(Sql("postgres", shards=4, restarts=True), items, policy()))

    run.asks("insert_jobs")


def test_on_several_shards_a_batch_is_a_statement_per_shard_in_shard_order() -> None:
    items = [new(f"k{number}") for number in range(24)]
    run = steps(items, SHARDED)
    holders: list[str] = []

    asked = [run.answer("insert_jobs", []) for _ in range(4)]
    for statement in asked:
        find = run.asks("find_holders")
        rows = [
            (job_id, new_id(), QUEUED, None, NOW, False, 0, NOW, None)
            for job_id in column(find, "id")
        ]
        holders += [row[1] for row in rows]
        run.answer("find_holders", rows)
        assert column(find, "id") == column(statement, "id")
    notes = [run.answer("log_duplicates") for _ in {shard_of(i, 4) for i in holders}]

    assert [set(column(statement, "shard")) for statement in asked] == [{0}, {1}, {2}, {3}]
    for statement in asked:
        assert column(statement, "unique_key") == sorted(column(statement, "unique_key"))
        assert [shard_of(i, 4) for i in column(statement, "id")] == column(statement, "shard")
    shards = [set(column(note, "shard")) for note in notes]
    assert shards == [{shard} for shard in sorted({shard_of(i, 4) for i in holders})]
    assert len(run.result) == 24


def test_a_lapsed_holder_is_released_on_its_own_shard() -> None:
    item = new("k")
    shard = shard_of(item.request.id, 4)
    run = steps([item], SHARDED)

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item, lapsed=True)])

    assert run.answer("release_holders").rows == [(shard, HOLDER)]


def test_a_large_batch_is_cut_into_statements_of_a_bounded_size() -> None:
    items = [new(f"k{number:05}") for number in range(unique_keys.CHUNK + 1)]
    run = steps(items)

    first = run.answer("insert_jobs", inserted(*items[: unique_keys.CHUNK]))
    second = run.answer("insert_jobs", inserted(items[-1]))

    assert (len(first.rows), len(second.rows)) == (2000, 1)
    assert len(run.result) == unique_keys.CHUNK + 1


def test_chunks_end_where_a_shard_ends_or_a_statement_is_full() -> None:
    def on(shard: int, count: int) -> list[NewJobRow]:
        return [msgspec.structs.replace(new().request, shard=shard)] * count

    requests = [*on(0, 1), *on(1, 2 * unique_keys.CHUNK), *on(3, 2)]

    assert [(chunk[0].shard, len(chunk)) for chunk in chunks_by_shard(requests)] == [
        (0, 1),
        (1, unique_keys.CHUNK),
        (1, unique_keys.CHUNK),
        (3, 2),
    ]
    assert list(chunks_by_shard([])) == []


# --- raise ----------------------------------------------------------------------------------------


def test_a_duplicate_that_is_to_be_raised_takes_everything_back_first() -> None:
    first, second = new("a"), new("b")
    run = steps([first, second], on_duplicate="raise")

    run.answer("insert_jobs", inserted(first))
    run.answer("find_holders", [held(second, state=RUNNING)])
    taken_back = run.asks("delete_jobs")
    with pytest.raises(AlreadyEnqueued) as caught:
        run.answer("delete_jobs")

    assert taken_back.rows == [(0, first.request.id), (0, second.request.id)]
    assert (caught.value.item, caught.value.holder_id, caught.value.key) == (1, HOLDER, "b")
    assert caught.value.evidence["state"] == "running"


def test_a_duplicate_inside_the_batch_is_raised_too() -> None:
    first, second = new("k"), new("k")
    run = steps([first, second], on_duplicate="raise")

    run.answer("insert_jobs", inserted(first))
    with pytest.raises(AlreadyEnqueued, match="item 1: the key 'k' is held by job"):
        run.answer("delete_jobs")


def test_a_mismatch_that_is_to_be_raised_takes_everything_back_first() -> None:
    item = new("k")
    run = steps([item], on_mismatch="raise")

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item, fingerprint="other")])
    with pytest.raises(KeyReused) as caught:
        run.answer("delete_jobs")

    assert (caught.value.key, caught.value.evidence["item"]) == ("k", 0)


def test_a_call_that_raises_forgets_its_publish_keys() -> None:
    item = new("k", idempotency_key="p")
    run = steps([item], on_duplicate="raise")

    run.answer("insert_claims", [(item.request.id, 1, None)])
    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item)])
    run.answer("delete_jobs")
    forgotten = run.asks("delete_claims")
    with pytest.raises(AlreadyEnqueued):
        run.answer("delete_claims")

    assert forgotten.rows == [(0, "", "publish", "default", "p", item.request.id)]


# --- replace --------------------------------------------------------------------------------------


def test_a_queued_holder_takes_the_newcomers_request() -> None:
    item = new("k", payload={"a": 2}, priority=3, delay=timedelta(seconds=5))
    run = steps([item], on_duplicate="replace")

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item, fingerprint="other")])
    lock = run.answer("lock_holders", [locked()])
    replace = run.answer("replace_jobs")
    run.answer("log_duplicates")

    assert lock.rows == [(0, HOLDER)]
    assert replace.columns == REPLACE_COLUMNS
    assert replace.rows == [
        (0, HOLDER, "email", '{"a":2}', item.request.fingerprint, 3, NOW + 5 * SECOND)
    ]
    assert run.result == [Enqueued(HOLDER, duplicate=True, state="scheduled", replaced=True)]


def test_a_debounce_is_bounded_from_the_holders_first_enqueue() -> None:
    item = new("k", delay=timedelta(seconds=60))
    run = steps([item], on_duplicate="replace", max_wait=timedelta(seconds=10))

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item)])
    run.answer("lock_holders", [locked()])
    replace = run.asks("replace_jobs")

    assert column(replace, "run_at") == [NOW - SECOND + 10 * SECOND]


def test_a_retrying_holder_keeps_its_backoff() -> None:
    item = new("k", run_at=datetime(2026, 3, 1, 12, tzinfo=UTC))
    run = steps([item], on_duplicate="replace")

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item)])
    run.answer("lock_holders", [locked(not_before=NOW + 30 * SECOND)])

    assert column(run.asks("replace_jobs"), "run_at") == [NOW + 30 * SECOND]


@pytest.mark.parametrize("state", [RUNNING, COMPLETED])
def test_a_holder_that_is_not_queued_any_more_is_kept(state: int) -> None:
    item = new("k")
    run = steps([item], on_duplicate="replace")

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item, fingerprint="other")])
    run.answer("lock_holders", [locked(state=state)])
    run.answer("log_duplicates")

    assert run.result == [
        Enqueued(
            HOLDER,
            duplicate=True,
            state="running" if state == RUNNING else "completed",
            mismatch=True,
        )
    ]


def test_in_a_batch_the_newest_item_is_stored_under_the_first_ones_id() -> None:
    first, second = new("k", payload={"a": 1}), new("k", payload={"a": 2}, priority=2)
    run = steps([first, second], on_duplicate="replace")

    statement = run.answer("insert_jobs", inserted(first))
    run.answer("log_duplicates")

    assert column(statement, "id") == [first.request.id]
    assert column(statement, "payload") == ['{"a":2}']
    assert column(statement, "priority") == [2]
    assert run.result == [
        Enqueued(first.request.id),
        Enqueued(first.request.id, duplicate=True, replaced=True),
    ]


@pytest.mark.parametrize("rows", [[], [locked(holds=False)]], ids=["deleted", "given up"])
def test_a_holder_that_gave_its_key_up_before_it_was_locked_means_one_more_round(
    rows: list[Any],
) -> None:
    item = new("k")
    run = steps([item], on_duplicate="replace")

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item)])
    run.answer("lock_holders", rows)
    run.answer("insert_jobs", inserted(item))

    assert run.result == [Enqueued(item.request.id)]


def test_another_holder_may_have_come_meanwhile() -> None:
    item, other = new("k"), new_id()
    run = steps([item], on_duplicate="replace")

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item)])
    run.answer("lock_holders", [])
    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item, other)])
    run.answer("lock_holders", [locked(other)])
    run.answer("replace_jobs")
    run.answer("log_duplicates")

    assert run.result == [Enqueued(other, duplicate=True, replaced=True)]


def lose_holders(run: Steps[list[Enqueued]], item: Prepared, rounds: int) -> None:
    """Each time the holder is locked, it has given its key up, and another one has it."""
    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item)])
    for _ in range(rounds):
        run.answer("lock_holders", [])
        run.answer("insert_jobs", [])
        run.answer("find_holders", [held(item)])
    run.answer("lock_holders", [])


def test_holders_that_keep_changing_are_given_up_after_eight_rounds() -> None:
    item = new("k")
    run = steps([item], on_duplicate="replace")

    lose_holders(run, item, 7)
    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item)])
    with pytest.raises(DatabaseBusy, match="the key 'k' changed hands 8 times while we looked"):
        run.answer("delete_jobs")


def test_the_eighth_round_may_succeed() -> None:
    item = new("k")
    run = steps([item], on_duplicate="replace")

    lose_holders(run, item, 7)
    run.answer("insert_jobs", inserted(item))

    assert run.result == [Enqueued(item.request.id)]


def test_holders_are_locked_by_shard_and_id() -> None:
    items = [new(f"k{number}") for number in range(24)]
    run = steps(items, SHARDED, on_duplicate="replace")

    for _ in range(4):
        run.answer("insert_jobs", [])
    for _ in range(4):
        find = run.asks("find_holders")
        run.answer(
            "find_holders",
            [(i, new_id(), QUEUED, None, NOW, False, 0, NOW, None) for i in column(find, "id")],
        )
    locks: list[list[Any]] = []
    for _ in range(4):
        lock = run.asks("lock_holders")
        locks.append(list(lock.rows))
        run.answer("lock_holders", [locked(job_id) for _, job_id in lock.rows])
        run.answer("replace_jobs")
    for _ in {shard_of(job_id, 4) for rows in locks for _, job_id in rows}:
        run.answer("log_duplicates")

    assert [{shard for shard, _ in rows} for rows in locks] == [{0}, {1}, {2}, {3}]
    assert all(rows == sorted(rows) for rows in locks)
    assert all(answer.replaced for answer in run.result)


# --- rerun ----------------------------------------------------------------------------------------


def test_a_running_holder_gets_the_whole_request_as_its_successor() -> None:
    item = new("k", payload={"a": 2}, delay=timedelta(seconds=5), max_attempts=3)
    run = steps([item], on_duplicate="rerun")

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item, state=RUNNING, fingerprint="other")])
    run.answer("lock_holders", [locked(state=RUNNING)])
    successor = run.answer("set_successors")
    run.answer("log_duplicates")

    ((shard, holder, text),) = successor.rows
    stored = msgspec.json.decode(text, type=NewJobRow)
    assert (shard, holder) == (0, HOLDER)
    assert stored == msgspec.structs.replace(item.request, run_at=NOW + 5 * SECOND)
    # Its request is accepted, so it is no mismatch, though nothing was replaced.
    assert run.result == [Enqueued(HOLDER, duplicate=True, state="running")]


def test_the_newest_of_a_batch_waits_behind_a_running_holder_as_a_whole() -> None:
    first, second = new("k", queue="slow"), new("k", queue="fast", payload={"a": 2})
    run = steps([first, second], on_duplicate="rerun")

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(first, state=RUNNING)])
    run.answer("lock_holders", [locked(state=RUNNING)])
    ((_, _, text),) = run.asks("set_successors").rows

    stored = msgspec.json.decode(text, type=NewJobRow)
    assert (stored.queue, stored.payload) == ("fast", '{"a":2}')


def test_a_rerun_does_not_postpone_what_waits_already() -> None:
    item = new("k", delay=timedelta(seconds=60))
    run = steps([item], on_duplicate="rerun")

    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item)])
    run.answer("lock_holders", [locked(run_at=NOW + SECOND)])

    assert column(run.asks("replace_jobs"), "run_at") == [NOW + SECOND]


def test_successors_become_jobs_in_lock_order() -> None:
    requests = [new("b").request, new("a").request]
    run = Steps(insert_successors(SQL, [msgspec.json.encode(one).decode() for one in requests]))

    statement = run.answer("insert_jobs", [])

    assert column(statement, "unique_key") == ["a", "b"]
    assert run.result is None


# --- publish keys ---------------------------------------------------------------------------------


def claim(
    item: Prepared,
    job_id: str | None,
    *,
    place: int = 0,
    state: int = 1,
    expires_at: int | None = NOW + SECOND,
    fingerprint: str | None = None,
) -> tuple[Any, ...]:
    """A row of find_claims."""
    assert item.publish is not None
    stored = item.publish.fingerprint if fingerprint is None else fingerprint
    return (place, "c", "o", state, 7, stored, 0, None, expires_at, job_id, NOW)


def test_a_new_publish_key_is_recorded_before_the_job_is_stored() -> None:
    item = new(idempotency_key="p")
    run = steps([item])

    recorded = run.answer("insert_claims", [(item.request.id, 1, None)])
    run.answer("insert_jobs", inserted(item))

    assert column(recorded, "key") == ["p"]
    assert column(recorded, "scope") == ["default"]
    assert column(recorded, "result") == [item.request.id]
    assert column(recorded, "state") == [1]
    assert column(recorded, "keep") == [24 * 3600 * SECOND]
    assert column(recorded, "lock") == [None]
    assert run.result == [Enqueued(item.request.id)]


@pytest.mark.parametrize(
    ("states", "word"),
    [([job_state(HOLDER, RUNNING)], "running"), ([], None)],
    ids=["a job", "pruned"],
)
def test_a_known_publish_key_is_answered_with_its_job_whatever_became_of_it(
    states: list[Any], word: Any
) -> None:
    item = new(idempotency_key="p")
    run = steps([item])

    run.answer("insert_claims", [])
    run.answer("find_claims", [claim(item, HOLDER)])
    run.answer("job_states", states)
    if states:
        run.answer("log_duplicates")

    assert run.result == [Enqueued(HOLDER, duplicate=True, state=word)]


def test_a_publish_whose_answer_was_lost_is_no_duplicate() -> None:
    item = new(idempotency_key="p")
    run = steps([item])

    run.answer("insert_claims", [])
    run.answer("find_claims", [claim(item, item.request.id)])
    run.answer("job_states", [job_state(item.request.id, QUEUED)])

    assert run.result == [Enqueued(item.request.id)]


def test_another_request_under_a_publish_key_is_flagged_or_raised() -> None:
    item = new(idempotency_key="p")

    for how in ("flag", "raise"):
        run = steps([item], on_mismatch=how)
        run.answer("insert_claims", [])
        run.answer("find_claims", [claim(item, HOLDER, fingerprint="other")])
        if how == "flag":
            run.answer("job_states", [job_state(HOLDER, QUEUED)])
            run.answer("log_duplicates")
            assert run.result == [Enqueued(HOLDER, duplicate=True, mismatch=True)]
        else:
            run.answer("job_states", [job_state(HOLDER, QUEUED)])
            with pytest.raises(KeyReused) as caught:
                run.answer("delete_jobs")
            assert (caught.value.key, caught.value.evidence["holder_id"]) == ("p", HOLDER)


@pytest.mark.parametrize(
    ("stored", "states"),
    [
        ({"expires_at": NOW}, [job_state(HOLDER, COMPLETED)]),
        ({"expires_at": NOW}, []),
        ({"state": 2}, [job_state(HOLDER, RUNNING)]),
    ],
    ids=["expired and ended", "expired and pruned", "released by an operator"],
)
def test_a_publish_key_whose_time_is_over_is_taken_over(
    stored: dict[str, Any], states: list[Any]
) -> None:
    item = new(idempotency_key="p")
    run = steps([item])

    run.answer("insert_claims", [])
    run.answer("find_claims", [claim(item, HOLDER, **stored)])
    run.answer("job_states", states)
    taken = run.answer("take_over_claims", [(item.request.id, 8, None)])
    run.answer("insert_jobs", inserted(item))

    assert column(taken, "seen_fence") == [7]
    assert column(taken, "seen_owner") == ["o"]
    assert column(taken, "result") == [item.request.id]
    assert run.result == [Enqueued(item.request.id)]


def test_a_publish_key_without_a_job_is_taken_over() -> None:
    item = new(idempotency_key="p")
    run = steps([item])

    run.answer("insert_claims", [])
    run.answer("find_claims", [claim(item, None)])

    assert column(run.asks("take_over_claims"), "owner") == [item.request.id]


@pytest.mark.parametrize(
    ("expires_at", "state"),
    [(NOW, RUNNING), (NOW, QUEUED), (NOW + 1, COMPLETED), (None, COMPLETED)],
)
def test_a_publish_key_never_ends_before_its_time_or_its_job(
    expires_at: int | None, state: int
) -> None:
    item = new(idempotency_key="p")
    run = steps([item])

    run.answer("insert_claims", [])
    run.answer("find_claims", [claim(item, HOLDER, expires_at=expires_at)])
    run.answer("job_states", [job_state(HOLDER, state)])
    run.answer("log_duplicates")

    assert run.result[0].id == HOLDER


def test_a_publish_key_that_keeps_changing_hands_is_given_up() -> None:
    run = steps([new(idempotency_key="p")])
    gone = (0, *[None] * 9, NOW)

    for _ in range(7):
        run.answer("insert_claims", [])
        run.answer("find_claims", [gone])
    run.answer("insert_claims", [])
    run.answer("find_claims", [gone])
    with pytest.raises(DatabaseBusy, match="the publish key 'p' changed hands 8 times"):
        run.answer("delete_jobs")


def test_publish_keys_recorded_before_a_failure_are_taken_back() -> None:
    kept, lost = new(idempotency_key="a"), new(idempotency_key="b")
    run = steps([kept, lost])
    gone = (0, *[None] * 9, NOW)

    run.answer("insert_claims", [(kept.request.id, 1, None)])
    for _ in range(7):
        run.answer("find_claims", [gone])
        run.answer("insert_claims", [])
    run.answer("find_claims", [gone])
    run.answer("delete_jobs")
    assert [row[4] for row in run.asks("delete_claims").rows] == ["a"]
    with pytest.raises(DatabaseBusy):
        run.answer("delete_claims")


def test_a_lost_takeover_of_a_publish_key_means_one_more_round() -> None:
    item = new(idempotency_key="p")
    run = steps([item])

    run.answer("insert_claims", [])
    run.answer("find_claims", [claim(item, None)])
    run.answer("take_over_claims", [])
    run.answer("insert_claims", [(item.request.id, 1, None)])
    run.answer("insert_jobs", inserted(item))

    assert run.result == [Enqueued(item.request.id)]


def test_a_new_publish_key_stands_for_the_holder_of_a_held_unique_key() -> None:
    item = new("k", idempotency_key="p")
    run = steps([item])

    run.answer("insert_claims", [(item.request.id, 1, None)])
    run.answer("insert_jobs", [])
    run.answer("find_holders", [held(item)])
    pointed = run.answer("point_claims")
    run.answer("log_duplicates")

    assert pointed.rows == [(0, "", "publish", "default", "p", item.request.id, HOLDER)]
    assert run.result == [Enqueued(HOLDER, duplicate=True)]


def published(item: Prepared, *, sql: Sql = OURS) -> Steps[list[Enqueued]]:
    return Steps(publish(sql, [item], KEEP_HOLDER))


def test_a_publish_is_one_statement_that_commits_by_itself() -> None:
    item = new("u", idempotency_key="p")
    run = published(item)

    row = (item.request.id, False, False, None, None, None, None, 1)
    stored = run.answer("publish_job", [row])

    assert stored.alone
    assert not stored.waits

    assert run.result == [Enqueued(item.request.id)]


@pytest.mark.parametrize(("state", "word"), [(QUEUED, "ready"), (None, None)])
def test_a_known_publish_is_the_same_statement(state: int | None, word: Any) -> None:
    """Its job may have been deleted."""
    run = published(new(idempotency_key="p"))

    run.answer("publish_job", [(HOLDER, False, True, state, 0, NOW, None, NOW)])

    assert run.result == [Enqueued(HOLDER, duplicate=True, state=word, mismatch=True)]


@pytest.mark.parametrize("rows", [[], [(HOLDER, True, False, 2, 0, NOW, None, NOW)]])
def test_a_rival_or_a_key_that_is_over_takes_more_statements(rows: list[Any]) -> None:
    run = published(new(idempotency_key="p"))

    run.answer("publish_job", rows)

    run.asks("insert_claims")


def test_publishes_that_come_together_are_one_statement_too() -> None:
    first, known, over = items = [new(idempotency_key=key) for key in ("a", "b", "c")]
    run = Steps(publish(OURS, items, KEEP_HOLDER))

    asked = run.answer(
        "publish_jobs",
        [
            (known.request.id, HOLDER, False, False, COMPLETED, 1, NOW, None, NOW),
            (over.request.id, HOLDER, True, False, COMPLETED, 1, NOW, None, NOW),
            (first.request.id, first.request.id, False, False, None, None, None, None, None),
            NOTIFIED,
        ],
    )
    rest = run.answer("insert_claims", [(over.request.id, 1, None)])
    run.answer("insert_jobs", inserted(over))

    assert asked.alone
    assert column(rest, "key") == ["c"]
    assert run.result == [
        Enqueued(first.request.id),
        Enqueued(HOLDER, duplicate=True, state="completed"),
        Enqueued(over.request.id),
    ]


def test_publishes_that_are_all_answered_need_no_more() -> None:
    items = [new(idempotency_key=key) for key in ("a", "b")]
    run = Steps(publish(OURS, items, KEEP_HOLDER))

    rows = [(i.request.id, HOLDER, False, False, RUNNING, 1, NOW, None, NOW) for i in items]
    run.answer("publish_jobs", rows)

    assert run.result == [Enqueued(HOLDER, duplicate=True, state="running")] * 2


def test_publishes_with_unique_keys_that_come_together_take_more_statements() -> None:
    items = [new("u", idempotency_key="a"), new(idempotency_key="b")]

    Steps(publish(OURS, items, KEEP_HOLDER)).asks("insert_claims")


def test_a_publish_that_is_sent_again_looks_for_itself() -> None:
    published(new(idempotency_key="p"), sql=AGAIN).asks("insert_claims")


def test_the_same_publish_key_twice_in_a_batch_is_one_job() -> None:
    first, second = new(idempotency_key="p"), new(idempotency_key="p", payload={"a": 2})
    run = steps([first, second])

    recorded = run.answer("insert_claims", [(first.request.id, 1, None)])
    stored = run.answer("insert_jobs", inserted(first))
    run.answer("log_duplicates")

    assert (len(recorded.rows), len(stored.rows)) == (1, 1)
    assert run.result == [
        Enqueued(first.request.id),
        Enqueued(first.request.id, duplicate=True, mismatch=True),
    ]


def test_the_same_publish_key_twice_in_a_batch_that_is_known_already() -> None:
    first, second = new(idempotency_key="p"), new(idempotency_key="p")
    run = steps([first, second])

    run.answer("insert_claims", [])
    run.answer("find_claims", [claim(first, HOLDER)])
    run.answer("job_states", [job_state(HOLDER, COMPLETED)])
    run.answer("log_duplicates")

    assert run.result == [Enqueued(HOLDER, duplicate=True, state="completed")] * 2


def test_an_item_that_follows_by_its_publish_key_follows_through_a_unique_key() -> None:
    """First the unique key, then it and a publish key, then that publish key again."""
    first = new("k")
    second, third = new("k", idempotency_key="p"), new("other", idempotency_key="p")
    run = steps([first, second, third])

    run.answer("insert_claims", [(second.request.id, 1, None)])
    stored = run.answer("insert_jobs", inserted(first))
    pointed = run.answer("point_claims")
    run.answer("log_duplicates")

    assert column(stored, "id") == [first.request.id]
    assert column(pointed, "result") == [first.request.id]
    assert [answer.id for answer in run.result] == [first.request.id] * 3


def test_publish_keys_are_asked_for_by_shard_and_then_in_order() -> None:
    items = [new(idempotency_key=f"p{number}") for number in range(24)]
    run = steps(items, SHARDED)

    inserts = [run.answer("insert_claims", []) for _ in range(4)]
    finds: list[Statement] = []
    for statement in inserts:
        keys_here = column(statement, "key")
        owners = column(statement, "id")
        finds.append(
            run.answer(
                "find_claims",
                [
                    (place, "c", owners[place], 1, 7, None, 0, None, None, owners[place], NOW)
                    for place in range(len(keys_here))
                ],
            )
        )
        run.answer("job_states", [job_state(owner, QUEUED) for owner in owners])

    assert [set(column(one, "shard")) for one in inserts] == [{0}, {1}, {2}, {3}]
    assert all(column(one, "key") == sorted(column(one, "key")) for one in inserts)
    assert [column(one, "key") for one in finds] == [column(one, "key") for one in inserts]
    assert len(run.result) == 24


def test_publish_keys_are_forgotten_by_shard_and_then_in_order() -> None:
    items = [new("taken", idempotency_key="first")]
    items += [new(idempotency_key=f"p{number}") for number in range(24)]
    run = steps(items, SHARDED, on_duplicate="raise")
    by_key = {item.publish.key.key: item for item in items if item.publish}

    for _ in range(4):
        keys_here = column(run.asks("insert_claims"), "key")
        run.answer("insert_claims", [(by_key[key].request.id, 1, None) for key in keys_here])
    for _ in range(4):
        ids = column(run.asks("insert_jobs"), "id")
        run.answer("insert_jobs", [(i,) for i in ids if i != items[0].request.id])
    run.answer("find_holders", [held(items[0])])
    for _ in range(4):
        run.answer("delete_jobs")
    forgotten = [list(run.answer("delete_claims").rows) for _ in range(3)]
    forgotten.append(list(run.asks("delete_claims").rows))
    with pytest.raises(AlreadyEnqueued):
        run.answer("delete_claims")

    assert [{row[0] for row in rows} for rows in forgotten] == [{0}, {1}, {2}, {3}]
    assert all(rows == sorted(rows) for rows in forgotten)
    assert sum(map(len, forgotten)) == 25


def test_requests_sort_by_shard_and_key_and_without_a_key_as_they_came() -> None:
    one, two = new().request, new().request

    assert lock_order(one) < lock_order(two) < lock_order(new("a").request)
    assert lock_order(new("a").request) == lock_order(new("a").request)


# --- beginning anew -------------------------------------------------------------------------------


def test_our_own_transaction_begins_anew_rather_than_ask_for_keys_out_of_order() -> None:
    first, second = new("a"), new("b")
    run = Steps(enqueue(AGAIN, [first, second], policy()))

    run.answer("insert_jobs", [(second.request.id,)])

    with pytest.raises(Restart):
        run.answer("find_holders", [])


def test_a_single_request_asks_again_since_it_holds_nothing() -> None:
    item = new("a")
    run = Steps(enqueue(OURS, [item], policy()))

    run.answer("enqueue_one", [])
    run.answer("enqueue_one", [])
    run.answer("find_holders", [])
    run.answer("insert_jobs", [(item.request.id,)])

    assert run.result == [Enqueued(item.request.id)]


def test_a_window_that_is_over_is_no_reason_to_begin_anew() -> None:
    first, second = new("a"), new("b")
    run = Steps(enqueue(OURS, [first, second], policy()))

    run.answer("store_keyed_jobs", [(1, HOLDER, COMPLETED, None, NOW, 1, 0, NOW, None), NOTIFIED])
    run.answer("find_holders", [(first.request.id, HOLDER, COMPLETED, None, NOW, 1)])
    run.answer("release_holders")
    run.answer("insert_jobs", [(first.request.id,)])

    assert [answer.inserted for answer in run.result] == [True, True]


def test_our_own_transaction_begins_anew_where_a_holder_ended_before_its_lock() -> None:
    first, second = new("a"), new("b")
    run = Steps(enqueue(OURS, [first, second], policy("replace")))

    run.answer("store_keyed_jobs", [(1, HOLDER, QUEUED, None, NOW, 0, 0, NOW, None), NOTIFIED])

    with pytest.raises(Restart):
        run.answer("lock_holders", [])


def test_an_expired_holder_is_buried_and_its_key_asked_for_again() -> None:
    item = new("a")
    run = Steps(enqueue(SQL, [item], policy()))

    run.answer("insert_jobs", [])
    run.answer("find_holders", [(item.request.id, HOLDER, QUEUED, None, NOW, 2)])
    buried = run.answer("expire_holders")
    run.answer("insert_jobs", [(item.request.id,)])

    assert (buried.rows, buried.parameters["at"]) == ([(0, HOLDER)], NOW)
    assert run.result == [Enqueued(item.request.id)]


def test_large_payloads_are_cut_into_statements_by_size() -> None:
    half = "x" * (unique_keys.CHUNK_CHARACTERS // 2)
    items = [prepare(NewJob("email"), "", now=NOW) for _ in range(5)]
    requests = [msgspec.structs.replace(item.request, payload=half) for item in items]

    assert [len(chunk) for chunk in unique_keys.chunks_by_shard(requests)] == [2, 2, 1]
