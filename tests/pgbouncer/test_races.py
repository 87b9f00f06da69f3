"""Races behind PgBouncer, with more racers than sessions: those of tests/race, and a crowd."""

import pytest

from tests.fixtures.pgbouncer import POOL
from tests.pgbouncer.places import PooledPlace
from tests.race.crew import Crew, race_by
from tests.race.test_batches import (
    test_batches_of_triggers_and_batches_of_finishes_do_not_deadlock,
    test_batches_with_shared_keys_in_different_orders_agree_on_every_key,
)
from tests.race.test_claims import (
    test_of_many_claims_one_is_won_and_the_others_are_busy_and_then_replayed,
)
from tests.race.test_deliveries import test_no_job_is_taken_twice_and_none_is_left
from tests.race.test_hammer import test_whatever_happens_at_once_no_rule_is_broken_at_any_moment
from tests.race.test_one_winner import (
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


@pytest.mark.parametrize("racers", ["threads", "tasks"])
def test_a_crowd_on_three_sessions_has_one_winner(
    place: PooledPlace, crew: Crew, racers: str
) -> None:
    winner(race_by(racers, crew, place, enqueue, {"unique_key": "k"}, size=CROWD))
