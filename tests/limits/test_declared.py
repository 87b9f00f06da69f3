"""Limits that the code declares, and operators who know better."""

from datetime import UTC, datetime, timedelta

import pytest

from onefold import InvalidInput, Limit, NewJob, Onefold, Queue, QueueCounts
from tests.fixtures.place import Place

MINUTE = timedelta(minutes=1)


def settings(onefold: Onefold, queue: str = "email") -> Queue:
    return next(one for one in onefold.queues.find() if one.name == queue)


def test_what_is_declared_holds_for_everybody(place: Place) -> None:
    with place.open() as ours, place.open() as theirs:
        ours.queues.declare("email", limit=Limit(concurrency=1))
        ours.queues.store_declared()
        theirs.enqueue_many([NewJob("letter", queue="email") for _ in range(3)])

        assert theirs.deliveries.take(["email"], limit=9, worker="w", lease=MINUTE) == []
        taken = theirs.deliveries.take_limited("email", limit=9, worker="w", lease=MINUTE)
        assert len(taken.jobs) == 1
        assert settings(theirs).limit == Limit(concurrency=1)


def test_a_declaration_replaces_what_was_declared_before(place: Place) -> None:
    with place.open() as onefold:
        onefold.queues.declare("email", limit=Limit(concurrency=1), ordered=True)
        onefold.queues.store_declared()
        onefold.queues.declare("email", group_limit=Limit(rate="1/s"))
        onefold.queues.store_declared()

        found = settings(onefold)
        assert (found.limit, found.group_limit, found.ordered) == (None, Limit(rate="1/s"), False)


def test_an_operators_word_stays_until_it_is_cleared(place: Place) -> None:
    with place.open() as onefold:
        onefold.queues.declare("email", limit=Limit(concurrency=10))
        onefold.queues.store_declared()
        onefold.queues.set_limits("email", limit=Limit(concurrency=2))
        onefold.queues.store_declared()
        assert (settings(onefold).limit, settings(onefold).declared) == (
            Limit(concurrency=2),
            False,
        )

        onefold.queues.clear_limits("email")
        assert settings(onefold).limit is None
        onefold.queues.store_declared()
        assert (settings(onefold).limit, settings(onefold).declared) == (
            Limit(concurrency=10),
            True,
        )


def test_a_pause_is_not_lifted_by_a_declaration_and_does_not_keep_it_out(place: Place) -> None:
    with place.open() as onefold:
        onefold.enqueue("letter", queue="email")
        onefold.queues.pause("email")
        onefold.queues.declare("email", limit=Limit(concurrency=1))
        onefold.queues.store_declared()

        assert (settings(onefold).paused, settings(onefold).limit) == (True, Limit(concurrency=1))


def test_a_declared_queue_and_that_of_a_schedule_are_paused_before_they_have_any_job(
    place: Place,
) -> None:
    with place.open() as onefold:

        @onefold.job(queue="email")
        def send() -> None: ...

        onefold.queues.declare("bulk", limit=Limit(concurrency=1))
        onefold.schedules.save("nightly", "0 3 * * *", kind="report", queue="reports")
        for queue in ("email", "bulk", "default", "reports"):
            onefold.queues.pause(queue)
        paused = {queue.name for queue in onefold.queues.find() if queue.paused}
        assert paused == {"email", "bulk", "default", "reports"}
        assert send.kind == "send"


def test_queues_that_only_have_jobs_are_found_by_counting_them(place: Place) -> None:
    with place.open() as onefold:
        onefold.queues.set_limits("bulk", limit=Limit(concurrency=1))
        onefold.enqueue("letter", queue="email")
        assert [queue.name for queue in onefold.queues.find()] == ["bulk", "email"]
        assert [queue.name for queue in onefold.queues.find(counts=False)] == ["bulk"]


def test_jobs_are_grouped_by_the_key_of_a_declared_limit(place: Place) -> None:
    with place.open() as onefold:
        onefold.queues.declare("email", group_limit=Limit(key="tenant.id", concurrency=1))
        onefold.queues.store_declared()
        payloads = [{"tenant": {"id": 7}}, {"tenant": {"id": "acme"}}, {"tenant": None}]
        answers = [onefold.enqueue("letter", payload, queue="email") for payload in payloads]
        said = onefold.enqueue("letter", payloads[0], queue="email", group_key="mine")
        elsewhere = onefold.tenant("t").enqueue("letter", payloads[0])
        (of_tenant,) = onefold.tenant("t").enqueue_many(
            [NewJob("letter", payloads[0], queue="email")]
        )

        jobs = [onefold.get(answer.id) for answer in (*answers, said)]
        jobs += [onefold.tenant("t").get(answer.id) for answer in (elsewhere, of_tenant)]
        groups = [job.group_key for job in jobs if job is not None]
        assert groups == ["7", "acme", None, "mine", None, "7"]


@pytest.mark.parametrize("field", ["limit", "group_limit"])
def test_what_is_no_limit_is_refused_where_it_is_said(sqlite_url: str, field: str) -> None:
    with Onefold(sqlite_url) as onefold:
        with pytest.raises(InvalidInput, match=field):
            onefold.queues.declare("email", **{field: 5})  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidInput, match="only a group_limit"):
            onefold.queues.declare("email", limit=Limit(key="tenant", concurrency=1))


@pytest.mark.parametrize("shards", [1, 3])
def test_what_waits_is_counted_over_all_shards_with_the_age_of_the_oldest(
    empty: Place, shards: int
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with Onefold(empty.url, schema=empty.schema, shards=shards, clock=lambda: now) as onefold:
        onefold.migrate()
        for age in range(6):
            group = "a" if age % 2 else None
            due = now - timedelta(seconds=age)
            onefold.enqueue("letter", queue="email", run_at=due, group_key=group)
        onefold.enqueue("letter", queue="email", delay=MINUTE)
        onefold.enqueue("letter", queue="later", delay=MINUTE)

        email, later = settings(onefold), settings(onefold, "later")
        assert email.counts == QueueCounts(ready=6, scheduled=1, dead=None)
        assert later.counts == QueueCounts(scheduled=1, dead=None)
        assert (email.oldest, later.oldest) == (timedelta(seconds=5), None)
