"""Acks that are late: seen soon after, and not asked for before one can be."""

import asyncio
from datetime import timedelta

import pytest

from onefold.errors import DatabaseError
from onefold.push.push_worker import AckTimeouts
from onefold.testing.clock import Clock

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class Acks:
    """What is waited for: when each is late."""

    def __init__(self, *, shortest: timedelta | None) -> None:
        self.clock = Clock()
        self.late = list[timedelta]()
        self.shortest = shortest
        self.asked = 0
        self.rescued = 0
        self.overdue = AckTimeouts(
            self._ask, self._rescue, shortest=lambda: self.shortest, now=lambda: self.clock.now
        )
        self._began = self.clock.now

    def wait_for(self, ack_timeout: timedelta) -> None:
        self.late.append(self.clock.now - self._began + ack_timeout)

    async def _ask(self) -> timedelta | None:
        self.asked += 1
        return min(self.late) - self._passed if self.late else None

    async def _rescue(self) -> None:
        self.rescued += 1
        self.late = [late for late in self.late if late > self._passed]

    @property
    def _passed(self) -> timedelta:
        return self.clock.now - self._began

    def pass_time(self, seconds: int) -> None:
        async def play() -> None:
            for _ in range(seconds):
                self.clock.advance(SECOND)
                await self.overdue.check()

        asyncio.run(play())


@pytest.mark.parametrize(("shortest", "asked"), [(None, 1), (MINUTE, 11)])
def test_an_idle_server_asks_once_in_the_shortest_ack_timeout_if_there_is_one(
    shortest: timedelta | None, asked: int
) -> None:
    acks = Acks(shortest=shortest)

    acks.pass_time(601)

    assert (acks.asked, acks.rescued) == (asked, 0)


def test_each_late_ack_is_seen_to_within_the_second() -> None:
    acks = Acks(shortest=MINUTE)
    acks.pass_time(10)

    for _ in range(3):
        acks.wait_for(2 * MINUTE)
        acks.wait_for(MINUTE)
        acks.pass_time(59)
        assert (acks.rescued, len(acks.late)) == (0, 2)
        acks.pass_time(1)
        assert (acks.rescued, len(acks.late)) == (1, 1)
        acks.pass_time(60)
        assert (acks.rescued, len(acks.late)) == (2, 0)
        acks.rescued = 0


def test_what_another_process_has_waited_for_is_seen_to_at_the_start() -> None:
    acks = Acks(shortest=None)
    acks.wait_for(SECOND)

    acks.pass_time(1)

    assert acks.rescued == 1


def test_acks_of_a_queue_that_is_gone_are_still_waited_for() -> None:
    acks = Acks(shortest=MINUTE)
    acks.wait_for(2 * MINUTE)
    acks.pass_time(1)
    acks.shortest = None

    acks.pass_time(119)

    assert (acks.asked, acks.rescued) == (4, 1)


@pytest.mark.parametrize(
    ("before", "since", "late"),
    [
        (MINUTE, None, MINUTE),
        (MINUTE, timedelta(hours=1), MINUTE),
        (timedelta(days=1), 2 * SECOND, 2 * SECOND),
    ],
    ids=["none any more", "a longer one", "a shorter one"],
)
def test_the_time_that_was_given_counts_whatever_the_queue_gives_since(
    before: timedelta, since: timedelta | None, late: timedelta
) -> None:
    acks = Acks(shortest=before)
    acks.pass_time(1)
    acks.wait_for(late)
    acks.shortest = since

    acks.pass_time(int(late.total_seconds()))

    assert acks.rescued == 1


def test_a_database_that_is_away_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    asked = 0

    async def ask() -> timedelta | None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise DatabaseError("no route to host")
        raise asyncio.CancelledError

    async def rescue() -> None: ...

    overdue = AckTimeouts(ask, rescue, shortest=lambda: None, now=lambda: Clock().now)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(overdue.run(timedelta(0)))

    assert "Late acks could not be checked" in caplog.text
