"""Prune, sweep, fold and erase, stepped by hand."""

from __future__ import annotations

from typing import Any

import pytest

from onefold.model.claim import ClaimKey
from onefold.model.ids import new_id, shard_of
from onefold.operations.jobs import RECENT_DUPLICATES
from onefold.operations.maintenance import (
    Erased,
    Pruned,
    Swept,
    erase,
    erase_scope,
    fold_duplicates,
    prune,
    sweep,
)
from onefold.operations.queues import CHANGED
from onefold.operations.statement import Sql
from tests.fixtures.rows import NOW
from tests.fixtures.steps import Steps

SQL = Sql("postgres")
A, B, C = sorted(new_id() for _ in range(3))
RUNNING, COMPLETED = 1, 2


# --- prune ----------------------------------------------------------------------------------------


def test_a_prune_deletes_what_is_over_and_strips_what_is_promised() -> None:
    run = Steps(prune(SQL, shard=2, limit=50))

    lock = run.answer("lock_prunable_jobs", [(C, False), (B, True), (A, False)])
    strip = run.answer("strip_jobs")
    gone = [run.answer(name) for name in ("delete_jobs", "delete_duplicates", "delete_tallies")]

    assert lock.parameters == {"shard": 2, "limit": 50}
    assert strip.rows == [(2, B)]
    assert [one.rows for one in gone] == [[(2, A), (2, C)]] * 3
    assert run.result == Pruned(deleted=2, stripped=1)
    assert run.result.total == 3


def test_a_prune_with_nothing_to_do_writes_nothing() -> None:
    run = Steps(prune(SQL))

    run.answer("lock_prunable_jobs")

    assert run.result == Pruned()


# --- sweep ----------------------------------------------------------------------------------------


def claim(key: str, *, surface: str = "once", result: str | None = None, at: int = NOW) -> Any:
    """A row of find_expired_claims."""
    return (0, "", surface, "scope", key, f"owner-{key}", result, at)


def test_claims_whose_time_is_over_are_forgotten() -> None:
    rows = [claim("a"), claim("b", result='"x"')]
    run = Steps(sweep(SQL, shard=0, limit=50, start=5))

    look = run.answer("find_expired_claims", rows)
    gone = run.answer("delete_claims", [("owner-a",), ("owner-b",)])
    steps = run.answer("find_job_claims", [("", "step", "of a", "1:charge#1")])
    gone_too = run.answer("delete_job_claims")
    notes = [run.answer(name).rows for name in ("delete_duplicates", "delete_tallies")]

    assert notes == [[(0, ClaimKey(*row[1:5]).notes) for row in rows]] * 2
    assert [row[:2] for row in steps.rows] == [(0, ""), (0, "")]
    assert gone_too.rows == [(0, "", "step", "of a", "1:charge#1")]
    assert look.parameters == {"shard": 0, "limit": 50, "start": 5}
    assert gone.rows == [row[:6] for row in rows]
    assert run.result == Swept(deleted=2, next=None)


def test_a_publish_key_stays_while_its_job_has_not_ended() -> None:
    rows = [
        claim("a", surface="publish", result=A),
        claim("b", surface="publish", result=B),
        claim("c", surface="publish", result=C),
        claim("d", surface="publish"),
    ]
    run = Steps(sweep(SQL, limit=50))

    run.answer("find_expired_claims", rows)
    states = run.answer("job_states", [(A, RUNNING), (B, COMPLETED)])
    gone = run.answer("delete_claims", [])

    assert states.rows == [(0, A), (0, B), (0, C)]
    assert [row[4] for row in gone.rows] == ["b", "c", "d"]
    assert run.result == Swept(deleted=0)


def test_the_jobs_of_publish_keys_are_looked_for_on_their_own_shards() -> None:
    ids = [new_id(number * 171 % 4096) for number in range(24)]
    run = Steps(sweep(Sql("postgres", shards=4), shard=1, limit=50))

    rows = [claim(str(n), surface="publish", result=job_id) for n, job_id in enumerate(ids)]
    run.answer("find_expired_claims", rows)
    for shard in range(4):
        here = sorted(job_id for job_id in ids if shard_of(job_id, 4) == shard)
        assert run.answer("job_states", [(i, RUNNING) for i in here]).rows == [
            (shard, i) for i in here
        ]

    assert run.result == Swept(deleted=0)


@pytest.mark.parametrize(
    ("start", "at", "deleted", "follows"),
    [
        (0, NOW, 2, NOW),
        (0, NOW, 0, NOW),
        (NOW, NOW, 2, NOW),
        (NOW, NOW, 0, NOW + 1),
    ],
    ids=["further on", "nothing yet", "the same moment again", "a moment that nobody leaves"],
)
def test_a_full_batch_says_where_the_next_one_starts(
    start: int, at: int, deleted: int, follows: int
) -> None:
    rows = [claim("a", at=at), claim("b", at=at)]
    run = Steps(sweep(SQL, limit=2, start=start))

    run.answer("find_expired_claims", rows)
    run.answer("delete_claims", [("owner",)] * deleted)

    assert run.result == Swept(deleted, follows)


def test_a_full_batch_of_publish_keys_that_must_stay_is_stepped_over() -> None:
    rows = [claim("a", surface="publish", result=A), claim("b", surface="publish", result=B)]
    run = Steps(sweep(SQL, limit=2, start=NOW))

    run.answer("find_expired_claims", rows)
    run.answer("job_states", [(A, RUNNING), (B, RUNNING)])

    assert run.result == Swept(0, NOW + 1)


# --- fold -----------------------------------------------------------------------------------------


def test_nothing_to_fold_is_one_statement() -> None:
    run = Steps(fold_duplicates(SQL, shard=2, limit=50))

    assert run.answer("lock_unfolded_duplicates").parameters == {"shard": 2, "limit": 50}
    assert run.result == 0


def test_notes_are_folded_into_a_count_per_job() -> None:
    notes = [(1, B, NOW + 1, "r-1"), (2, A, NOW + 2, None), (3, B, NOW + 3, "r-3")]
    run = Steps(fold_duplicates(SQL, shard=2))

    run.answer("lock_unfolded_duplicates", notes)
    find = run.answer("find_tallies", [(B, 10, NOW - 5, NOW - 1, f'[[{NOW - 1},"r-0"]]')])
    save = run.answer("save_tallies")
    run.answer("find_job_queues", [(A, "mail")])
    added = run.answer("add_statistics")
    gone = run.answer("delete_folded_duplicates")

    assert find.rows == [(2, A), (2, B)]
    assert save.rows == [
        (2, A, 1, NOW + 2, NOW + 2, f"[[{NOW + 2},null]]"),
        (2, B, 12, NOW - 5, NOW + 3, f'[[{NOW + 3},"r-3"],[{NOW + 1},"r-1"],[{NOW - 1},"r-0"]]'),
    ]
    assert [(row[2], row[7]) for row in added.rows] == [("", 2), ("mail", 1)]
    assert not added.alone
    assert gone.rows == [(2, 1), (2, 2), (2, 3)]
    assert run.result == 3


def test_notes_of_one_moment_may_have_a_request_id_or_none() -> None:
    run = Steps(fold_duplicates(SQL))

    run.answer("lock_unfolded_duplicates", [(1, A, NOW, "r-1"), (2, A, NOW, None)])
    run.answer("find_tallies")

    assert run.answer("save_tallies").rows == [(0, A, 2, NOW, NOW, f'[[{NOW},"r-1"],[{NOW},null]]')]


def test_a_tally_keeps_the_last_notes_alone() -> None:
    run = Steps(fold_duplicates(SQL))

    notes = [(n, A, NOW + n, None) for n in range(RECENT_DUPLICATES + 5)]
    run.answer("lock_unfolded_duplicates", notes)
    run.answer("find_tallies")
    ((_, _, count, first, last, recent),) = run.answer("save_tallies").rows

    assert (count, first, last) == (25, NOW, NOW + 24)
    assert recent.count("null") == RECENT_DUPLICATES
    assert str(NOW + 24) in recent
    assert str(NOW + 4) not in recent


# --- erase ----------------------------------------------------------------------------------------


CLAIMS = [("once", '"x"', "", "a"), ("publish", A, "q", "b"), ("publish", None, "q", "c")]
ALL = {"scope": None, "surface": None}


def test_an_erase_removes_claims_first_and_then_jobs_with_their_notes() -> None:
    run = Steps(erase(SQL, "acme"))

    run.answer("erase_schedules")
    run.answer("erase_served_queues", [("payments",)])
    assert run.answer("notify").rows == [(CHANGED,)]
    claims = run.answer("erase_claims", CLAIMS)
    kept_away = [run.answer(name).rows for name in ("delete_duplicates", "delete_tallies")]
    jobs = run.answer("erase_jobs", [(B,)])
    named = run.answer("delete_jobs", [(A, "acme")])
    notes = [run.answer(name).rows for name in ("delete_duplicates", "delete_tallies")]
    history, steps = run.answer("delete_attempts"), run.answer("find_job_claims")

    assert kept_away == [[(0, ClaimKey("acme", "once", "", "a").notes)]] * 2
    assert jobs.parameters == {"shard": 0, "tenant": "acme", "key": None}
    assert claims.parameters == {**jobs.parameters, **ALL}
    assert named.rows == [(0, A)]
    assert notes == [[(0, B), (0, A)]] * 2
    assert set(history.rows) == {(0, A), (0, B)}
    assert set(steps.rows) == {(0, "acme", A), (0, "acme", B)}
    assert run.result == Erased(jobs=2, claims=3, queues=1)


def test_an_erase_of_a_key_that_nobody_has_removes_nothing() -> None:
    run = Steps(erase(SQL, "", key="k"))

    key = {"shard": 0, "tenant": "", "key": "k"}
    assert run.answer("erase_claims").parameters == {**key, **ALL}
    run.answer("erase_jobs")

    assert run.result == Erased()


def test_an_erase_visits_every_shard_all_claims_before_all_jobs() -> None:
    ids = [new_id(number * 171 % 4096) for number in range(24)]
    run = Steps(erase(Sql("postgres", shards=4), "acme", key="k"))

    for shard in range(4):
        published = [("publish", job_id, "q", "k") for job_id in ids] if shard == 3 else []
        assert run.answer("erase_claims", published).parameters["shard"] == shard
    for shard in range(4):
        here = {(shard, job_id) for job_id in ids if shard_of(job_id, 4) == shard}
        assert run.answer("erase_jobs").parameters["shard"] == shard
        named = run.answer("delete_jobs", [(job_id, "acme") for _, job_id in sorted(here)])
        assert set(named.rows) == here
        for name in ("delete_duplicates", "delete_tallies", "delete_attempts", "find_job_claims"):
            run.answer(name)

    assert run.result == Erased(jobs=24, claims=24)


def test_an_erase_of_a_scope_removes_claims_and_their_steps_on_every_shard() -> None:
    run = Steps(erase_scope(Sql("postgres", shards=2), "acme", scope="u", surface=None, key=None))

    for shard in range(2):
        claims = run.answer("erase_claims", [("http", '"x"', "u", f"k{shard}")])
        assert claims.parameters == {
            "shard": shard, "tenant": "acme", "key": None, "scope": "u", "surface": None
        }  # fmt: skip
        run.answer("find_job_claims", [("acme", "step", "s", "1:charge#1")] * shard)
        if shard:
            run.answer("delete_job_claims")
        notes = ClaimKey("acme", "http", "u", f"k{shard}").notes
        assert run.answer("delete_duplicates").rows == [(shard, notes)]
        assert run.answer("delete_tallies").rows == [(shard, notes)]

    assert run.result == Erased(claims=3)
