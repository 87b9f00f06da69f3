"""Jobs that are pushed: what endpoints answer is what becomes of them."""

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from functools import partial

from onefold import Onefold
from onefold.model.queue import SigningSecret
from onefold.model.retry import Fixed
from onefold.push.push_worker import UNPROVEN_LIMIT, PushWorker
from onefold.testing.clock import Clock
from onefold.web.http import HttpRequest
from onefold.web.webhooks import StandardWebhooks, verify
from tests.fixtures.colours import Store
from tests.push.receiver import Manner, Received, Receiver, hangs, says
from tests.push.stage import SECRET, has, job_of, make_queue, publish, pushing, queue_of
from tests.worker.stage import ended, until


async def test_a_job_is_pushed_signed_and_finished(onefold: Onefold) -> None:
    async with Receiver(says(200, body=b"thanks")) as receiver, pushing(onefold):
        await make_queue(onefold, receiver, headers={"X-Team": "billing"})
        (job_id,) = await publish(onefold)
        await ended(onefold, job_id)

    (received,) = receiver.received
    assert received.envelope["payload"] == {"number": 0}
    assert received.headers["x-team"] == "billing"
    request = HttpRequest(method="POST", path="/hook", headers=tuple(received.headers.items()))
    provider = StandardWebhooks(SECRET)
    now = (await job_of(onefold, job_id)).created_at
    assert verify(provider, request, received.body, now).id == job_id
    job = await job_of(onefold, job_id)
    assert (job.state, job.attempt) == ("completed", 1)
    said = job.pushed or {}
    assert (said["fence"], said["status"], said["excerpt"]) == (1, 200, "thanks")
    assert said["duration"] > 0


async def test_a_tenants_jobs_go_to_the_tenants_endpoint(onefold: Onefold) -> None:
    async with Receiver() as theirs, Receiver() as ours, pushing(onefold):
        await make_queue(onefold, ours)
        queue = await make_queue(onefold, theirs, tenant="acme")
        acme = onefold.tenant("acme")
        enqueued = await acme.aenqueue("charge", {}, queue=queue)
        await publish(onefold)
        await until(lambda: theirs.received and ours.received)

    assert theirs.told("id") == [enqueued.id]
    assert theirs.told("queue") == ours.told("queue") == ["hooks"]


async def test_a_failure_is_tried_again_and_the_history_tells_of_each(onefold: Onefold) -> None:
    manners = (says(500, body=b"oh no\x00"), says(302), says(404), says(200))
    async with Receiver(*manners) as receiver, pushing(onefold):
        await make_queue(onefold, receiver)
        (job_id,) = await publish(onefold)
        await ended(onefold, job_id)

    assert receiver.told("attempt") == [1, 2, 3, 4]
    assert receiver.told("fence") == [1, 2, 3, 4]
    assert len({received.headers["webhook-id"] for received in receiver.received}) == 1
    *failed, done = await onefold.deliveries.aattempts(job_id)
    assert done.outcome == "completed"
    errors = [attempt.error or {} for attempt in failed]
    assert [error["status"] for error in errors] == [500, 302, 404]
    assert errors[0]["type"] == "PushFailed"
    assert errors[0]["excerpt"] == "oh no"


async def test_a_hundred_times_too_many_requests_cost_no_attempt(store: Store) -> None:
    clock = Clock()
    manners: list[Manner] = [
        says((429, 503, 529)[number % 3], ("Retry-After", str(number + 1))) for number in range(100)
    ]
    onefold = store.open(clock=clock)
    async with Receiver(*manners, says(200)) as receiver, pushing(onefold) as courier:
        await make_queue(onefold, receiver)
        (job_id,) = await publish(onefold)
        for number in range(1, 101):
            await until(partial(_is_deferred, onefold, job_id, fence=number))
            assert len(receiver.received) == number
            clock.advance(timedelta(seconds=number))
            courier.changed()
        await ended(onefold, job_id)

    job = await job_of(onefold, job_id)
    assert (job.state, job.attempt, job.fence) == ("completed", 1, 101)
    assert set(receiver.told("attempt")) == {1}
    assert receiver.told("deferCount") == list(range(101))


async def _is_deferred(onefold: Onefold, job_id: str, *, fence: int) -> bool:
    job = await job_of(onefold, job_id)
    return job.state in {"ready", "scheduled"} and job.fence == fence and job.attempt == 0


async def test_pressure_holds_the_queue_and_lets_one_probe_through(store: Store) -> None:
    clock = Clock()
    onefold = store.open(clock=clock)
    async with Receiver(says(429), says(429), says(200)) as receiver:
        await make_queue(onefold, receiver, concurrency=1)
        ids = await publish(onefold, 5)
        async with pushing(onefold) as courier:
            for pushes in (1, 2):
                await until(partial(_is_held, onefold, "backpressure", since=clock.now))
                assert len(receiver.received) == pushes
                clock.advance(timedelta(seconds=61))
                courier.changed()
            await ended(onefold, *ids)
            await until(lambda: _is_open(onefold))

    assert len(receiver.received) == 7
    assert [(await job_of(onefold, one)).attempt for one in ids] == [1] * 5


async def _is_held(onefold: Onefold, why: str, *, since: datetime) -> bool:
    """Held, and the job of the push put off: it is, from then on, by a second transaction."""
    queue = await queue_of(onefold)
    held = queue.held_why == why and queue.held_until is not None and queue.held_until > since
    return held and not await onefold.afind(state="running")


async def _is_open(onefold: Onefold) -> bool:
    queue = await queue_of(onefold)
    return queue.held_until is None and queue.failures == 0


async def test_an_endpoint_that_is_down_is_left_alone_but_for_a_probe(store: Store) -> None:
    clock = Clock()
    onefold = store.open(clock=clock)
    is_down = True

    def by(_: Received) -> Manner:
        return says(500) if is_down else says(200)

    async with Receiver(by=by) as receiver:
        await make_queue(onefold, receiver, concurrency=1)
        ids = await publish(onefold, 20, max_attempts=50)
        async with pushing(onefold) as courier:
            for pushes, seconds in enumerate((1, 2, 4), 5):
                await until(partial(_is_held, onefold, "circuit", since=clock.now))
                assert len(receiver.received) == pushes
                clock.advance(timedelta(seconds=seconds))
                courier.changed()
            await until(partial(_is_held, onefold, "circuit", since=clock.now))
            is_down = False
            clock.advance(timedelta(seconds=8))
            courier.changed()
            await ended(onefold, *ids)
            await until(lambda: _is_open(onefold))

    assert len(receiver.received) == 8 + 20


async def test_many_pushes_that_fail_together_are_one_outage(store: Store) -> None:
    clock = Clock()
    onefold = store.open(clock=clock)
    together = asyncio.Barrier(30)
    begun: list[Received] = []

    async def fails(received: Received, writer: asyncio.StreamWriter) -> None:
        begun.append(received)
        if len(begun) == 1:
            await says(200)(received, writer)
            return
        await together.wait()
        await says(500)(received, writer)

    async with Receiver(fails) as receiver:
        await make_queue(onefold, receiver)
        # An endpoint that has answered may have many pushes at once.
        (first,) = await publish(onefold, 1)
        async with pushing(onefold):
            await until(partial(has, onefold, first, state="completed"))
            ids = await publish(onefold, 30, backoff=Fixed(timedelta(hours=1)))
            for job_id in ids:
                await until(partial(has, onefold, job_id, state="retrying", attempt=1))

    queue = await queue_of(onefold)
    assert queue.held_until == clock.now + timedelta(seconds=1)
    assert queue.failures == 5


async def test_an_endpoint_that_never_answered_has_few_pushes_at_once(onefold: Onefold) -> None:
    silent = asyncio.Event()
    begun: list[Received] = []

    async def waits(received: Received, writer: asyncio.StreamWriter) -> None:
        begun.append(received)
        await silent.wait()
        await says(200)(received, writer)

    async with Receiver(waits) as receiver:
        await make_queue(onefold, receiver)
        ids = await publish(onefold, 12)
        async with pushing(onefold):

            async def are_few() -> bool:
                return len(begun) == UNPROVEN_LIMIT

            await until(are_few)
            assert sum([(await job_of(onefold, i)).state == "running" for i in ids]) == 4
            silent.set()
            for job_id in ids:
                await until(partial(has, onefold, job_id, state="completed"))


class Mortal:
    """Endpoints that answer until they die, all at the same moment."""

    def __init__(self) -> None:
        self.dead = False
        self.hanging: Counter[str] = Counter()
        """Pushes that nobody will answer, by queue."""

    def by(self, received: Received) -> Manner:
        if not self.dead or received.envelope["queue"] == "healthy":
            return says(200)
        self.hanging[str(received.envelope["queue"])] += 1
        return hangs


async def test_many_endpoints_that_die_together_leave_places_to_a_healthy_one(
    onefold: Onefold,
) -> None:
    mortal = Mortal()
    dying = [f"dying{number}" for number in range(8)]
    async with Receiver(by=mortal.by) as receiver:
        for queue in (*dying, "healthy"):
            await make_queue(onefold, receiver, queue, timeout=timedelta(seconds=600))
        first = [(await publish(onefold, queue=queue))[0] for queue in (*dying, "healthy")]
        async with pushing(
            onefold,
            concurrency=40,
            connections=40,
            refresh=timedelta(minutes=1),
            grace=timedelta(milliseconds=500),
        ):
            await ended(onefold, *first)  # all of them have answered, and are trusted
            mortal.dead = True
            for queue in dying:
                await publish(onefold, 20, queue=queue)
            await until(lambda: len(mortal.hanging) == len(dying))
            ids = await publish(onefold, 50, queue="healthy")
            await ended(onefold, *ids)

    assert sum(mortal.hanging.values()) < 40


async def test_an_endpoint_that_is_alone_has_nearly_all_places(onefold: Onefold) -> None:
    mortal = Mortal()
    async with Receiver(by=mortal.by) as receiver:
        await make_queue(onefold, receiver, timeout=timedelta(seconds=600))
        await make_queue(onefold, receiver, "healthy")
        (first,) = await publish(onefold)
        async with pushing(
            onefold, concurrency=16, per_queue=16, grace=timedelta(milliseconds=500)
        ):
            await ended(onefold, first)
            mortal.dead = True
            await publish(onefold, 20)
            await until(lambda: mortal.hanging["hooks"] == 14)
            ids = await publish(onefold, 10, queue="healthy")
            await ended(onefold, *ids)

    assert mortal.hanging["hooks"] == 14


async def test_gone_pauses_the_queue_and_burns_no_attempt(store: Store) -> None:
    clock = Clock()
    onefold = store.open(clock=clock)
    async with Receiver(says(410), says(200)) as receiver, pushing(onefold):
        await make_queue(onefold, receiver)
        (job_id,) = await publish(onefold)
        await until(lambda: _is_deferred(onefold, job_id, fence=1))
        queue = await queue_of(onefold)
        assert queue.paused
        assert queue.paused_reason == "its endpoint answered 410 Gone"
        assert queue.signing_secret == SECRET
        clock.advance(timedelta(minutes=2))
        await onefold.queues.aresume("hooks")
        await ended(onefold, job_id)

    job = await job_of(onefold, job_id)
    assert (job.state, job.attempt) == ("completed", 1)


async def test_an_endpoint_that_is_gone_pauses_nothing_once_there_is_another(store: Store) -> None:
    clock = Clock()
    onefold = store.open(clock=clock)
    async with Receiver() as new:

        async def moves(received: Received, writer: asyncio.StreamWriter) -> None:
            await make_queue(onefold, new)
            await says(410)(received, writer)

        async with Receiver(moves) as old, pushing(onefold) as courier:
            await make_queue(onefold, old)
            (job_id,) = await publish(onefold)
            await until(lambda: _is_deferred(onefold, job_id, fence=1))
            await until(partial(_knows, courier, new.url))
            clock.advance(timedelta(minutes=1))
            courier.changed()
            await ended(onefold, job_id)

    assert (len(old.received), new.told("attempt")) == (1, [1])


async def test_queues_come_change_and_go_while_it_runs(onefold: Onefold) -> None:
    async with (
        Receiver() as first,
        Receiver() as second,
        pushing(onefold, refresh=timedelta(minutes=1)) as courier,
    ):
        for receiver in (first, second):
            await make_queue(onefold, receiver)
            courier.changed()
            await until(partial(_knows, courier, receiver.url))
            (job_id,) = await publish(onefold)
            await ended(onefold, job_id)
        await make_queue(onefold, None)
        courier.changed()
        await until(lambda: not courier._queues)
        (left,) = await publish(onefold)
        (taken,) = await onefold.deliveries.atake(["hooks"], worker="w", lease=timedelta(minutes=1))
        assert taken.id == left

    assert (len(first.received), len(second.received)) == (1, 1)


def _knows(courier: PushWorker, url: str) -> bool:
    queue = courier._known.get("hooks")
    return queue is not None and queue.endpoint == url


async def test_secrets_are_rotated_while_it_runs(onefold: Onefold) -> None:
    new, old = SigningSecret("whsec_" + "bmV3" * 8), SigningSecret(SECRET)
    async with Receiver() as receiver, pushing(onefold) as courier:
        for secrets in ((old,), (new, old), (new,)):
            await make_queue(
                onefold,
                receiver,
                signing_secret=secrets[0].secret,
                previous_secrets=secrets[1:],
            )
            courier.changed()
            await until(partial(_signs_with, courier, secrets))
            (job_id,) = await publish(onefold)
            await ended(onefold, job_id)

    signed = [one.headers["webhook-signature"].split() for one in receiver.received]
    assert [len(signatures) for signatures in signed] == [1, 2, 1]


def _signs_with(courier: PushWorker, secrets: tuple[SigningSecret, ...]) -> bool:
    queue = courier._known.get("hooks")
    return queue is not None and queue.secrets == secrets


async def test_an_endpoint_inside_is_refused_with_a_sentence(onefold: Onefold) -> None:
    async with pushing(onefold, allow=()):
        await make_queue(onefold, "http://127.0.0.1:9/")
        (job_id,) = await publish(onefold, max_attempts=1)
        await ended(onefold, job_id)

    job = await job_of(onefold, job_id)
    assert job.error is not None
    assert job.error["message"].startswith("endpoint ")


# --- the end --------------------------------------------------------------------------------------


async def test_a_push_under_way_is_waited_for_at_the_end(onefold: Onefold) -> None:
    goes = asyncio.Event()

    async def waits(received: Received, writer: asyncio.StreamWriter) -> None:
        await goes.wait()
        await says(200)(received, writer)

    async with Receiver(waits) as receiver:
        await make_queue(onefold, receiver)
        (job_id,) = await publish(onefold)
        async with pushing(onefold):
            await until(lambda: receiver.received)
            asyncio.get_running_loop().call_soon(goes.set)

    job = await job_of(onefold, job_id)
    assert (job.state, job.attempt) == ("completed", 1)


async def test_what_does_not_end_within_the_grace_is_handed_back(onefold: Onefold) -> None:
    async with Receiver(hangs) as receiver:
        await make_queue(onefold, receiver, timeout=timedelta(seconds=600))
        (job_id,) = await publish(onefold)
        async with pushing(onefold, grace=timedelta(seconds=1)):
            await until(lambda: receiver.received)

    job = await job_of(onefold, job_id)
    assert (job.state, job.attempt) == ("ready", 0)
