"""What operators ask about an installation: its indexes and settings, and its failing queues."""

from datetime import timedelta

import pytest

from onefold import Fixed
from onefold.app.doctor import findings
from tests.fixtures.place import Place


def test_a_new_installation_has_no_problem(place: Place) -> None:
    with place.open() as onefold:
        found = list(findings(onefold.context))

    # The server of the tests does without durability.
    wrong = {each.check for each in found if each.level == "problem"} - {"durability"}
    assert wrong == set()
    assert {"database", "schema", "indexes"} <= {each.check for each in found}


@pytest.mark.parametrize("tenant", ["", "acme"])
def test_retrying_and_dead_jobs_are_counted_by_queue(place: Place, tenant: str) -> None:
    with place.open() as onefold:
        calls = onefold.tenant(tenant) if tenant else onefold
        onefold.tenant("rival").enqueue("mail", queue="other")
        for queue in ("a", "b", "b"):
            calls.enqueue("mail", queue=queue, backoff=Fixed(timedelta(hours=1)))
        jobs = onefold.deliveries.take(["a", "b"], limit=3, worker="w", lease=timedelta(minutes=1))
        onefold.deliveries.retry(jobs[:2])
        onefold.deliveries.bury(jobs[2:], reason="no")

        counts = calls.queues.count_failing()

    assert sum(each.retrying for each in counts.values()) == 2
    assert sum(each.dead for each in counts.values()) == 1
    assert set(counts) <= {"a", "b"}
