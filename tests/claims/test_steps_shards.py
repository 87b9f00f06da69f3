"""With several shards, the steps of a claim live beside it, and go with it."""

from datetime import timedelta

from onefold.claims import Won
from tests.fixtures.colours import Clock
from tests.fixtures.place import Place
from tests.fixtures.request_steps import RequestSteps

LEASE = timedelta(seconds=60)
KEYS = [f"k{number}" for number in range(12)]


def test_steps_are_remembered_and_removed_on_the_shard_of_their_claim(
    spread: Place, clock: Clock
) -> None:
    calls: list[str] = []
    with spread.open(clock=clock) as onefold:
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
