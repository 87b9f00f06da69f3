"""Both drivers against a server that answers, cuts, trickles and keeps silent."""

import asyncio
from datetime import timedelta
from itertools import chain, repeat
from typing import Any

import pytest

from onefold.client import (
    AsyncClient,
    Client,
    NotAuthorized,
    RateLimited,
    ServerError,
    Unreachable,
)
from onefold.errors import (
    AlreadyEnqueued,
    InvalidInput,
    JobNotFound,
    KeyReused,
    LeaseLost,
    OnefoldError,
    QueueNotFound,
    UsageError,
    WrongState,
)
from tests.client.conftest import Connect
from tests.client.scripted import Close, Cut, Scripted, Silence, Trickle, answer, problem, refusing

JOB = "0199d0a0-0000-7000-8000-000000000001"
MADE = answer(201, {"id": JOB, "duplicate": False, "state": "ready"})


@pytest.mark.parametrize("act", [Cut(), Cut(3000), problem(503, "unavailable")])
def test_a_broken_try_is_followed_by_the_same_request(connect: Connect, act: Any) -> None:
    with Scripted([act, act, MADE]) as server:
        enqueued = connect(server.url).enqueue("mail", {"to": 1}, queue="email")

    assert (enqueued.id, enqueued.duplicate) == (JOB, False)
    assert len({asked.key for asked in server.asked}) == 1
    assert len({asked.body for asked in server.asked}) == 1


@pytest.mark.parametrize("end", [Close, Cut], ids=["closed", "reset"])
def test_an_answer_that_is_cut_anywhere_is_no_answer(connect: Connect, end: Any) -> None:
    told = answer(201, {"id": JOB}, X_Request_Id="r1", Content_Type="application/json")
    lengths = range(1, len(told))
    cuts = (Close(told[:n]) if end is Close else Cut(n) for n in lengths)
    with Scripted([act for cut in cuts for act in (cut, MADE)]) as server:
        client = connect(server.url, first_pause=timedelta(milliseconds=1))
        answers = [client.enqueue("mail", queue="email") for _ in lengths]

    assert {enqueued.id for enqueued in answers} == {JOB}
    assert len(server.asked) == 2 * len(lengths)


def test_connections_are_kept(connect: Connect) -> None:
    with Scripted([MADE, MADE, MADE]) as server:
        client = connect(server.url)
        for _ in range(3):
            client.enqueue("mail", queue="email")

    assert server.connections == 1
    assert len({asked.key for asked in server.asked}) == 3


@pytest.mark.parametrize("act", [Silence(), Trickle()], ids=["silence", "trickle"])
def test_an_answer_that_does_not_come_to_its_end_is_given_up(connect: Connect, act: Any) -> None:
    # On a busy machine, a good answer may come too late as well.
    acts = chain([act], repeat(MADE))
    with Scripted(lambda _: next(acts)) as server:
        client = connect(server.url, timeout=timedelta(milliseconds=200), tries=100)

        assert client.enqueue("mail", queue="email").id == JOB


def test_who_cannot_be_reached_is_named_with_what_to_do(connect: Connect) -> None:
    with refusing() as url, pytest.raises(Unreachable, match="same idempotency key") as failed:
        connect(url, tries=3).enqueue("mail", queue="email")

    assert failed.value.url == url
    assert failed.value.tries == 3
    assert "object at 0x" not in str(failed.value)


def test_a_redirect_is_not_followed(connect: Connect) -> None:
    elsewhere = answer(307, None, Location="http://127.0.0.1:1/v1/queues/email/jobs")
    with Scripted([elsewhere]) as server, pytest.raises(ServerError) as refused:
        connect(server.url, api_key="of_key").enqueue("mail", queue="email")

    assert refused.value.answered == 307


def test_the_api_key_goes_along_and_is_shown_to_nobody(connect: Connect) -> None:
    with Scripted([MADE]) as server:
        connect(server.url, api_key="of_secret").enqueue("mail", queue="email")

    assert server.asked[0].headers["authorization"] == "Bearer of_secret"
    assert server.asked[0].headers["user-agent"].startswith("onefold/")
    for kind in (Client, AsyncClient):
        client = kind("http://localhost", api_key="of_secret")
        assert "of_secret" not in repr(client) + repr(client._connection)


@pytest.mark.parametrize(
    ("told", "kind", "fields"),
    [
        (problem(404, "job_not_found", jobId=JOB), JobNotFound, {"job_id": JOB}),
        (problem(409, "lease_lost", subject="it", fence=3), LeaseLost, {"fence": 3}),
        (problem(422, "key_reused", key="k", holderId="j"), KeyReused, {"holder_id": "j"}),
        (
            problem(409, "already_enqueued", key="k", holderId="j", state="running", item=0),
            AlreadyEnqueued,
            {"key": "k", "holder_id": "j", "item": 0},
        ),
        (
            problem(409, "wrong_state", jobId=JOB, state="dead", wanted="a running job"),
            WrongState,
            {"job_id": JOB},
        ),
        (
            problem(400, "invalid_input", field="maxAttempts"),
            InvalidInput,
            {"field": "max_attempts", "item": None},
        ),
        (
            problem(400, "invalid_input", field="items[3].delay"),
            InvalidInput,
            {"field": "delay", "item": 3},
        ),
        (problem(404, "queue_not_found", queue="q"), QueueNotFound, {"queue": "q"}),
        (problem(401, "unauthenticated"), NotAuthorized, {"code": "unauthenticated"}),
        (problem(403, "forbidden"), NotAuthorized, {"code": "forbidden"}),
        (
            problem(429, "rate_limited", Retry_After="3600"),
            RateLimited,
            {"retry_after": timedelta(hours=1)},
        ),
        (problem(413, "too_large", requestId="r1"), ServerError, {"request_id": "r1"}),
        (answer(404, {"detail": "Not Found"}), ServerError, {"code": "", "detail": "Not Found"}),
        (answer(418), ServerError, {"answered": 418, "detail": "the response is empty"}),
    ],
)
def test_a_problem_is_the_error_that_it_is_in_process(
    connect: Connect, told: bytes, kind: type[OnefoldError], fields: dict[str, Any]
) -> None:
    with Scripted([told]) as server, pytest.raises(kind) as raised:
        connect(server.url).enqueue("mail", queue="email")

    assert {name: getattr(raised.value, name) for name in fields} == fields
    assert len(server.asked) == 1


def test_a_page_of_some_proxy_is_quoted(connect: Connect) -> None:
    page = b"HTTP/1.1 404 X\r\nContent-Type: text/html\r\nContent-Length: 14\r\n\r\n<h1>nginx</h1>"
    with Scripted([page]) as server, pytest.raises(ServerError, match="<h1>nginx</h1>"):
        connect(server.url).enqueue("mail", queue="email")


def test_an_answer_that_cannot_be_read_is_told_so(connect: Connect) -> None:
    asked = pytest.raises(ServerError, match="Is there an Onefold server at this URL")
    with Scripted([answer(200, {"hello": 1})]) as server, asked:
        connect(server.url).enqueue("mail", queue="email")


def test_names_in_a_path_may_hold_anything(connect: Connect) -> None:
    with Scripted([MADE]) as server:
        connect(server.url).enqueue("mail", queue="a/b c%2Fü")

    assert server.asked[0].path == "/v1/queues/a%2Fb%20c%252F%C3%BC/jobs"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"url": "localhost:8080"}, "url"),
        ({"url": "ftp://localhost"}, "url"),
        ({"url": "http://me:secret@localhost"}, "url"),
        ({"url": "http://localhost?x=1"}, "url"),
        ({"url": 8080}, "url"),
        ({"url": "http://localhost", "api_key": ""}, "api_key"),
        ({"url": "http://localhost", "api_key": "a\nb"}, "api_key"),
        ({"url": "http://localhost", "retries": 3}, "retries"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_the_start(
    arguments: dict[str, Any], field: str
) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(InvalidInput) as refused:
            kind(**arguments)

        assert refused.value.field == field
        assert "secret" not in str(refused.value)


def test_an_async_client_belongs_to_one_loop() -> None:
    async def use(client: AsyncClient, *, close: bool) -> None:
        await client.enqueue("mail", queue="email")
        if close:
            await client.close()

    with Scripted([MADE, MADE]) as server, asyncio.Runner() as one, asyncio.Runner() as other:
        client = AsyncClient(server.url)
        one.run(use(client, close=False))
        with pytest.raises(UsageError, match="another event loop"):
            other.run(use(client, close=False))
        one.run(client.close())
        other.run(use(client, close=True))
