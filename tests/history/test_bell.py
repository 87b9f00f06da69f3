"""Jobs that are due again at once wake the workers of their queue, and no others do."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from onefold import Fixed, Onefold
from onefold.databases.postgres.notify import channel
from onefold.operations.queues import CHANGED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onefold import Job
    from tests.fixtures.place import Place

NOW = timedelta(0)
HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=60)


class Bell:
    """Hears what is rung on the channel of a place."""

    def __init__(self, place: Place) -> None:
        self.connection = psycopg.connect(place.url, autocommit=True)
        name = channel(place.schema).replace('"', '""')
        self.connection.execute(f'listen "{name}"'.encode())

    def heard(self) -> list[str]:
        """What was rung until now: the server tells it with the answer to any statement."""
        self.connection.execute("select 1")
        return [notice.payload for notice in self.connection.notifies(timeout=0)]


@pytest.fixture
def bell(postgres_place: Place) -> Iterator[Bell]:
    opened = Bell(postgres_place)
    yield opened
    opened.connection.close()


def take(onefold: Onefold, *, lease: timedelta = LEASE) -> list[Job]:
    return onefold.deliveries.take(["mail"], limit=10, worker="w", lease=lease)


def rescue(onefold: Onefold, jobs: list[Job]) -> None:
    """Let the leases be over: they were a microsecond long."""
    onefold.deliveries.heartbeat(jobs, lease=timedelta(microseconds=1))
    onefold.deliveries.rescue()


RINGING: dict[str, Callable[[Onefold, list[Job]], object]] = {
    "hand back": lambda onefold, jobs: onefold.deliveries.hand_back(jobs),
    "retry at once": lambda onefold, jobs: onefold.deliveries.retry(jobs, after=NOW),
    "retry by a backoff of nothing": lambda onefold, jobs: onefold.deliveries.retry(jobs),
    "defer for no time": lambda onefold, jobs: onefold.deliveries.defer(jobs, after=NOW),
    "rescue": rescue,
}
SILENT: dict[str, Callable[[Onefold, list[Job]], object]] = {
    "retry later": lambda onefold, jobs: onefold.deliveries.retry(jobs, after=HOUR),
    "defer": lambda onefold, jobs: onefold.deliveries.defer(jobs, after=HOUR),
    "bury": lambda onefold, jobs: onefold.deliveries.bury(jobs, reason="hopeless"),
    "cancel": lambda onefold, jobs: onefold.cancel(jobs[0].id),
    "finish": lambda onefold, jobs: onefold.deliveries.finish(jobs),
}


@pytest.mark.parametrize("word", RINGING)
def test_a_job_that_is_due_again_rings_once_for_its_queue(
    postgres_place: Place, bell: Bell, word: str
) -> None:
    with postgres_place.open() as onefold:
        for _ in range(3):
            onefold.enqueue("email", queue="mail", backoff=Fixed(NOW))
        jobs = take(onefold)
        bell.heard()

        RINGING[word](onefold, jobs)

        assert bell.heard() == ["mail"]


@pytest.mark.parametrize("word", SILENT)
def test_one_that_is_not_due_rings_nothing(postgres_place: Place, bell: Bell, word: str) -> None:
    with postgres_place.open() as onefold:
        onefold.enqueue("email", queue="mail")
        jobs = take(onefold)
        bell.heard()

        SILENT[word](onefold, jobs)

        assert bell.heard() == []


def test_a_replay_rings_at_the_commit(postgres_place: Place, bell: Bell) -> None:
    with postgres_place.open() as onefold:
        first, second = (onefold.enqueue("email", queue="mail").id for _ in range(2))
        onefold.deliveries.bury(take(onefold), reason="hopeless")
        bell.heard()

        onefold.replay(first)
        assert bell.heard() == ["mail"]
        with postgres_place.transaction() as connection:
            onefold.within(connection).replay(second)
            assert bell.heard() == []
        assert bell.heard() == ["mail"]


def test_where_nobody_is_to_be_woken_nobody_rings(postgres_place: Place, bell: Bell) -> None:
    url, schema = postgres_place.url, postgres_place.schema
    with Onefold(url, schema=schema, notify=False) as onefold:
        onefold.enqueue("email", queue="mail")
        onefold.deliveries.hand_back(take(onefold))

    assert bell.heard() == []


def test_an_opened_queue_rings_and_one_that_was_open_does_not(
    postgres_place: Place, bell: Bell
) -> None:
    with postgres_place.open() as onefold:
        onefold.queues.hold("mail", after=HOUR, why="circuit")
        assert bell.heard() == [CHANGED]

        assert not onefold.queues.end_hold("mail")
        assert bell.heard() == []
        assert onefold.queues.end_hold("mail", force=True)
        assert sorted(bell.heard()) == [CHANGED, "mail"]
        onefold.queues.count_failure("mail")
        assert onefold.queues.end_hold("mail")
        assert bell.heard() == [CHANGED, CHANGED]
