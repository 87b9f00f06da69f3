"""Every call of both clients against the server itself: the in-process names, values and errors."""

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onefold import (
    AlreadyEnqueued,
    Busy,
    Ended,
    Exponential,
    Fixed,
    InvalidInput,
    JobNotFound,
    KeyReused,
    LeaseLost,
    NewJob,
    Onefold,
    QueueNotEmpty,
    QueueSettings,
    Retention,
    ScheduleNotFound,
)
from onefold.claims import Mismatch, Replay, Won
from onefold.client import AsyncClient, Client, NotAuthorized, nouns
from onefold.errors import QueueNotFound
from onefold.operations import workers
from onefold.operations.workers import WorkerRow
from tests.client.conftest import Connect
from tests.client.running import LEASE, Stage

NOBODY = "0199d0a0-0000-7000-8000-000000000001"


@pytest.fixture
def client(stage: Stage, connect: Connect) -> Any:
    return connect(stage.url)


def test_a_job_is_looked_at_found_cancelled_replayed_and_deleted(stage: Stage, client: Any) -> None:
    made = client.enqueue(
        "mail", {"to": 2**70}, queue="email", priority=3, tags=["a"], unique_key="u", group_key="g"
    )

    job = client.get(made.id)
    assert (job.id, job.kind, job.queue, job.payload) == (made.id, "mail", "email", {"to": 2**70})
    assert (job.state, job.attempt, job.fence) == ("ready", 0, 0)
    assert (job.priority, job.tags, job.unique_key, job.group_key) == (3, ("a",), "u", "g")
    assert (job.worker, job.error, client.deliveries.attempts(made.id)) == (None, None, [])
    stored = stage.onefold.get(made.id)
    assert stored is not None
    assert stored == msgspec.structs.replace(job, created_at=stored.created_at)
    assert job.created_at is not None
    assert job.run_at is not None
    assert "2**70" not in repr(job)
    assert client.get(NOBODY) is None
    assert [found.id for found in client.find(queue="email", tag="a")] == [made.id]
    assert client.cancel(made.id, reason="not wanted") is True
    assert client.cancel(made.id) is False
    cancelled = client.get(made.id)
    assert (cancelled.state, cancelled.reason) == ("cancelled", "not wanted")
    assert client.replay(made.id).inserted
    assert client.delete(made.id) is True
    assert client.delete(made.id) is False
    with pytest.raises(JobNotFound):
        client.cancel(NOBODY)


def test_duplicates_are_answered_and_raised_as_in_process(client: Any) -> None:
    first = client.enqueue("mail", {"n": 1}, queue="email", unique_key="u")

    again = client.enqueue("mail", {"n": 2}, queue="email", unique_key="u")
    assert (again.id, again.duplicate, again.mismatch) == (first.id, True, True)
    with pytest.raises(AlreadyEnqueued) as raised:
        client.enqueue("mail", {"n": 1}, queue="email", unique_key="u", on_duplicate="raise")
    assert (raised.value.holder_id, raised.value.key) == (first.id, "u")
    with pytest.raises(KeyReused):
        client.enqueue("mail", {"n": 3}, queue="email", unique_key="u", on_mismatch="raise")
    replaced = client.enqueue(
        "mail",
        {"n": 4},
        queue="email",
        unique_key="u",
        on_duplicate="replace",
        max_wait=timedelta(minutes=1),
    )
    assert replaced.replaced
    assert client.get(first.id).payload == {"n": 4}


def test_options_reach_the_job(stage: Stage, client: Any) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    made = client.enqueue(
        "mail",
        queue="email",
        run_at=later,
        max_attempts=3,
        unique_key="u",
        unique_for=timedelta(minutes=5),
        across_kinds=True,
        expires_at=later + timedelta(hours=1),
        timeout=timedelta(seconds=7),
        metadata={"by": "me"},
        store_result=True,
        request_id="r1",
        backoff=Fixed(timedelta(seconds=3)),
        retention=Retention(dead=timedelta(days=1)),
    )

    job = stage.onefold.get(made.id)
    assert job is not None
    assert (job.state, job.max_attempts) == ("scheduled", 3)
    other = client.enqueue("letter", queue="email", unique_key="u", across_kinds=True)
    assert other.id == made.id
    assert (job.timeout, job.metadata) == (timedelta(seconds=7), {"by": "me"})
    assert abs(job.run_at - later) < timedelta(milliseconds=1)
    assert job.expires_at == later + timedelta(hours=1)
    assert job.backoff == Fixed(timedelta(seconds=3))
    assert job.retention == Retention(dead=timedelta(days=1))


def test_many_are_stored_and_found_page_by_page(client: Any) -> None:
    many = client.enqueue_many(
        [NewJob("mail", {"n": n}, queue="email", unique_key=f"u{n % 4}") for n in range(6)]
    )

    assert (many.inserted, many.skipped) == (4, 2)
    assert many[4].id == many[0].id
    page = client.find(state=["ready"], limit=3)
    rest = client.find(limit=3, after=page.next)
    assert (len(page), len(rest), rest.next) == (3, 1, None)
    newest = client.find(newest_first=True)
    assert [job.id for job in newest] == [job.id for job in (*page, *rest)][::-1]


@pytest.fixture
def broken(stage: Stage, client: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client with five dead letters, of which a request may ask for two."""
    monkeypatch.setattr(nouns, "DEAD_JOBS", 2)
    client.enqueue_many([NewJob("mail", {"n": n}, queue="email") for n in range(5)])
    for job in stage.onefold.deliveries.take(["email"], limit=5, worker="w", lease=LEASE):
        client.deliveries.nack(job.id, retryable=False, reason="broken", fence=job.fence)
    return client


def test_dead_letters_go_round_again(broken: Any) -> None:
    client = broken
    assert len(client.dead.replay(queue="email", limit=3)) == 3
    assert len(client.dead.replay(queue="email", reason="broken")) == 2
    assert len(client.dead.replay(queue="email")) == 0
    with pytest.raises(InvalidInput, match="queue"):
        client.dead.replay()
    with pytest.raises(InvalidInput, match="must be dead"):
        client.dead.replay(queue="email", state="cancelled")
    with pytest.raises(InvalidInput, match="limit"):
        client.dead.replay(queue="email", limit=0)


def test_dead_letters_are_removed(broken: Any) -> None:
    client = broken
    assert client.dead.delete(queue="email", reason="another") == 0
    assert client.dead.delete(queue="email", limit=3) == 3
    client.queues.delete("email")
    assert client.dead.delete(queue="email", limit=4, reason="broken") == 2
    with pytest.raises(QueueNotFound):
        client.dead.delete(queue="email")
    with pytest.raises(InvalidInput, match="must be dead"):
        client.dead.delete(queue="email", state="completed")


def test_a_job_says_why_it_waits(stage: Stage, client: Any) -> None:
    made = client.enqueue("welcome", queue="email", delay=timedelta(hours=1))

    found = client.deliveries.why(made.id)

    assert found == stage.onefold.deliveries.why(made.id)
    assert (found.code, found.facts.kind) == ("scheduled", "welcome")


def test_statistics_and_workers_are_read(stage: Stage, client: Any) -> None:
    job = stage.taken()
    row = WorkerRow(job.id, "one", "host", 7, ("email",), ("welcome",), 5)
    stage.onefold.context.store.transact(lambda sql: workers.save(sql, row))

    client.deliveries.acknowledge(job.id)

    minutes = timedelta(minutes=10)
    read = client.statistics.read(last=minutes, width=minutes / 2, queue="email")
    assert (read.width, len(read.buckets), read.total.completed) == (minutes / 2, 2, 1)
    assert read.total == stage.onefold.statistics.read(last=minutes, width=minutes).total
    found = client.workers.find()
    assert found == stage.onefold.workers.find()
    shown = [(one.name, one.queues, one.kinds, one.alive) for one in found]
    assert shown == [("one", ("email",), ("welcome",), True)]


def test_schedules_are_made_paused_and_removed(client: Any) -> None:
    options: dict[str, Any] = {
        "kind": "report",
        "payload": {"region": "eu"},
        "queue": "email",
        "tz": "Europe/Berlin",
        "catch_up": "all",
        "catch_up_most": 7,
        "priority": -3,
        "delay": timedelta(seconds=90),
        "max_attempts": 2,
        "unique_key": "u",
        "unique_while": "queued",
        "unique_for": LEASE,
        "group_key": "g",
        "tags": ("a",),
        "metadata": {"by": "me"},
    }
    made = client.schedules.save("nightly", "0 2 * * *", **options)
    assert {name: getattr(made, name) for name in options} == options
    assert (made.name, made.cron, made.paused) == ("nightly", "0 2 * * *", False)
    assert made.next_tick is not None
    assert "region" not in repr(made)
    assert client.schedules.find() == [made]
    assert [client.schedules.pause("nightly") for _ in range(2)] == [True, False]
    assert client.schedules.find()[0].next_tick is None
    assert [client.schedules.resume("nightly") for _ in range(2)] == [True, False]
    plain = client.schedules.save("nightly", "@daily", kind="report", queue="email")
    assert (plain.payload, plain.tags, plain.max_attempts) == ({}, (), 8)
    assert [client.schedules.delete("nightly") for _ in range(2)] == [True, False]

    saved = client.schedules.save("s", "@daily", kind="a", payload=None, queue="email")
    assert saved.payload is None


def test_a_schedule_that_cannot_be_is_refused_by_name(client: Any) -> None:
    with pytest.raises(ScheduleNotFound):
        client.schedules.pause("nobody's")
    with pytest.raises(QueueNotFound):
        client.schedules.save("nightly", "@daily", kind="report")
    for option, value in [("cron", "every day"), ("tz", "Mars"), ("priority", 10**6)]:
        with pytest.raises(InvalidInput) as refused:
            client.schedules.save(
                "nightly", **{"cron": "@daily", "kind": "a", "queue": "email", option: value}
            )
        assert refused.value.field == option
    for option, value in [("delay", 5), ("metadata", {"a": object()})]:
        with pytest.raises(InvalidInput) as refused:
            client.schedules.save("nightly", "@daily", kind="a", queue="email", **{option: value})
        assert refused.value.field == option
    assert client.schedules.find() == []


def test_all_schedules_are_found(client: Any) -> None:
    names = [f"s{number:02}" for number in range(33)]
    for name in names:
        client.schedules.save(name, "@daily", kind="report", queue="email")
    assert [schedule.name for schedule in client.schedules.find()] == names


def test_text_that_is_not_valid_unicode_is_rejected_before_a_request(client: Any) -> None:
    with pytest.raises(InvalidInput, match="valid Unicode"):
        client.enqueue("mail", queue="email", unique_key="\ud800")
    with pytest.raises(InvalidInput, match="valid Unicode"):
        client.schedules.save("s", "@daily", kind="a", queue="email", tags=["\ud800"])
    jobs = [NewJob("mail", queue="email"), NewJob("mail", queue="email", unique_key="\ud800")]
    with pytest.raises(InvalidInput, match="valid Unicode") as rejected:
        client.enqueue_many(jobs)
    assert rejected.value.item == 1
    assert not client.find().jobs


def test_a_delivery_is_acknowledged_once_and_a_stale_fence_is_told(
    stage: Stage, client: Any
) -> None:
    job = stage.taken()

    beat = client.deliveries.heartbeat_job(job.id, fence=job.fence, lease=timedelta(seconds=90))
    assert (beat.status, beat.state) == ("accepted", "running")
    assert client.get(job.id).lease_until > job.lease_until
    with pytest.raises(LeaseLost):
        client.deliveries.acknowledge(job.id, fence=job.fence + 1)
    ended = client.deliveries.acknowledge(job.id, fence=job.fence, result={"sent": 1})
    assert ended == Ended(job.id, job.fence, "accepted", "completed")
    assert client.deliveries.acknowledge(job.id, fence=job.fence).status == "already"
    done = client.get(job.id)
    (attempt,) = client.deliveries.attempts(job.id)
    assert (done.state, attempt.outcome) == ("completed", "completed")
    assert [attempt] == stage.onefold.deliveries.attempts(job.id)


def test_a_delivery_is_deferred_or_fails(stage: Stage, client: Any) -> None:
    job = stage.taken()

    client.deliveries.defer_job(job.id, after=timedelta(0), reason="busy", fence=job.fence)
    (again,) = stage.onefold.deliveries.take(["email"], limit=1, worker="w", lease=LEASE)
    assert (again.id, again.attempt) == (job.id, 1)
    client.deliveries.nack(job.id, reason="no paper", fence=again.fence)
    attempts = client.deliveries.attempts(job.id)
    assert client.get(job.id).state == "retrying"
    assert [attempt.outcome for attempt in attempts] == ["deferred", "retried"]
    with pytest.raises(JobNotFound):
        client.deliveries.nack(NOBODY)
    with pytest.raises(InvalidInput):
        client.deliveries.nack(job.id, fence=-1)


def test_a_key_is_claimed_settled_renewed_and_released(client: Any) -> None:
    won = client.claim("import", "k", fingerprint="f", lease=timedelta(seconds=30))
    assert isinstance(won, Won)
    assert (won.claim.key.scope, won.claim.guarantee) == ("import", "at most once")
    busy = client.claim("import", "k", fingerprint="f")
    assert isinstance(busy, Busy)
    assert timedelta(0) < busy.retry_after <= timedelta(seconds=30)
    assert isinstance(client.claim("import", "k", fingerprint="g"), Mismatch)
    assert client.keys.renew(won.claim, lease=timedelta(seconds=60)) > won.claim.lease_until
    client.keys.settle(won.claim, {"n": 1})
    replay = client.claim("import", "k", fingerprint="f")
    assert isinstance(replay, Replay)
    assert replay.result == {"n": 1}
    other = client.claim("import", "other", takeover="rerun", retention=timedelta(hours=1))
    assert other.claim.guarantee == "at least once"
    assert client.keys.release(other.claim) is True
    assert client.keys.release(other.claim) is False
    assert client.keys.renew(other.claim) is None
    with pytest.raises(LeaseLost):
        client.keys.settle(other.claim)
    with pytest.raises(InvalidInput, match="result"):
        client.keys.settle(other.claim, {1j})
    with pytest.raises(InvalidInput, match="claim"):
        client.keys.settle("no claim")


def test_queues_are_saved_paused_counted_and_removed(client: Any) -> None:
    options: dict[str, Any] = {
        "endpoint": "https://example.com/jobs",
        "mode": "ack",
        "max_attempts": 5,
        "backoff": Fixed(timedelta(seconds=3)),
        "rate_limit": "100/m",
        "concurrency": 4,
        "timeout": timedelta(seconds=5),
        "ack_timeout": timedelta(minutes=10),
        "ack_timeout_action": "dead",
        "retention": Retention(dead=timedelta(days=3)),
        "headers": {"X-Shop": "1"},
    }
    saved = client.queues.save("payments", QueueSettings(**options))
    assert {name: getattr(saved, name) for name in options} == options
    assert saved.signing_secret.startswith("whsec_")
    assert saved.signing_secret not in repr(saved)
    fresh = client.queues.rotate_secret("payments", overlap=timedelta(hours=1))
    assert fresh not in {saved.signing_secret, None}

    later = client.queues.save("payments", QueueSettings(backoff=Exponential(cap=LEASE)))
    assert (later.mode, later.headers, later.signing_secret) == ("standard", {}, fresh)
    client.queues.pause("payments")
    client.enqueue("charge", queue="payments")
    seen = client.queues.get("payments")
    assert (seen.paused, seen.counts.ready) == (True, 1)
    client.queues.resume("payments")
    assert [queue.name for queue in client.queues.find()] == ["email", "payments"]
    page = client.queues.find(limit=1)
    assert [queue.name for queue in client.queues.find(after=page.next)] == ["payments"]
    assert client.queues.get("nobody") is None
    with pytest.raises(QueueNotEmpty) as rejected:
        client.queues.delete("payments")
    assert rejected.value.name == "payments"
    assert client.queues.delete("payments", force=True) is True
    assert client.queues.delete("payments") is False


def test_a_queue_that_was_read_is_not_saved_without_its_headers(client: Any) -> None:
    saved = client.queues.save("mail", QueueSettings(headers={"X-Team": "a"}))
    assert client.queues.save("mail", saved).headers == {"X-Team": "a"}
    read = client.queues.get("mail")

    with pytest.raises(InvalidInput, match="X-Team") as rejected:
        client.queues.save("mail", read)
    assert rejected.value.field == "headers"
    again = client.queues.save("mail", msgspec.structs.replace(read, headers={"X-Team": "b"}))
    assert again.headers == {"X-Team": "b"}


def test_keys_are_listed_asked_about_and_forced(stage: Stage, client: Any) -> None:
    made = client.enqueue("mail", {"n": 1}, queue="email", unique_key="order:1")
    client.enqueue("mail", {"n": 1}, queue="email", unique_key="order:1", request_id="r-2")

    (holder,) = client.keys.why("order:1", surface="job", payload={"n": 1})
    assert (holder.job.id, holder.matches, holder.suppressed.count) == (made.id, True, 1)
    assert holder.suppressed.recent[0].request_id == "r-2"
    client.claim("import", "k")
    (key,) = client.keys.find(surface="once", state="held")
    assert (key.surface, key.scope, key.key, key.state) == ("once", "import", "k", "held")
    assert client.keys.force_settle("import", "k", {"n": 2}) is True
    assert client.claim("import", "k").result == {"n": 2}
    assert client.keys.force_release("import", "k") is True
    for dots in (".", ".."):
        client.claim("import", dots)
        assert client.keys.force_release("import", dots) is True, "no part of the path is lost"
    lock = stage.onefold.lock("ledger")
    lock.acquire()
    assert [client.keys.unlock("ledger") for _ in range(2)] == [True, False]
    lock.release()
    assert isinstance(client.claim("import", "k"), Won)


def test_an_api_key_is_asked_for_once_there_is_one(
    stage: Stage, client: Any, connect: Connect
) -> None:
    text = stage.onefold.api_keys.create("acme", scopes=["publish"]).text

    with pytest.raises(NotAuthorized) as refused:
        client.enqueue("mail", queue="email")
    assert refused.value.answered == 401
    with pytest.raises(NotAuthorized) as refused:
        connect(stage.url, api_key=text).queues.save("email")
    assert refused.value.answered == 403
    with pytest.raises(QueueNotFound):
        connect(stage.url, api_key=text).enqueue("mail", queue="email")


RETURN_OBJECTS = {"once", "lock", "steps", "events"}
"""Not coroutines: their objects are awaited."""

ONLY_REMOTE = {"events", "steps"}
"""The library has hooks instead of events; steps belong to the run of a handler."""

NOUNS = ("queues", "keys", "schedules", "dead", "deliveries", "statistics", "workers")


def methods_of(kind: type) -> dict[str, Any]:
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_both_clients_have_the_same_calls() -> None:
    blocking, awaited = methods_of(Client), methods_of(AsyncClient)

    assert blocking.keys() == awaited.keys()
    for name, method in blocking.items():
        given, other = inspect.signature(method), inspect.signature(awaited[name])
        assert given.parameters == other.parameters, name
        if name not in RETURN_OBJECTS:
            assert inspect.iscoroutinefunction(awaited[name]), name
            assert not inspect.iscoroutinefunction(method), name
        if name not in RETURN_OBJECTS | {"close"}:
            assert method.__doc__ == awaited[name].__doc__, name


def test_both_clients_have_the_same_nouns() -> None:
    blocking, awaited = Client("http://localhost"), AsyncClient("http://localhost")

    assert vars(blocking).keys() == vars(awaited).keys()
    assert not inspect.iscoroutinefunction(blocking.queues.pause)
    assert inspect.iscoroutinefunction(awaited.queues.pause)


def test_calls_have_the_names_that_they_have_in_the_library() -> None:
    assert {name for name in methods_of(Client) if not hasattr(Onefold, name)} == ONLY_REMOTE


def test_nouns_have_the_calls_that_they_have_in_the_library(sqlite_url: str) -> None:
    client = Client("http://localhost")
    with Onefold(sqlite_url) as onefold:
        for noun in NOUNS:
            calls = methods_of(getattr(client, noun).__class__)
            assert not [name for name in calls if not hasattr(getattr(onefold, noun), name)], noun
