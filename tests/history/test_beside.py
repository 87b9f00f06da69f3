"""What is kept beside a job goes with it: its history, its steps, and what it did once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from onefold import Onefold, Retention
from onefold.effects.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.place import Place

LEASE = timedelta(seconds=60)
NOTHING = timedelta(0)


def deliver(onefold: Onefold) -> Run:
    """Take the one job."""
    (job,) = onefold.deliveries.take(limit=1, worker="w", lease=LEASE)
    return Run(onefold.context, job, lease=LEASE, worker="w")  # pyright: ignore[reportPrivateUsage]


def work(onefold: Onefold) -> Run:
    """Take the one job, and do a step and something once."""
    run = deliver(onefold)
    assert run.step("charge", lambda: "receipt") == "receipt"
    with run.once("mail") as claim:
        assert claim is not None
        claim.result = "sent"
    return run


def beside(place: Place) -> list[tuple[Any, ...]]:
    """All that is kept beside any job."""
    return [
        *place.rows("select fence, outcome from {attempt} order by fence"),
        *place.rows("select surface, state from {claim} where surface <> 'publish' order by 1"),
    ]


ENDS: dict[str, Callable[[Onefold, str], object]] = {
    "delete": lambda onefold, job_id: onefold.delete(job_id),
    "delete_many": lambda onefold, job_id: onefold.dead.delete(kind="email"),
    "prune": lambda onefold, job_id: onefold.deliveries.prune(),
    "erase by key": lambda onefold, job_id: onefold.keys.erase(key="k"),
    "erase by publish key": lambda onefold, job_id: onefold.keys.erase(key="p"),
    "erase a tenant": lambda onefold, job_id: onefold.keys.erase(tenant=""),
}


@pytest.mark.parametrize("end", ENDS)
def test_it_goes_with_the_job_on_every_shard(spread: Place, end: str) -> None:
    with spread.open() as onefold:
        keep = Retention(dead=timedelta(microseconds=1))
        job_id = onefold.enqueue(
            "email", unique_key="k", idempotency_key="p", queue="default", retention=keep
        ).id
        onefold.deliveries.retry([work(onefold).job], after=NOTHING)
        onefold.deliveries.bury([work(onefold).job], reason="hopeless")
        assert beside(spread) == [(1, "retried"), (2, "dead"), ("once", 1), ("step", 1)]

        ENDS[end](onefold, job_id)

        assert onefold.get(job_id) is None
        assert beside(spread) == []


@pytest.mark.parametrize("window", [None, timedelta(days=1)], ids=["deleted", "stripped"])
@pytest.mark.parametrize("word", ["finish", "bury"])
def test_nothing_stays_beside_a_job_that_is_not_kept(
    spread: Place, window: timedelta | None, word: str
) -> None:
    with spread.open() as onefold:
        keep = Retention(completed=NOTHING, dead=NOTHING)
        onefold.enqueue("email", unique_key="k", unique_for=window, retention=keep)
        onefold.deliveries.retry([work(onefold).job], after=NOTHING)
        job = work(onefold).job

        if word == "finish":
            onefold.deliveries.finish([job])
        else:
            onefold.deliveries.bury([job], reason="hopeless")

        assert beside(spread) == []
        assert onefold.enqueue("email", unique_key="k").duplicate == (window is not None)


def test_what_others_did_once_stays(place: Place) -> None:
    with place.open() as onefold:
        job_id = onefold.enqueue("email").id
        for owner in (onefold, onefold.tenant("acme")):
            with owner.once("import", "customers.csv"):
                pass
        with onefold.tenant("acme").once(job_id, "not the job's own"):
            pass
        work(onefold)

        onefold.delete(job_id)

        assert [row[0] for row in place.rows("select tenant from {claim} order by 1")] == [
            "",
            "acme",
            "acme",
        ]


def test_a_replay_keeps_the_steps_and_a_fresh_one_begins_anew(place: Place) -> None:
    with place.open() as onefold:
        job_id = onefold.enqueue("email").id
        run = work(onefold)
        key = run.key("charge")
        onefold.deliveries.bury([run.job], reason="hopeless")

        onefold.replay(job_id)
        again = deliver(onefold)
        assert again.step("charge", lambda: "another receipt") == "receipt"
        assert again.key("charge") == key
        onefold.deliveries.bury([again.job], reason="hopeless")

        onefold.replay(job_id, fresh=True)
        fresh = deliver(onefold)
        assert fresh.step("charge", lambda: "another receipt") == "another receipt"
        assert fresh.key("charge") != key
        assert [a.outcome for a in onefold.deliveries.attempts(job_id)] == [
            "dead",
            "dead",
            "running",
        ]
