"""Races behind PgBouncer, with more racers than sessions: those of tests/race, and a crowd."""

import asyncio
from uuid import uuid4

import pytest

from onefold import Enqueued
from onefold.claims import Won
from tests.fixtures.pgbouncer import POOL
from tests.pgbouncer.places import PooledPlace
from tests.race.crew import Racer, race_tasks, race_threads, values
from tests.race.test_batches import (
    test_batches_of_triggers_and_batches_of_finishes_do_not_deadlock,
    test_batches_with_shared_keys_in_different_orders_agree_on_every_key,
)
from tests.race.test_claims import (
    test_of_many_claims_one_is_won_and_the_others_are_busy_and_then_replayed,
)
from tests.race.test_deliveries import test_no_job_is_taken_twice_and_none_is_left
from tests.race.test_hammer import (
    test_whatever_happens_at_once_no_rule_is_broken_at_any_moment,
)
from tests.race.test_one_winner import (
    aenqueue,
    enqueue,
    race,
    test_of_many_enqueues_one_is_new_and_the_others_are_its_duplicates,
    test_of_many_publishes_one_is_new_and_the_others_are_its_duplicates,
    test_with_raise_one_is_new_and_the_others_are_told_the_holder,
    winner,
)

__all__ = [
    "race",
    "test_batches_of_triggers_and_batches_of_finishes_do_not_deadlock",
    "test_batches_with_shared_keys_in_different_orders_agree_on_every_key",
    "test_no_job_is_taken_twice_and_none_is_left",
    "test_of_many_claims_one_is_won_and_the_others_are_busy_and_then_replayed",
    "test_of_many_enqueues_one_is_new_and_the_others_are_its_duplicates",
    "test_of_many_publishes_one_is_new_and_the_others_are_its_duplicates",
    "test_whatever_happens_at_once_no_rule_is_broken_at_any_moment",
    "test_with_raise_one_is_new_and_the_others_are_told_the_holder",
]

pytestmark = pytest.mark.prove

CROWD = 10 * POOL


def test_a_crowd_of_threads_on_three_sessions_has_one_winner(place: PooledPlace) -> None:
    winner(race_threads(place, enqueue, {"unique_key": "k"}, size=CROWD))


def test_a_crowd_of_tasks_on_three_sessions_has_one_winner(place: PooledPlace) -> None:
    winner(race_tasks(place, aenqueue, {"unique_key": "k"}, size=CROWD))


def test_a_crowd_with_keys_of_their_own_is_all_stored(place: PooledPlace) -> None:
    answers = values(race_threads(place, enqueue, {"unique_key": "{rank}"}, size=CROWD))

    assert all(answer.inserted for answer in answers)
    assert len({answer.id for answer in answers}) == CROWD


def test_many_objects_of_many_loops_share_three_sessions(place: PooledPlace) -> None:
    async def several() -> list[Enqueued]:
        async with place.open() as one, place.open() as other:
            calls = [
                onefold.aenqueue("race", unique_key=key) for onefold in (one, other) for key in keys
            ]
            return await asyncio.gather(*calls)

    keys = [uuid4().hex for _ in range(CROWD)]
    answers = asyncio.run(several())

    assert sum(answer.inserted for answer in answers) == CROWD
    assert len({answer.id for answer in answers}) == CROWD


def pay(racer: Racer) -> None:
    with racer.place.transaction() as connection:
        within = racer.onefold.within(connection)
        match within.claim("pay", "k"):
            case Won(claim):
                connection.execute(f"insert into {racer.place.effects} values ({racer.rank})")
                within.keys.settle(claim)
            case _:
                pass


def test_a_joined_effect_happens_exactly_once(place: PooledPlace) -> None:
    with place.connection() as connection:
        connection.execute(f"create table {place.effects} (rank integer)")

    values(race_threads(place, pay, size=CROWD))

    assert len(place.rows("select rank from {effects}", effects=place.effects)) == 1
