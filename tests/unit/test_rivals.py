"""Whose key it is after several replays, told from the rows alone."""

from typing import Any

import pytest

from onefold.model.ids import new_id
from onefold.model.lifecycle import Event
from onefold.operations.replay import Replayable, Rivals, rivals
from tests.fixtures.rows import NOW, replayable_row

A, B, C = sorted(new_id() for _ in range(3))
QUEUED, COMPLETED = 0, 2
KEY: dict[str, Any] = {"unique_kind": "email", "unique_key": "k"}
ACTIVE: dict[str, Any] = {**KEY, "unique_states": 3}
WINDOW: dict[str, Any] = {**KEY, "unique_until": NOW + 1}
OVER: dict[str, Any] = {**KEY, "unique_until": NOW}


def job(job_id: str = A, **fields: Any) -> Replayable:
    return Replayable(*replayable_row(job_id, **fields))


@pytest.mark.parametrize(
    ("fields", "asks"),
    [
        ({}, False),
        (KEY, False),
        ({**KEY, "yielded": True}, True),
        (ACTIVE, True),
        (WINDOW, True),
        (OVER, True),
    ],
    ids=["no key", "given up by a take", "yielded", "a scope", "a window", "a window that is over"],
)
def test_who_asks_for_a_key(fields: dict[str, Any], *, asks: bool) -> None:
    assert job(**fields).asks == asks


@pytest.mark.parametrize(("fields", "keeps"), [(ACTIVE, True), (WINDOW, True), (OVER, False)])
def test_who_keeps_it_once_queued(fields: dict[str, Any], *, keeps: bool) -> None:
    assert job(**fields).keeps == keeps


def test_the_first_that_keeps_the_key_wins_it() -> None:
    assert Rivals((job(A, **OVER), job(B, **ACTIVE), job(C, **WINDOW))).winner.id == B


def test_where_nobody_keeps_it_the_last_wins_it() -> None:
    assert Rivals((job(A, **OVER), job(B, **OVER))).winner.id == B


def test_turns_are_before_and_after_the_holders() -> None:
    asking = Rivals((job(A, **OVER), job(B, **OVER), job(C, **OVER)))

    assert asking.around(B) == ([A], [B], [C])


def test_everybodys_turn_is_before_a_strangers() -> None:
    assert Rivals((job(A, **OVER), job(B, **OVER))).around(C) == ([A, B], [], [])


def test_rivals_are_found_by_key_and_keep_their_order() -> None:
    other = {**ACTIVE, "unique_key": "j"}
    jobs = [job(C, **ACTIVE), job(B, **other), job(A, **ACTIVE)]

    places = rivals(jobs, Event.REPLAY)

    assert [[rival.id for rival in place.jobs] for place in places] == [[B], [C, A]]


def test_jobs_that_cannot_be_replayed_or_need_no_key_are_no_rivals() -> None:
    jobs = [job(A), job(B, **ACTIVE, state=QUEUED), job(C, **ACTIVE, state=COMPLETED)]

    assert rivals(jobs, Event.REPLAY) == []


def test_an_expired_holder_is_a_rival_once_somebody_has_asked_for_its_key() -> None:
    holder = job(B, **ACTIVE, state=QUEUED, expires_at=NOW)
    first = job(A, **OVER, yielded=True)

    assert rivals([first, holder], Event.REPLAY) == [Rivals((first, holder))]
    assert rivals([holder, first], Event.REPLAY) == [Rivals((first,))]


@pytest.mark.parametrize(
    "fields", [{"expires_at": NOW + 1}, {"expires_at": None}, {"expires_at": NOW, "yielded": True}]
)
def test_a_queued_job_that_has_not_expired_or_holds_no_key_is_none(fields: dict[str, Any]) -> None:
    first, queued = job(A, **OVER, yielded=True), job(B, **ACTIVE, state=QUEUED, **fields)

    assert rivals([first, queued], Event.REPLAY) == [Rivals((first,))]
