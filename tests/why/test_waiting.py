"""Why does this job wait? One answer for each reason, in the order in which a take meets them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onefold import Limit, Onefold
from onefold.errors import JobNotFound
from onefold.model.ids import new_id
from onefold.model.queue import QueueSettings
from onefold.model.waiting import Waiting
from onefold.operations import waiting, workers
from onefold.operations.workers import WorkerRow
from tests.fixtures.colours import Clock, Coloured
from tests.fixtures.place import Place

Change = Callable[[], object]

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def started(
    onefold: Onefold,
    *,
    name: str = "w",
    queues: tuple[str, ...] = ("mail",),
    kinds: tuple[str, ...] | None = ("letter",),
    concurrency: int = 5,
) -> None:
    """A worker, as it describes itself."""
    row = WorkerRow(new_id(), name, "host", 1, queues, kinds, concurrency)
    onefold.context.store.transact(lambda sql: workers.save(sql, row))


def letter(onefold: Onefold, **options: Any) -> str:
    return onefold.enqueue("letter", queue="mail", **options).id


def take(onefold: Onefold, limit: int = 1, worker: str = "w") -> list[Any]:
    return list(onefold.deliveries.take(["mail"], limit=limit, worker=worker, lease=HOUR))


def take_limited(onefold: Onefold, limit: int = 10) -> list[str]:
    taken = onefold.deliveries.take_limited("mail", limit=limit, worker="w", lease=HOUR)
    return [job.id for job in taken.jobs]


def why(onefold: Onefold, job_id: str) -> Waiting:
    found = onefold.deliveries.why(job_id)
    assert found is not None
    assert (found.facts.queue, found.facts.kind) == ("mail", "letter")
    return found


async def test_a_job_waits_for_its_time_and_then_for_its_queue_and_workers_and_turn(
    onefold: Coloured, clock: Clock
) -> None:
    own: Onefold = onefold.target
    job = await onefold.enqueue("letter", queue="mail", delay=HOUR)
    await onefold.queues.pause("mail")
    changes: list[Change] = [
        lambda: None,
        lambda: clock.advance(HOUR),
        lambda: own.queues.resume("mail"),
        lambda: started(own, name="other", queues=("default",)),
        lambda: started(own, name="stranger", kinds=("other",)),
        lambda: started(own, concurrency=1),
    ]
    found: list[Waiting] = []
    for change in changes:
        change()
        found.append(await onefold.deliveries.why(job.id))

    assert [one.code for one in found] == [
        "scheduled", "paused", "no_worker", "no_worker", "unknown_kind", "next"
    ]  # fmt: skip
    assert found[-1].text.endswith("a place for the queue mail. Before it: 0 due jobs.")
    take(own)
    assert await onefold.deliveries.why(job.id) is None
    second = await onefold.enqueue("letter", queue="mail")
    busy = await onefold.deliveries.why(second.id)
    assert busy.text == (
        "Every worker that can take it is busy (1 live worker). Before it: 0 due jobs."
    )
    assert (busy.code, busy.facts.workers, busy.facts.ahead) == ("busy", 1, 0)
    await onefold.cancel(job.id)
    assert await onefold.deliveries.why(job.id) is None
    with pytest.raises(JobNotFound):
        await onefold.deliveries.why(new_id())


def test_a_job_that_is_not_due_says_whether_it_failed_or_was_deferred(spread: Place) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:
        failing = letter(onefold, max_attempts=3)
        onefold.deliveries.retry(take(onefold), error=TimeoutError("slow\nbank"), after=MINUTE)
        failed = why(onefold, failing)
        clock.advance(MINUTE)
        onefold.deliveries.defer(take(onefold), after=MINUTE)
        deferred = why(onefold, failing)
        clock.advance(MINUTE)
        onefold.deliveries.retry(take(onefold), after=MINUTE)
        again = why(onefold, failing)
        scheduled = why(onefold, letter(onefold, delay=HOUR))
        brief = letter(onefold, expires_at=clock.now + SECOND)
        clock.advance(SECOND)

        assert failed.code == "retrying"
        assert failed.text == (
            "Attempt 1 of 3 failed (TimeoutError: slow). It is tried again at"
            " 2020-01-01 00:01:00 UTC."
        )
        assert deferred.text == "It was deferred, and is not due until 2020-01-01 00:02:00 UTC."
        assert (again.code, again.facts.until) == ("retrying", clock.now + MINUTE - SECOND)
        assert scheduled.text == "It is not due until 2020-01-01 01:02:00 UTC."
        assert (why(onefold, brief).code, deferred.code) == ("expired", "scheduled")


def test_a_pushed_job_awaits_its_acknowledgement_and_a_queue_is_paused_with_a_reason(
    spread: Place,
) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:
        settings = QueueSettings(endpoint="http://127.0.0.1:9/", mode="ack")
        onefold.queues.save("mail", settings)
        job = letter(onefold)
        alone = why(onefold, job)
        started(onefold)
        served = why(onefold, job)
        started(onefold, name="pusher", queues=(), kinds=None, concurrency=1)
        (pushed,) = take(onefold, worker="pusher")
        onefold.deliveries.park(pushed, ack_timeout=MINUTE)
        second = letter(onefold)
        parked = why(onefold, job)
        free = why(onefold, second)
        onefold.queues.pause_endpoint("mail", endpoint="http://127.0.0.1:9/", why="it is gone")

        assert (alone.code, served.code) == ("no_worker", "next")
        assert "Start onefold serve" in alone.text
        assert parked.code == "awaiting"
        assert parked.text.endswith("awaits an acknowledgement until 2020-01-01 00:01:00 UTC.")
        assert (free.code, free.facts.workers) == ("next", 2), "a parked job needs no place"
        assert "paused (it is gone)" in why(onefold, second).text


def test_a_held_queue_says_until_when_and_then_which_job_proves_it(spread: Place) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:
        started(onefold)
        first, second = letter(onefold), letter(onefold)
        onefold.queues.hold("mail", after=MINUTE, why="circuit")
        held = why(onefold, first)
        clock.advance(MINUTE)
        open_again = why(onefold, first)
        probe = set(take_limited(onefold))
        (other,) = {first, second} - probe
        probed = why(onefold, other)

        assert held.text == (
            "The queue mail is held until 2020-01-01 00:01:00 UTC: pushes kept failing."
        )
        assert (held.code, held.facts.until, open_again.code) == ("held", clock.now, "next")
        assert (probed.code, set(probed.facts.jobs)) == ("held", probe)


@pytest.mark.parametrize("group", [None, "g"])
def test_a_limit_names_the_jobs_that_run_and_a_rate_its_next_time(
    spread: Place, group: str | None
) -> None:
    clock = Clock()
    which: Any = {"group_limit" if group else "limit": Limit(concurrency=2)}
    rate: Any = {"group_limit" if group else "limit": Limit(rate="2/m")}
    with spread.open(clock=clock) as onefold:
        started(onefold)
        onefold.queues.set_limits("mail", **which)
        theirs = onefold.tenant("acme").enqueue("letter", queue="mail", group_key=group).id
        ids = {letter(onefold, group_key=group) for _ in range(3)}
        free = why(onefold, min(ids))
        running = set(take_limited(onefold))
        (waits, *_) = ids - running
        limited = why(onefold, waits)
        onefold.queues.set_limits("mail", **rate)
        fresh = why(onefold, waits)
        take_limited(onefold)
        last = letter(onefold, group_key=group)
        take_limited(onefold)
        rated = why(onefold, last)

        assert free.code == "next"
        assert (limited.code, limited.facts.limit, limited.facts.group) == ("limit", 2, group)
        assert set(limited.facts.jobs) == running - {theirs}, "those that its tenant may see"
        place = "The group g of the queue mail" if group else "The queue mail"
        assert limited.text.startswith(f"{place} runs at most 2 jobs at once, now ")
        assert fresh.code == "next"
        assert (rated.code, rated.facts.rate, rated.facts.group) == ("rate", "2/m", group)
        assert rated.facts.until == clock.now + MINUTE / 2
        assert "starts at most 2/m, and the next job at 2020-01-01 00:00:30 UTC" in rated.text


def test_in_an_ordered_group_the_older_job_is_named(spread: Place) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:
        started(onefold)
        onefold.queues.set_limits("mail", ordered=True)
        first = letter(onefold, group_key="g", delay=MINUTE)
        second = letter(onefold, group_key="g")
        behind = why(onefold, second)
        clock.advance(MINUTE)
        head = why(onefold, first)
        assert take_limited(onefold) == [first]
        running = why(onefold, second)

        assert (behind.code, behind.facts.jobs, head.code) == ("order", (first,), "next")
        assert running.text == (
            f"The group g of the queue mail runs one job at a time, in order, now {first}."
        )


def test_jobs_that_come_before_are_counted_up_to_a_bound(
    spread: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spread.open() as onefold:
        started(onefold)
        for priority in (0, 1):
            for group in (None, "g"):
                letter(onefold, priority=priority, group_key=group)
        job = letter(onefold, priority=5)
        exact = why(onefold, job)
        monkeypatch.setattr(waiting, "MOST_AHEAD", 1)
        bounded = why(onefold, job)

        # Each shard counts up to the bound, and jobs have a random shard.
        assert (exact.facts.ahead, bounded.facts.ahead) in ((4, 3), (4, 4))
        assert exact.text.endswith("Before it: 4 due jobs.")
        assert bounded.text.endswith(" or more.")
