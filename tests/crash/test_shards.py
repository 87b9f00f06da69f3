"""SIGKILL where one call writes to several shards: all of it is there afterwards, or nothing.

A publish key lives on the shard of its own hash, its job on that of its unique key.
"""

from itertools import count

import pytest

from onefold import Onefold
from onefold.model.claim import ClaimKey
from onefold.model.ids import hash12
from tests.crash.enqueueing import EnqueueBatch, EnqueueRefused, Publish
from tests.crash.scenario import Scenario
from tests.crash.test_every_statement import die_everywhere
from tests.fixtures.place import Place
from tests.fixtures.proof import proved
from tests.fixtures.shards import SHARDS


class PublishAcross(Publish):
    """The claim is on another shard than the job."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        job = hash12("", "crash", key) % SHARDS
        names = (f"{key} {number}" for number in count())
        self.publish = next(
            name for name in names if ClaimKey("", "publish", key, name).hash % SHARDS != job
        )

    def act(self, onefold: Onefold, place: Place) -> object:
        return self.enqueue(onefold, idempotency_key=self.publish)


class PublishAcrossOfAHeldKey(PublishAcross):
    """The claim is recorded for a holder on another shard."""

    def prepare(self, onefold: Onefold) -> None:
        self.enqueue(onefold)


@pytest.mark.parametrize(
    "kind",
    [
        PublishAcross,
        *proved(PublishAcrossOfAHeldKey, EnqueueBatch, EnqueueRefused),
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_death_between_two_shards_leaves_nothing_on_either(
    spread: Place, kind: type[Scenario]
) -> None:
    die_everywhere(kind, spread)

    assert len(spread.rows("select distinct shard from {job}")) > 1
