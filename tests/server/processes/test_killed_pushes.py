"""Servers that push: one is killed and another goes on; several processes share one hold."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.client.scripted import Act, Asked, Scripted, Silence, answer
from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.fixtures.serving import Serving
from tests.kill.workers import until
from tests.server.processes.conftest import Serve

DEATHS = repetitions(1, soak=20)
JOBS = repetitions(6, soak=40)
HELD = 4
"""Pushes at once to an endpoint that has not answered yet."""
LEASE = 60_000_000


class Push(NamedTuple):
    """A request that the endpoint has got."""

    id: str
    fence: int
    attempt: int


class Endpoint(Scripted):
    """It answers 200, unless it is told to keep everybody waiting."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.pushes: list[Push] = []
        self.hanging = threading.Event()

    def _answer(self, asked: Asked) -> Act:
        told = json.loads(asked.body)
        self.pushes.append(Push(told["id"], told["fence"], told["attempt"]))
        if self.hanging.is_set():
            # Half of them are answering, and have not come to the end of that.
            return Silence(b"HTTP/1.1 200 OK\r\nContent-Le" if len(self.pushes) % 2 else b"")
        return answer(200)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        yield endpoint


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_what_a_killed_server_was_pushing_is_pushed_by_the_next(
    place: Place, serve: Serve, endpoint: Endpoint
) -> None:
    """The endpoint has the requests, and is answering some of them, when their sender dies."""
    flags = ("--push-allow", "127.0.0.1", "--no-access-log")
    server = serve(place, *flags)
    _make(server, "payments", endpoint)
    for _ in range(DEATHS):
        server = _one_death(place, server, partial(serve, place, *flags), endpoint)


def _one_death(
    place: Place, server: Serving, start: Callable[[], Serving], endpoint: Endpoint
) -> Serving:
    before = len(endpoint.pushes)
    endpoint.hanging.set()
    ids = [_publish(server, "payments") for _ in range(JOBS)]
    until(lambda: len(endpoint.pushes) >= before + HELD, "for pushes that hang")
    server.kill()
    dead = {lease.worker for lease in _leases(place)}
    endpoint.hanging.clear()
    another = start()

    def held() -> set[str]:
        return {lease.id for lease in _leases(place) if lease.worker in dead}

    # What the dead one had is not anybody's until its lease is over, and not for longer.
    until(lambda: _completed(another, set(ids) - held()), "for what nobody had begun")
    leases = _leases(place)
    cut = {lease.id for lease in leases}
    assert len(cut) >= HELD
    assert all(lease.worker in dead and lease.ends_in <= LEASE for lease in leases)
    _end_leases(place)
    until(lambda: _completed(another, cut), "for what was cut off")

    for job_id in ids:
        job = _job(another, job_id)
        attempts = another.ask("GET", f"/v1/jobs/{job_id}/attempts").json["items"]
        words = [(each["fence"], each["outcome"]) for each in attempts]
        expected = [(1, "lease expired"), (2, "completed")] if job_id in cut else [(1, "completed")]
        assert (words, job["attempts"]) == (expected, len(expected))
    pushes = endpoint.pushes[before:]
    assert len(set(pushes)) == len(pushes)
    assert {push.id for push in pushes if push.fence == 1} >= set(ids) - cut
    assert {push.id for push in pushes if push.fence == 2} == cut
    assert all(push.attempt == push.fence for push in pushes)
    return another


@pytest.mark.prove
def test_acks_that_a_killed_server_waited_for_are_waited_for_by_the_next(
    place: Place, serve: Serve, endpoint: Endpoint
) -> None:
    flags = ("--push-allow", "127.0.0.1", "--no-access-log")
    server = serve(place, *flags)
    _make(server, "acks", endpoint, mode="ack", ackTimeout=1)
    job_id = _publish(server, "acks")
    until(lambda: _job(server, job_id)["state"] == "awaiting", "for the push")
    server.kill()

    server = serve(place, *flags)
    until(lambda: endpoint.pushes[-1].fence >= 2, "for another push")
    until(lambda: _job(server, job_id)["state"] == "awaiting", "for another push to be stored")
    assert server.ask("POST", f"/v1/jobs/{job_id}/ack").status == 200

    first, *_, last = _job(server, job_id)["history"]
    assert (first["error"], first["webhookStatusCode"]) == ("no ack within the ack timeout", 200)
    assert last["status"] == "success"


def test_after_a_defer_of_the_queue_all_processes_wait_for_the_ack_of_the_probe(
    place: Place, serve: Serve, endpoint: Endpoint
) -> None:
    server = serve(place, "--processes", "2", "--push-allow", "127.0.0.1", "--no-access-log")
    _make(server, "acks", endpoint, mode="ack")
    payload = b'{"exact": 0.12345678901234567890, "e": 1e5, "tiny": 1e-400}'
    published = server.ask("POST", "/v1/queues/acks/jobs", b'{"payload": %s}' % payload)
    first: str = published.json["id"]
    until(lambda: _job(server, first)["state"] == "awaiting", "for the push")
    # As the bytes that came, on the way in and on both ways out.
    assert b'"payload":%s,' % payload in endpoint.asked[0].body
    assert b'"payload":%s,' % payload in server.ask("GET", f"/v1/jobs/{first}").body
    assert server.ask("POST", f"/v1/jobs/{first}/defer", {"retryAfter": 0.2}).status == 200
    ids = [first, *(_publish(server, "acks") for _ in range(5))]

    def awaiting() -> list[str]:
        return [job_id for job_id in ids if _job(server, job_id)["state"] == "awaiting"]

    until(lambda: len(awaiting()) == 1, "for the probe")
    assert server.ask("GET", "/v1/queues/acks").json["heldUntil"] is not None
    assert len(endpoint.pushes) == 2
    (probe,) = awaiting()
    assert server.ask("POST", f"/v1/jobs/{probe}/ack").status == 200
    until(lambda: len(awaiting()) == 5, "for all others")
    assert len(set(endpoint.pushes)) == len(endpoint.pushes) == 7


def _make(server: Serving, queue: str, endpoint: Endpoint, **settings: object) -> None:
    backoff = {"type": "fixed", "base": 0}
    said = {"endpoint": endpoint.url, "timeout": 600, "backoff": backoff, **settings}
    made = server.ask("PUT", f"/v1/queues/{queue}", said)
    assert made.status == 201, made.body


def _publish(server: Serving, queue: str) -> str:
    published = server.ask("POST", f"/v1/queues/{queue}/jobs", {"payload": {}})
    assert published.status == 201, published.body
    return str(published.json["id"])


def _job(server: Serving, job_id: str) -> Any:
    return server.ask("GET", f"/v1/jobs/{job_id}").json


def _completed(server: Serving, ids: set[str]) -> bool:
    return all(_job(server, job_id)["state"] == "completed" for job_id in ids)


class Lease(NamedTuple):
    """A job that is running, as far as the database knows."""

    id: str
    worker: str
    ends_in: int
    """Microseconds."""


def _leases(place: Place) -> list[Lease]:
    rows = place.rows("select id, worker, lease_until from {job} where state = 1")
    now = time.time_ns() // 1_000
    return [Lease(str(job_id), worker, until - now) for job_id, worker, until in rows]


def _end_leases(place: Place) -> None:
    """Their time is over, as far as the database knows, and somebody does his chores."""
    with place.connection() as connection:
        table = place.table("job")
        connection.execute(f"update {table} set lease_until = 1 where state = 1")
    with place.open() as onefold:
        onefold.deliveries.rescue()
