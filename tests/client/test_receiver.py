"""A receiver of pushed jobs: what is signed is run once, and the server is told how it went."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from onefold import Bury, Busy, Cancel, Defer, Onefold, OutcomeUnknown, Retry
from onefold.client import AsyncClient, Client, PushedJob, Receiver
from onefold.errors import ConflictingOptions, InvalidInput, UsageError
from onefold.web.http import HttpRequest, HttpResponse
from onefold.web.webhooks import sign
from tests.client.scripted import Asked, Scripted, answer, problem, refusing
from tests.fixtures.patience import HANG
from tests.http.apps_talk import Talk, part, served_wsgi

SECRET = "whsec_" + "c2VjcmV0" * 4
OLD = "whsec_" + "b2xkb2xk" * 4
JOB = "0199d0a0-0000-7000-8000-000000000001"

Handler = Callable[[PushedJob], Any]


def body_of(**members: Any) -> bytes:
    job = {
        "id": JOB,
        "queue": "payments",
        "payload": {"amount": 5},
        "attempt": 1,
        "maxAttempts": 8,
        "deferCount": 0,
        "createdAt": "2026-11-15T10:00:00.000Z",
        "kind": "charge",
        "fence": 1,
        "generation": 0,
    }
    return json.dumps({**job, **members}).encode()


def signed(body: bytes, *, secret: str = SECRET, job_id: str = JOB) -> HttpRequest:
    headers = sign(secret, id=job_id, body=body, now=datetime.now(UTC))
    return HttpRequest(method="POST", path="/jobs", headers=headers)


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def onefold(sqlite_url: str) -> Iterator[Onefold]:
    with Onefold(sqlite_url) as onefold:
        onefold.migrate()
        yield onefold


class Endpoint:
    """A receiver of one colour, and what its handler saw."""

    def __init__(self, colour: str, **options: Any) -> None:
        self._colour = colour
        self.receiver = Receiver((SECRET, OLD), **options)
        self.seen: list[PushedJob] = []
        self.act: Handler = lambda _: None
        self.receiver.process(self._ahandle if colour == "async" else self._handle)

    def _handle(self, job: PushedJob) -> Any:
        self.seen.append(job)
        return self.act(job)

    async def _ahandle(self, job: PushedJob) -> Any:
        return self._handle(job)

    def send(self, **members: Any) -> HttpResponse:
        """A push, answered."""
        body = body_of(**members)
        request = signed(body)
        if self._colour == "async":
            return asyncio.run(self.receiver.areceive(request, body))
        return self.receiver.receive(request, body)


def raising(error: Exception) -> Handler:
    def act(_: PushedJob) -> Any:
        raise error

    return act


def always_new(_: PushedJob) -> bool:
    return True


def nothing(_: PushedJob) -> None:
    """Does nothing."""


def paid(_: PushedJob) -> dict[str, int]:
    return {"paid": 1}


def header(told: HttpResponse, name: str) -> str | None:
    return {key.lower(): value for key, value in told.headers}.get(name.lower())


def test_a_job_is_run_once_however_often_it_comes(colour: str, onefold: Onefold) -> None:
    endpoint = Endpoint(colour, dedupe=onefold)

    answers = [endpoint.send(attempt=n, fence=n) for n in (1, 2, 3)]

    assert [told.status for told in answers] == [200, 200, 200]
    (job,) = endpoint.seen
    assert (job.id, job.queue, job.kind, job.payload) == (JOB, "payments", "charge", {"amount": 5})
    assert (job.attempt, job.max_attempts, job.fence) == (1, 8, 1)
    assert job.created_at == datetime(2026, 11, 15, 10, tzinfo=UTC)
    assert job.key("stripe") == f"{JOB}:stripe"
    assert "amount" not in repr(job)


def test_a_fresh_replay_is_run_again(colour: str, onefold: Onefold) -> None:
    endpoint = Endpoint(colour, dedupe=onefold)
    endpoint.send()
    endpoint.send(generation=1)
    endpoint.send(generation=1, fence=2)

    assert [job.key("a") for job in endpoint.seen] == [f"{JOB}:a", f"{JOB}:1:a"]


def test_the_same_id_with_another_payload_is_refused(colour: str, onefold: Onefold) -> None:
    endpoint = Endpoint(colour, dedupe=onefold)
    endpoint.send()

    assert endpoint.send(payload={"amount": 500}).status == 500
    assert len(endpoint.seen) == 1


OUTCOMES: list[tuple[Exception, int, str | None]] = [
    (Defer(timedelta(seconds=30)), 503, "30"),
    (Retry(timedelta(seconds=9)), 500, "9"),
    (Retry(), 500, None),
    (Bury("never"), 500, None),
    (Cancel("not wanted"), 200, None),
]
ERRORS: list[tuple[Exception, int, str | None]] = [
    (ZeroDivisionError("by nought"), 500, None),
    (Busy(key="k", retry_after=timedelta(seconds=4)), 503, "4"),
]


@pytest.mark.parametrize(
    ("outcome", "status", "wait", "is_raised"),
    [*((*one, False) for one in OUTCOMES), *((*one, True) for one in (*OUTCOMES, *ERRORS))],
)
def test_what_a_handler_has_not_done_is_undone_and_comes_again(
    colour: str,
    onefold: Onefold,
    *,
    outcome: Exception,
    status: int,
    wait: str | None,
    is_raised: bool,
) -> None:
    endpoint = Endpoint(colour, dedupe=onefold)
    endpoint.act = raising(outcome) if is_raised else lambda _: outcome

    told = endpoint.send()

    assert (told.status, header(told, "Retry-After")) == (status, wait)
    endpoint.act = lambda _: None
    assert endpoint.send(attempt=2).status == 200
    assert [job.attempt for job in endpoint.seen] == [1, 2]


def test_a_delivery_beside_one_at_work_is_told_to_come_later(
    onefold: Onefold, sqlite_url: str
) -> None:
    begun, over = threading.Event(), threading.Event()
    hasty = Onefold(sqlite_url, busy_timeout=timedelta(milliseconds=50))
    endpoint = Endpoint("sync", dedupe=hasty)

    def slow(_: PushedJob) -> None:
        begun.set()
        assert over.wait(HANG)

    endpoint.act = slow
    first = threading.Thread(target=endpoint.send)
    first.start()
    assert begun.wait(HANG)
    told = endpoint.send(attempt=2, fence=2)
    over.set()
    first.join()
    hasty.close()

    assert told.status == 503
    assert header(told, "Retry-After") is not None
    assert len(endpoint.seen) == 1


def test_what_is_not_signed_by_the_server_is_not_run(onefold: Onefold) -> None:
    endpoint = Endpoint("sync", dedupe=onefold)
    wrong = {"secret": "whsec_" + "d3Jvbmch" * 4}, {"job_id": "msg_1"}

    for options in wrong:
        assert endpoint.receiver.receive(signed(body_of(), **options), body_of()).status == 401
    assert endpoint.seen == []


@pytest.mark.parametrize("payload", [b"1e400", b'"\xff"', b'"\\ud800"', None])
def test_a_body_that_cannot_be_read_is_refused(onefold: Onefold, payload: bytes | None) -> None:
    endpoint = Endpoint("sync", dedupe=onefold)
    job = body_of(payload=0).replace(b'"payload": 0', b'"payload": %b' % (payload or b"0"))
    body = b"{}" if payload is None else job
    assert payload is None or payload in body
    assert endpoint.receiver.receive(signed(body), body).status == 401
    assert endpoint.seen == []


def test_without_a_database_a_function_says_what_is_new(colour: str) -> None:
    seen: set[str] = set()

    def is_new(job: PushedJob) -> bool:
        known = job.id in seen
        seen.add(job.id)
        return not known

    async def is_new_later(job: PushedJob) -> bool:
        return is_new(job)

    for remember in (is_new, is_new_later) if colour == "async" else (is_new,):
        seen.clear()
        endpoint = Endpoint(colour, dedupe=remember)
        assert [endpoint.send().status for _ in range(2)] == [200, 200]
        assert len(endpoint.seen) == 1
        with pytest.raises(UsageError, match="no Onefold"):
            endpoint.seen[0].within()


class Told:
    """What a server was told, and a client that tells it."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.server = Scripted(self._answer)
        self.is_told = threading.Event()

    def _answer(self, asked: Asked) -> bytes:
        self.is_told.set()
        ended = {"id": JOB, "fence": 1, "status": "accepted", "state": "completed"}
        return self._answers.pop(0) if self._answers else answer(200, ended)

    @property
    def words(self) -> list[tuple[str, dict[str, Any]]]:
        return [
            (asked.path.rpartition("/")[2], json.loads(asked.body)) for asked in self.server.asked
        ]


ONCE: dict[str, Any] = {"tries": 1}


def telling(colour: str, url: str) -> Client | AsyncClient:
    return AsyncClient(url, **ONCE) if colour == "async" else Client(url, **ONCE)


@pytest.mark.parametrize(
    ("act", "word", "members"),
    [
        (paid, "ack", {"fence": 1, "result": {"paid": 1}}),
        (nothing, "ack", {"fence": 1}),
        (
            raising(Defer(timedelta(seconds=3))),
            "defer",
            {"fence": 1, "retryAfter": 3.0, "scope": "job"},
        ),
        (raising(Bury("never")), "nack", {"fence": 1, "retryable": False, "reason": "never"}),
        (
            raising(OutcomeUnknown(key="k")),
            "nack",
            {"fence": 1, "retryable": False, "reason": "unknown"},
        ),
        (
            raising(OutcomeUnknown(key="k", verifiable=True)),
            "nack",
            {"fence": 1, "retryable": True, "reason": "unknown"},
        ),
        (
            raising(ZeroDivisionError("by nought")),
            "nack",
            {"fence": 1, "retryable": True, "reason": "ZeroDivisionError: by nought"},
        ),
        (raising(Cancel("not wanted")), "cancel", {"reason": "not wanted"}),
    ],
)
def test_in_ack_mode_the_server_is_told_in_words(
    colour: str, onefold: Onefold, act: Handler, word: str, members: dict[str, Any]
) -> None:
    told = Told()
    with told.server as server:
        client = telling(colour, server.url)
        endpoint = Endpoint(colour, dedupe=onefold, mode="ack", client=client)
        endpoint.act = act
        body = body_of()

        async def receive() -> None:
            await endpoint.receiver.areceive(signed(body), body)
            assert isinstance(client, AsyncClient)
            await client.close()

        if isinstance(client, Client):
            endpoint.receiver.receive(signed(body), body)
            client.close()
        else:
            asyncio.run(receive())

    assert told.words == [(word, members)]


def test_a_redelivery_of_what_is_done_is_acknowledged_under_its_own_fence(onefold: Onefold) -> None:
    told = Told(problem(409, "lease_lost", subject="it", fence=1))
    with told.server as server, Client(server.url) as client:
        endpoint = Endpoint("sync", dedupe=onefold, mode="ack", client=client)
        assert endpoint.send(fence=1).status == 200
        assert endpoint.send(fence=2, attempt=2).status == 200

    assert [members["fence"] for _, members in told.words] == [1, 2]
    assert len(endpoint.seen) == 1


def test_who_cannot_tell_the_server_leaves_it_to_the_redelivery(
    colour: str, onefold: Onefold
) -> None:
    with refusing() as url:
        client = Client(url, **ONCE)
        endpoint = Endpoint(colour, dedupe=onefold, mode="ack", client=client)
        assert endpoint.send().status == 500
        endpoint = Endpoint(colour, dedupe=onefold, client=client, name="other")
        endpoint.act = raising(Bury("never"))
        assert endpoint.send().status == 500
        client.close()


def test_in_standard_mode_a_client_says_what_an_answer_cannot(onefold: Onefold) -> None:
    told = Told()
    with told.server as server, Client(server.url) as client:
        endpoint = Endpoint("sync", dedupe=onefold, client=client)
        assert endpoint.send().status == 200
        endpoint.act = raising(Bury("never"))
        assert endpoint.send(id=JOB, generation=1).status == 200

    assert told.words == [("nack", {"fence": 1, "retryable": False, "reason": "never"})]


async def test_an_asgi_application_in_ack_mode_answers_first_and_works_afterwards(
    onefold: Onefold,
) -> None:
    told, said_before = Told(), list[int]()
    body = body_of()
    with told.server as server:
        async with AsyncClient(server.url) as client:
            endpoint = Endpoint("async", dedupe=onefold, mode="ack", client=client)
            endpoint.act = lambda _: said_before.append(len(talk.said))
            talk = Talk(endpoint.receiver.asgi, part(body), key=None, headers=signed(body).headers)
            await talk.run()

    assert (talk.status, said_before) == (202, [2])
    assert [word for word, _ in told.words] == ["ack"]


def test_a_wsgi_application_in_ack_mode_answers_first_and_works_afterwards(
    onefold: Onefold,
) -> None:
    told, go_on, worked = Told(), threading.Event(), threading.Event()
    with told.server as server, Client(server.url) as client:
        endpoint = Endpoint("sync", dedupe=onefold, mode="ack", client=client)

        def work(_: PushedJob) -> None:
            assert go_on.wait(HANG)
            worked.set()

        endpoint.act = work
        body = body_of()
        with served_wsgi(endpoint.receiver.wsgi) as url:
            answered = httpx.post(f"{url}/jobs", content=body, headers=dict(signed(body).headers))
            assert (answered.status_code, worked.is_set()) == (202, False)
            go_on.set()
            assert told.is_told.wait(HANG)

    assert [word for word, _ in told.words] == ["ack"]


def test_what_cannot_be_meant_is_refused_at_the_start(onefold: Onefold) -> None:
    with pytest.raises(ConflictingOptions, match="client="):
        Receiver(SECRET, dedupe=onefold, mode="ack")
    wrong: Any = "nack"
    with pytest.raises(InvalidInput, match="mode"):
        Receiver(SECRET, dedupe=onefold, mode=wrong)
    with pytest.raises(InvalidInput, match="dedupe"):
        Receiver(SECRET, dedupe=wrong)
    with pytest.raises(ConflictingOptions, match="transaction"):
        Receiver(SECRET, dedupe=always_new, transaction=object())
    with pytest.raises(UsageError, match="cannot await"):
        _ = Receiver(SECRET, dedupe=onefold, client=AsyncClient("http://localhost")).wsgi
    receiver = Receiver(SECRET, dedupe=onefold)
    with pytest.raises(UsageError, match="no handler"):
        receiver.receive(signed(body_of()), body_of())
    receiver.process(nothing)
    with pytest.raises(UsageError, match="handler already"):
        receiver.process(nothing)


@pytest.mark.parametrize(
    ("outcome", "status"), [(Defer(timedelta(seconds=3)), 503), (ZeroDivisionError(), 500)]
)
def test_without_a_database_a_handler_ends_the_same(
    colour: str, outcome: Exception, status: int
) -> None:
    endpoint = Endpoint(colour, dedupe=always_new)
    endpoint.act = raising(outcome)

    assert endpoint.send().status == status
