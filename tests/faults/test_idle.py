"""What idle workers and servers send does not depend on the number of shards."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from onefold import Onefold
from onefold.databases.postgres import notify
from onefold.model.queue import QueueSettings
from onefold.operations.workers import RENEWAL
from onefold.push import push_worker
from onefold.push.push_worker import PushSettings, PushWorker
from onefold.worker import chores, statistics
from onefold.worker.settings import worker_settings
from tests.faults.proxy import Proxy
from tests.faults.servers import reached
from tests.fixtures.place import Place
from tests.fixtures.proof import proved
from tests.fixtures.shards import found

INTERVALS = 100
REFRESH = timedelta(milliseconds=1)
QUEUES = b"served_queue as served"
"""Part of the statement that reads the queues of a server, and of no other."""
NEVER = timedelta(minutes=10)
"""Between two runs of the timers that a test does not count."""
WORKER_TIMERS = {
    "poll": b"with recursive clock",
    "chores": b"schedule as s",
    "listener": b"select 1\0",
    "row": b"worker (",
}
"""The timers of an idle worker, and a part of the statement that each of them sends."""
TIMERS = [
    *(("worker", timer) for timer in WORKER_TIMERS),
    *(("server", timer) for timer in (*WORKER_TIMERS, "queues")),
]
HOOK = QueueSettings(endpoint="https://example.com/hook", signing_secret="whsec_" + "c2VjcmV0" * 4)


@pytest.fixture(params=[*proved(1), 8], ids=["one shard", "eight shards"])
def place(request: pytest.FixtureRequest, postgres_url: str, postgres_schema: str) -> Place:
    place = Place(postgres_url, postgres_schema)
    found(place, request.param)
    return place


def behind(proxy: Proxy, place: Place) -> Onefold:
    """On the wire. A statement that is prepared cannot be recognised there."""
    return Onefold(proxy.url, schema=place.schema, prepared_statements=False)


def test_a_look_and_a_tick_are_one_statement_each(place: Place, proxy: Proxy) -> None:
    with behind(proxy, place) as onefold:
        calls = onefold.deliveries
        for call in (calls.look, calls.tick, onefold.queues.pushed):
            call()
            before = len(proxy.sent)
            call()
            assert len(proxy.sent) == before + 1


async def rest() -> None:
    """Let the server go through some intervals."""
    for _ in range(INTERVALS):
        await asyncio.sleep(REFRESH.total_seconds())


@pytest.mark.parametrize(("process", "timer"), TIMERS, ids=map("-".join, TIMERS))
def test_each_timer_of_an_idle_process_sends_one_statement_and_nothing_else_is_sent(
    place: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, process: str, timer: str
) -> None:
    def every(name: str) -> timedelta:
        return REFRESH if timer == name else NEVER

    monkeypatch.setattr(chores, "LOOK", every("chores"))
    monkeypatch.setattr(notify, "CHECK", every("listener").total_seconds())
    monkeypatch.setattr(statistics, "RENEWAL", every("row"))
    monkeypatch.setattr(statistics, "WRITTEN", every("row").total_seconds())
    monkeypatch.setattr(push_worker, "POLL", every("poll"))
    monkeypatch.setattr(push_worker, "REREAD", every("queues").total_seconds())
    statement = (WORKER_TIMERS | {"queues": QUEUES})[timer]

    def is_alone() -> bool:
        """After the start, all that is sent is sent by the timer, which must not stop."""
        sent = proxy.sent[-INTERVALS:]
        return len(sent) == INTERVALS and all(
            statement in data and b"begin isolation" not in data for data in sent
        )

    async def play() -> None:
        async with behind(proxy, place) as onefold:
            settings = PushSettings(refresh=REFRESH)
            async with (
                PushWorker(onefold, settings)
                if process == "server"
                else onefold.worker(poll=every("poll"))
            ):
                await reached(is_alone)

    with place.open() as other:
        other.queues.save("hooks", HOOK)  # a server without queues does not look for jobs
    asyncio.run(play())


def test_an_idle_process_sends_at_most_eighteen_statements_a_minute() -> None:
    minute = timedelta(minutes=1)
    settings = worker_settings({})
    looks = minute / settings.poll + minute / min(settings.lease * 2 / 3, chores.LOOK)
    checks = minute.total_seconds() / notify.CHECK + minute / RENEWAL
    assert looks + checks <= 18
    assert settings.poll == push_worker.POLL
    assert looks + checks + minute.total_seconds() / push_worker.REREAD <= 18


async def test_a_server_reads_its_queues_after_changes_only(place: Place, proxy: Proxy) -> None:
    def reads() -> int:
        return sum(QUEUES in data for data in proxy.sent)

    def has_read(before: int) -> bool:
        return reads() > before

    with place.open() as other:
        settings = PushSettings(refresh=REFRESH, chores=False)
        async with behind(proxy, place) as onefold, PushWorker(onefold, settings) as server:
            # At the start, while it does not listen, and once when it does.
            await reached(lambda: server._worker.is_notified and not server._is_stale)
            await rest()
            for change in (
                lambda: other.queues.save("hooks", HOOK),
                lambda: other.queues.rotate_secret("hooks"),
                lambda: other.queues.count_failure("hooks"),
                lambda: other.queues.hold("hooks", after=timedelta(hours=1), why="circuit"),
                lambda: other.queues.end_hold("hooks", force=True),
                lambda: other.queues.delete("hooks"),
            ):
                before = reads()
                await rest()
                assert reads() == before
                await asyncio.to_thread(change)
                await reached(partial(has_read, before))
                await rest()
                assert reads() == before + 1
