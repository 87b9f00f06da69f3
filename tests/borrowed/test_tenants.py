"""What one tenant's open transaction may do to another's jobs: nothing, not even make them wait."""

from datetime import timedelta

import psycopg
import pytest

from onefold import JobNotFound
from tests.fixtures.colours import Store
from tests.fixtures.patience import BRIEF

LEASE = timedelta(minutes=1)


@pytest.fixture
def dialect() -> str:
    return "postgres"


@pytest.mark.parametrize("word", ["cancel", "delete"])
def test_asking_for_another_tenants_job_does_not_lock_it(store: Store, word: str) -> None:
    onefold = store.open(busy_timeout=BRIEF)
    onefold.tenant("theirs").enqueue("email", queue="mail")
    jobs = onefold.deliveries.take(["mail"], worker="w", lease=LEASE)

    with psycopg.connect(store.url) as connection:
        mine = onefold.tenant("mine").within(connection)
        if word == "cancel":
            with pytest.raises(JobNotFound):
                mine.cancel(jobs[0].id)
        else:
            assert not mine.delete(jobs[0].id)

        (beat,) = onefold.deliveries.heartbeat(jobs, lease=LEASE)
        (ended,) = onefold.deliveries.finish(jobs)

    assert (beat.lost, ended.status) == (False, "accepted")
