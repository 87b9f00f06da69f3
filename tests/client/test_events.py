"""A server's events over HTTP: read in pieces, told as they happen, over all connections."""

import asyncio
import contextlib
import gc
import threading
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold import InvalidInput
from onefold.client import (
    AsyncClient,
    Client,
    NotAuthorized,
    ServerError,
    Unreachable,
    event_stream,
)
from onefold.client import events as client_events
from onefold.client.connection import Connection, RetryPolicy
from onefold.client.event_stream import EventBlock, EventStream, NotEvents
from onefold.client.events import (
    EventFilter,
    EventListener,
    OpenStream,
    ReadStream,
    WaitBeforeRetry,
)
from onefold.client.requests import ClientResponse
from onefold.errors import UsageError
from onefold.runtime import Send
from tests.client.conftest import Connect
from tests.client.running import Stage
from tests.client.scripted import Act, Close, Cut, Scripted, Silence, answer, problem
from tests.fixtures.patience import HANG
from tests.fixtures.place import Place
from tests.fixtures.serving import serving

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


def told(*blocks: str) -> bytes:
    """One chunk of a stream."""
    text = "".join(f"{block}\n\n" for block in blocks).encode()
    return f"{len(text):x}\r\n".encode() + text + b"\r\n"


def greeting(at: str = "") -> str:
    return f"retry: 1\n{f'id: {at}' if at else ':'}"


def event(number: int) -> str:
    return f'id: a-{number}\nevent: job.ended\ndata: {{"at":"2026-01-01T00:00:00Z","n":{number}}}'


def test_what_happens_is_told(stage: Stage, connect: Connect) -> None:
    client = connect(stage.url)
    client.queues.save("other")
    with client.events(queue="email", event=["jobs.enqueued"]) as events:
        client.enqueue("unheard", queue="other")
        client.enqueue("mail", {"secret": 1}, queue="email", unique_key="u")
        client.enqueue("mail", {"secret": 1}, queue="email", unique_key="u")
        client.enqueue("more", queue="email")
        first, second = next(events), next(events)

    assert (first.name, first.queue, first.data["kind"]) == ("jobs.enqueued", "email", "mail")
    assert first.at is not None
    assert (second.data["kind"], second.id) == ("more", events.last_id)
    assert "secret" not in str(first)
    assert list(events) == [], "it has been closed"


def test_another_listener_goes_on_behind_an_event(stage: Stage, connect: Connect) -> None:
    client = connect(stage.url)
    with client.events(event=["jobs.enqueued"]) as events:
        greeted = events.last_id
        client.enqueue("first", queue="email")
        seen = next(events)
        client.enqueue("second", queue="email")

    with client.events(after=seen.id, event=["jobs.enqueued"]) as rest:
        assert next(rest).data["kind"] == "second"
    with client.events(after=greeted, event=["jobs.enqueued"]) as everything:
        assert [next(everything).data["kind"] for _ in range(2)] == ["first", "second"]
    with client.events(after="0123456789ab-7") as strange:
        gap = next(strange)
        assert (gap.name, gap.id, gap.data["after"]) == ("gap", None, "0123456789ab-7")
        client.enqueue("third", queue="email")
        assert next(strange).data["kind"] == "third"


@pytest.mark.parametrize(
    "end",
    [
        END,
        b"",
        b"5\r\nda",
        told(event(3))[:-30],
        told('event: stopping\ndata: {"detail":"x"}'),
    ],
    ids=["ended", "closed", "cut", "cut in an event", "told so"],
)
def test_a_connection_that_ends_is_made_again_where_it_was(connect: Connect, end: bytes) -> None:
    script: list[Act] = [
        Close(HEAD + told(greeting("a-0")) + end),
        Close(HEAD + told(greeting()) + told(event(1), event(2)) + end),
        Cut(),
        problem(503, "unavailable"),
        Close(HEAD + told(greeting(), event(3), ": still here", 'event: gap\ndata: {"after":"x"}')),
    ]
    with Scripted(script) as server, connect(server.url).events(after="z") as events:
        heard = [next(events) for _ in range(4)]

    assert [one.data.get("n", one.name) for one in heard] == [1, 2, 3, "gap"]
    asked = [asked.headers["last-event-id"] for asked in server.asked]
    assert asked == ["z", "a-0", "a-2", "a-2", "a-2"]


def test_a_refusal_ends_it(connect: Connect) -> None:
    revoked = Close(HEAD + told(greeting("a-0"), 'event: revoked\ndata: {"detail":"x"}'))
    with Scripted([revoked, problem(401, "unauthenticated", "No key.")]) as server:
        events = connect(server.url, api_key="of_key").events()
        with pytest.raises(NotAuthorized, match="No key"):
            next(events)

        assert list(events) == []
        with pytest.raises(UsageError, match="have ended"), events:
            pass
    assert server.asked[0].headers["authorization"] == "Bearer of_key"
    assert server.asked[0].headers["accept"] == "text/event-stream"


def test_who_is_away_for_too_long_is_given_up(connect: Connect) -> None:
    with Scripted(lambda _: Close(HEAD)) as server:
        with pytest.raises(Unreachable) as failed:
            next(connect(server.url, tries=2).events())

        assert (failed.value.tries, failed.value.url) == (2, server.url)
    with Scripted([problem(503, "unavailable")]) as server, pytest.raises(ServerError) as refused:
        next(connect(server.url, tries=1).events())
    assert refused.value.answered == 503


@pytest.mark.parametrize(
    "act",
    [
        answer(200, {"hello": 1}),
        Close(HEAD + told("data: [1]")),
        Close(HEAD + told("data: {")),
        Close(HEAD + told('data: {"at": "now"}')),
    ],
    ids=["JSON", "an array", "no JSON", "no time"],
)
def test_what_cannot_be_read_is_told(connect: Connect, act: Any) -> None:
    with Scripted([act]) as server, pytest.raises(ServerError, match="Is there an Onefold server"):
        next(connect(server.url).events())


def test_what_nobody_can_mean_is_refused_at_once(connect: Connect) -> None:
    client = connect("http://127.0.0.1:1")
    for options in ({"event": "job.ended"}, {"event": [1]}, {"queue": "a*b"}, {"after": ""}):
        with pytest.raises(InvalidInput):
            client.events(**options)
    for no_header in ("a\nb", "a\x01", "✓", "é"):
        with pytest.raises(InvalidInput, match="after must be the id of an event"):
            client.events(after=no_header)


def test_an_id_that_no_header_can_have_is_not_sent_back(connect: Connect) -> None:
    script = [
        Close(HEAD + told(greeting("a-0"), "id: ✓", f"id: {'x' * 513}")),
        Close(HEAD + told(greeting(), event(1))),
    ]
    with Scripted(script) as server, connect(server.url).events() as events:
        next(events)
    assert server.asked[1].headers["last-event-id"] == "a-0"


def test_who_listens_already_misses_nothing_by_with(connect: Connect) -> None:
    with Scripted([Close(HEAD + told(greeting(), event(1), event(2)) + END)]) as server:
        events = connect(server.url).events()
        first = next(events)
        with events:
            second = next(events)
    assert (first.data["n"], second.data["n"]) == (1, 2)


def test_another_thread_may_hang_up(stage: Stage) -> None:
    heard: list[Any] = []
    with Client(stage.url) as client, client.events(event=["job.ended"]) as events:
        listener = threading.Thread(target=lambda: heard.extend(events))
        listener.start()
        events.close()
        listener.join(HANG)

    assert (heard, listener.is_alive()) == ([], False)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_server_that_was_killed_is_come_back_to(
    place: Place, tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_events, "LONGEST_RETRY", 0.01)
    with serving(place.url, folder=tmp_path) as server:
        client = connect(server.url, tries=1000)
        client.queues.save("email")
        with client.events(event=["jobs.enqueued"]) as listened:
            client.enqueue("first", queue="email")
            seen = next(listened)
            server.kill()
            server.start()
            gap = next(listened)
            client.enqueue("second", queue="email")
            again = next(listened)

    assert (seen.data["kind"], gap.name, again.data["kind"]) == ("first", "gap", "second")
    assert gap.data["after"] == seen.id


async def test_a_wait_that_is_given_up_loses_nothing(stage: Stage) -> None:
    async with AsyncClient(stage.url) as client, client.events(event=["jobs.enqueued"]) as events:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.01)
        await client.enqueue("mail", queue="email")

        assert (await anext(events)).name == "jobs.enqueued"


async def test_who_only_ever_glances_is_connected_again_too() -> None:
    """Neither a pause nor a connection is begun anew by every wait."""
    script = [Close(HEAD + told("retry: 50", event(number)) + END) for number in (1, 2)]
    heard: list[int] = []
    with Scripted(script) as server:
        async with AsyncClient(server.url) as client:
            events = client.events()
            while len(heard) < 2:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0):
                        heard.append((await anext(events)).data["n"])
                await asyncio.sleep(0)
            await events.close()

    assert heard == [1, 2]


async def asked(server: Scripted) -> None:
    """Until a request has come."""
    while not server.asked:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)


async def test_a_close_in_the_middle_of_connecting_is_an_end_and_no_failure() -> None:
    with Scripted([Silence()]) as server:
        async with AsyncClient(server.url, tries=1) as client:
            events = client.events()
            waiting = asyncio.ensure_future(anext(events))
            await asked(server)
            await events.close()
            with pytest.raises(StopAsyncIteration):
                await waiting


async def test_events_that_nobody_wants_any_more_end_with_their_client_and_in_silence() -> None:
    said: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    with Scripted([Silence()]) as server:
        async with AsyncClient(server.url) as client:
            waiting = asyncio.ensure_future(anext(client.events()))
            await asked(server)
            waiting.cancel()
            await asyncio.wait((waiting,))
            del waiting
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
        gc.collect()

    assert said == []


def test_a_stream_that_was_heard_is_waited_for_anew() -> None:
    """The count of failures begins again with every connection that says something."""
    retry = RetryPolicy(tries=2, deadline=timedelta(seconds=30))
    connection = Connection("http://localhost", {}, retry)
    listener = EventListener(connection, EventFilter(), clock=lambda: 0.0, jitter=lambda: 1.0)
    opened = ClientResponse(200, {"content-type": "text/event-stream"}, b"")
    away = Unreachable("http://localhost", "refused")

    def opens(command: object) -> bool:
        return isinstance(command, Send) and isinstance(command.request, OpenStream)

    procedure = listener.next_event()
    assert opens(next(procedure))
    for _ in range(3):
        assert procedure.send(opened) == Send(ReadStream())
        with pytest.raises(StopIteration) as greeting:
            procedure.send(b"retry: 5000\n\n")
        assert greeting.value.value is None
        procedure = listener.next_event()
        assert next(procedure) == Send(ReadStream())
        assert procedure.throw(away) == Send(WaitBeforeRetry(5.0))
        assert opens(procedure.send(None))
        assert procedure.throw(away) == Send(WaitBeforeRetry(5.0))
        assert opens(procedure.send(None))
    with pytest.raises(Unreachable, match="tried 2 times"):
        procedure.throw(away)


TEXT = (
    "retry: 3000\nid: a-0\n: listening\n\n"
    "id: a-1\r\nevent: job.ended\r\ndata: {\r\ndata:  1}\r\n\r\n"
    "event:tight\rdata:x\r\r"
    "data\nunknown: 1\nretry: soon\nid: b\x00\n\n"
    ": still here\n\n"
    "data: ü\n\ndata: never ended\n"
).encode()

BLOCKS = [
    EventBlock(id="a-0", retry=3000),
    EventBlock(name="job.ended", data="{\n 1}", id="a-1"),
    EventBlock(name="tight", data="x"),
    EventBlock(),
    EventBlock(),
    EventBlock(data="ü"),
]


@given(st.lists(st.integers(min_value=0, max_value=len(TEXT))))
def test_blocks_are_the_same_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    stream = EventStream()
    places = [0, *sorted(cuts), len(TEXT)]

    pieces = [TEXT[start:end] for start, end in pairwise(places)]

    assert [block for piece in pieces for block in stream.feed(piece)] == BLOCKS


@pytest.mark.parametrize("text", [b"x" * 200, b"data: " + b"x" * 60 + b"\n", b"data: x\n" * 20])
def test_what_never_ends_is_no_stream_of_events(
    text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "LONGEST", 50)
    stream = EventStream()

    with pytest.raises(NotEvents, match="more than 50 bytes"):
        stream.feed(text)
