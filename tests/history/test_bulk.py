"""Replays and drops by filter: many batches, and letters that change while we look."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from onefold import NewJob, Onefold
from onefold.app.dead import BATCH
from tests.race.waiting import Second

if TYPE_CHECKING:
    from tests.fixtures.place import Place

LEASE = timedelta(seconds=60)
MANY = 2 * BATCH + 1


def bury_many(onefold: Onefold, count: int) -> None:
    onefold.enqueue_many([NewJob("email", {"n": number}) for number in range(count)])
    jobs = onefold.deliveries.take(limit=count, worker="w", lease=LEASE)
    onefold.deliveries.bury(jobs, reason="hopeless")


def test_a_replay_and_a_drop_go_through_every_batch(place: Place) -> None:
    with place.open() as onefold:
        bury_many(onefold, MANY)

        assert onefold.dead.replay(limit=BATCH + 1).inserted == BATCH + 1
        assert onefold.dead.replay().inserted == MANY - BATCH - 1
        jobs = onefold.deliveries.take(limit=MANY, worker="w", lease=LEASE)
        assert len(jobs) == MANY
        onefold.deliveries.bury(jobs, reason="hopeless")

        assert onefold.dead.delete(limit=BATCH + 1) == BATCH + 1
        assert onefold.dead.delete() == MANY - BATCH - 1
        assert place.rows("select count(*) from {attempt}") == [(0,)]


def test_a_letter_that_is_replayed_while_we_look_is_not_dropped(postgres_place: Place) -> None:
    with postgres_place.open() as onefold:
        bury_many(onefold, 2)
        first, second = (job.id for job in onefold.find(state="dead"))

        with postgres_place.transaction() as connection:
            onefold.within(connection).replay(first)
            with Second(postgres_place, lambda other: other.dead.delete()) as dropping:
                dropping.is_waiting()
                connection.execute("commit")
                assert dropping.answer() == 1
            connection.execute("begin")

        assert [(job.id, job.state) for job in onefold.find()] == [(first, "ready")]
        assert onefold.get(second) is None


def test_two_replays_at_once_send_a_letter_round_once(postgres_place: Place) -> None:
    with postgres_place.open() as onefold:
        bury_many(onefold, 3)
        (first, *_) = (job.id for job in onefold.find(state="dead"))

        with postgres_place.transaction() as connection:
            assert onefold.within(connection).replay(first).inserted
            with Second(postgres_place, lambda other: other.dead.replay(fresh=True)) as replaying:
                replaying.is_waiting()
                connection.execute("commit")
                answers = replaying.answer()
            connection.execute("begin")

        assert {answer.id: answer.inserted for answer in answers}[first] is False
        assert sorted(job.generation for job in onefold.find()) == [0, 1, 1]
