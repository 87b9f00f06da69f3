"""With several shards, what belongs to a job lives beside it."""

from datetime import timedelta

from onefold import Run
from onefold.model.ids import shard_of
from tests.fixtures.place import Place
from tests.fixtures.shards import SHARDS

LEASE = timedelta(seconds=60)
COUNT = 16
"""Jobs: so many keys are spread over all shards."""


def test_steps_are_remembered_and_removed_on_the_shard_of_their_job(spread: Place) -> None:
    with spread.open() as onefold:
        ids = [onefold.enqueue("work", {}, unique_key=str(number)).id for number in range(COUNT)]
        calls: list[str] = []
        for _ in range(2):
            for job in onefold.deliveries.take(limit=COUNT, worker="w", lease=LEASE):
                run = Run(onefold.context, job, lease=LEASE, worker="w")
                run.step("charge", calls.append, job.id)
                with run.once("mail") as claim:
                    assert claim is not None
                    if claim.won:
                        calls.append("mail")
                onefold.deliveries.retry([job], after=timedelta(0))

        assert sorted(calls) == sorted([*ids, *["mail"] * COUNT])
        assert {shard_of(job.id, SHARDS) for job in onefold.find()} == set(range(SHARDS))
        for job_id in ids:
            assert [step.label for step in onefold.deliveries.steps(job_id)] == ["charge"]
        for job in onefold.deliveries.take(limit=COUNT, worker="w", lease=LEASE):
            run = Run(onefold.context, job, lease=LEASE, worker="w")
            with run.transaction():
                pass
            onefold.delete(job.id)
            assert onefold.deliveries.steps(job.id) == []
