"""With several shards, the steps of a claim live beside it, and go with it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onefold import Onefold
from onefold.claims import Won
from tests.fixtures.colours import Clock
from tests.fixtures.request_steps import RequestSteps

LEASE = timedelta(seconds=60)
SHARDS = 4
KEYS = [f"k{number}" for number in range(12)]


@pytest.fixture(params=["sqlite", "postgres"])
def sharded(request: pytest.FixtureRequest) -> Any:
    clock = Clock(datetime(2026, 1, 1, tzinfo=UTC))
    if request.param == "sqlite":
        onefold = Onefold(request.getfixturevalue("sqlite_url"), shards=SHARDS, clock=clock)
    else:
        url: str = request.getfixturevalue("postgres_url")
        schema: str = request.getfixturevalue("postgres_schema")
        onefold = Onefold(url, schema=schema, shards=SHARDS, clock=clock)
    onefold.migrate()
    yield onefold, clock
    onefold.close()


def test_steps_are_remembered_and_removed_on_the_shard_of_their_claim(
    sharded: tuple[Onefold, Clock],
) -> None:
    onefold, clock = sharded
    calls: list[str] = []
    for _ in range(2):
        for key in KEYS:
            answer = onefold.claim(
                "alice", key, surface="http", lease=LEASE, takeover="resume", retention=LEASE
            )
            assert isinstance(answer, Won)
            RequestSteps(onefold.context, answer.claim).step("charge", calls.append, key)
        clock.advance(LEASE * 2)

    assert calls == KEYS
    assert len(onefold.keys.find(surface="step")) == len(KEYS)
    assert onefold.keys.erase(key=KEYS[0]).claims == 2
    for key in KEYS[1:]:
        onefold.keys.force_settle("alice", key, surface="http")
    clock.advance(LEASE)
    onefold.deliveries.sweep()
    assert (len(onefold.keys.find()), len(onefold.keys.find(surface="step"))) == (0, 0)
