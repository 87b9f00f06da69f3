"""With several shards, what belongs to a job lives beside it."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import Onefold, Run
from onefold.model.ids import shard_of

LEASE = timedelta(seconds=60)
SHARDS = 4
COUNT = 16
"""Jobs: so many keys are spread over all shards."""


@pytest.fixture(params=["sqlite", "postgres"])
def sharded(request: pytest.FixtureRequest) -> Any:
    if request.param == "sqlite":
        onefold = Onefold(request.getfixturevalue("sqlite_url"), shards=SHARDS)
    else:
        url: str = request.getfixturevalue("postgres_url")
        schema: str = request.getfixturevalue("postgres_schema")
        onefold = Onefold(url, schema=schema, shards=SHARDS)
    onefold.migrate()
    yield onefold
    onefold.close()


def test_steps_are_remembered_and_removed_on_the_shard_of_their_job(sharded: Onefold) -> None:
    ids = [sharded.enqueue("work", {}, unique_key=str(number)).id for number in range(COUNT)]
    calls: list[str] = []
    for _ in range(2):
        for job in sharded.deliveries.take(limit=COUNT, worker="w", lease=LEASE):
            run = Run(sharded.context, job, lease=LEASE, worker="w")
            run.step("charge", calls.append, job.id)
            with run.once("mail") as claim:
                assert claim is not None
                if claim.won:
                    calls.append("mail")
            sharded.deliveries.retry([job], after=timedelta(0))

    assert sorted(calls) == sorted([*ids, *["mail"] * COUNT])
    assert {shard_of(job.id, SHARDS) for job in sharded.find()} == set(range(SHARDS))
    for job_id in ids:
        assert [step.label for step in sharded.deliveries.steps(job_id)] == ["charge"]
    for job in sharded.deliveries.take(limit=COUNT, worker="w", lease=LEASE):
        run = Run(sharded.context, job, lease=LEASE, worker="w")
        with run.transaction():
            pass
        sharded.delete(job.id)
        assert sharded.deliveries.steps(job.id) == []
