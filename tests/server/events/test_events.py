"""`GET /v1/events`: what happens, as it happens, to its own tenant; within bounds."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from onefold.server import events as watch
from onefold.server.events import Feed
from onefold.server.routes import events
from tests.fixtures.colours import Clock, Store
from tests.fixtures.served import Api
from tests.server.events.stream import Stream


async def until(holds: Callable[[], bool]) -> None:
    """Let others go on until it holds; pytest's timeout bounds it."""
    while not holds():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)


async def listening(api: Api, stream: Stream) -> None:
    before = api.app.feed.listeners
    assert (await stream.piece() or "").startswith("retry: ")
    assert before <= api.app.feed.listeners
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.headers["cache-control"] == "no-store"


async def test_what_a_worker_does_here_is_told(api: Api) -> None:
    await api.queue()
    done = asyncio.Event()

    @api.onefold.job(queue="payments")
    async def pay() -> None:
        done.set()

    async with Stream(api, "event=job.started&event=job.ended") as stream:
        await listening(api, stream)
        enqueued = await api.onefold.aenqueue("pay", queue="payments")
        async with api.onefold.worker(queues=["payments"]):
            await done.wait()
            started, ended = await stream.event(), await stream.event()

    assert (started.name, ended.name) == ("job.started", "job.ended")
    assert started.data["id"] == ended.data["id"] == enqueued.id
    assert (ended.data["outcome"], ended.data["attempt"]) == ("completed", 1)


async def test_what_another_process_does_is_counted(
    api: Api, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "EVERY", 0.001)
    await api.queue()
    async with Stream(api, "event=queue.counted") as stream:
        await listening(api, stream)
        await store.open(clock=clock).aenqueue("payments", queue="payments")

        told = await stream.event()

    assert (told.name, told.data["queue"], told.data["ready"]) == ("queue.counted", "payments", 1)


async def test_a_count_is_not_missed_between_two_streams(
    api: Api, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "EVERY", 0.001)
    await api.queue()
    async with Stream(api, "event=queue.counted") as stream:
        greeting = await stream.piece() or ""
    (at,) = [line[4:] for line in greeting.split("\n") if line.startswith("id: ")]
    await store.open(clock=clock).aenqueue("payments", queue="payments")

    async with Stream(api, "event=queue.counted", last_event_id=at) as stream:
        assert (await stream.event()).data["ready"] == 1


async def test_an_event_that_nobody_knows_and_a_head_of_what_never_ends_are_refused(
    api: Api,
) -> None:
    told = (await api("GET", "/v1/events?event=job.vanished")).problem(400, "invalid_input")
    assert told["field"] == "event"
    reply = await api("HEAD", "/v1/events")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, OPTIONS")


async def test_who_is_cut_off_before_the_first_event_misses_none(api: Api) -> None:
    await api.queue()
    async with Stream(api) as stream:
        greeting = await stream.piece() or ""
    (at,) = [line[4:] for line in greeting.split("\n") if line.startswith("id: ")]
    await api.publish(kind="missed")

    async with Stream(api, last_event_id=at) as stream:
        assert "id: " not in (await stream.piece() or ""), "it has one, and is not there yet"
        assert (await stream.event()).data["kind"] == "missed"


async def test_what_cannot_be_gone_on_with_is_said_to_be_a_gap(api: Api) -> None:
    async with Stream(api, last_event_id="0123456789ab-7") as stream:
        assert "id: " not in (await stream.piece() or ""), "a cut before the gap would hide it"
        told = await stream.event()
        assert "id: " in (await stream.piece() or ""), "from now on it can be gone on with"

    assert (told.id, told.name, told.data["after"]) == (None, "gap", "0123456789ab-7")
    assert told.data["detail"]


async def test_silence_is_kept_alive_by_comments(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT", 0.001)
    async with Stream(api) as stream:
        await listening(api, stream)
        assert await stream.piece() == ": still here"


async def test_who_does_not_keep_up_is_dropped_and_told_so(api: Api) -> None:
    api.app.feed = Feed(api.onefold.context.hooks, buffer=5, remembered=5)
    feed = api.app.feed
    await api.queue()
    async with Stream(api, stalled=True) as stream:
        await until(lambda: feed.listeners == 1)
        for _ in range(20):
            await api.publish()
        assert feed.listeners == 0

        stream.reads.set()
        names = [(await stream.event()).name for _ in range(6)]

        assert names == ["jobs.enqueued"] * 5 + ["dropped"]
        assert await stream.piece() is None, "it has ended"


async def test_a_drain_ends_it_with_a_word(api: Api) -> None:
    async with Stream(api) as stream:
        await listening(api, stream)

        api.app.drain()

        assert (await stream.event()).name == "stopping"
        assert await stream.piece() is None
    # Who comes while the server stops is told at once.
    async with Stream(api) as stream:
        assert (await stream.event()).name == "stopping"


async def test_there_is_room_for_so_many(api: Api) -> None:
    api.app.feed = Feed(api.onefold.context.hooks, most=1)
    async with Stream(api) as stream:
        await listening(api, stream)

        reply = await api("GET", "/v1/events")

        reply.problem(503, "unavailable")
        assert int(reply.headers["retry-after"]) > 0


async def test_one_tenant_leaves_places_to_the_others(store: Store, clock: Clock) -> None:
    api = Api(store.open(clock=clock), anonymous=False)
    api.app.feed = feed = Feed(api.onefold.context.hooks, most=4)
    keys = [await api.onefold.api_keys.acreate(n, scopes=["read"]) for n in ("acme", "other")]
    acme, other = [f"Bearer {key.text}" for key in keys]
    async with AsyncExitStack() as stack:
        # All at the same time: none sees a place that another one takes.
        streams = [Stream(api, authorization=acme) for _ in range(6)]
        for stream in streams:
            await stack.enter_async_context(stream)
        greetings = [await stream.piece() for stream in streams]

        assert [stream.status for stream in streams].count(503) == greetings.count(None) == 4
        await listening(api, await stack.enter_async_context(Stream(api, authorization=other)))
        assert feed.listeners == 3

    assert feed.listeners == 0


async def test_a_revoked_key_hears_nothing_more(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that was opened with it ends with the next event, before that is told."""
    monkeypatch.setattr(events, "CHECK", 0.0)
    api = Api(store.open(clock=clock), anonymous=False)
    new = await api.onefold.api_keys.acreate("acme", scopes=["work"])
    acme = api.onefold.tenant("acme")
    async with Stream(api, "event=jobs.enqueued", authorization=f"Bearer {new.text}") as stream:
        await listening(api, stream)
        await acme.aenqueue("mail")
        heard = await stream.event()
        await api.onefold.api_keys.arevoke(new.key.id)
        await acme.aenqueue("mail")
        told = await stream.event()
        rest = await stream.piece()

    assert (heard.name, told.name, rest) == ("jobs.enqueued", "revoked", None)


async def test_the_first_key_ends_the_streams_of_those_without(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "CHECK", 0.0)
    async with Stream(api, "event=jobs.enqueued") as stream:
        await listening(api, stream)
        await api.onefold.api_keys.acreate("acme", scopes=["work"])
        await api.onefold.aenqueue("mail")
        told = await stream.event()

    assert told.name == "revoked"
