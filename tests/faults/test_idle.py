"""What idle workers and servers send does not depend on the number of shards."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from onefold import Onefold
from onefold.model.queue import QueueSettings
from onefold.push.push_worker import PushSettings, PushWorker
from tests.faults.proxy import Proxy
from tests.faults.servers import until
from tests.fixtures.place import Place
from tests.fixtures.shards import found

INTERVALS = 100
REFRESH = timedelta(milliseconds=1)
QUEUES = b"served_queue as served"
"""Part of the statement that reads the queues of a server, and of no other."""
HOOK = QueueSettings(endpoint="https://example.com/hook", signing_secret="whsec_" + "c2VjcmV0" * 4)


@pytest.fixture(params=[1, 8], ids=["one shard", "eight shards"])
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


async def reached(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(until, condition)


async def rest() -> None:
    """Let the server go through some intervals."""
    for _ in range(INTERVALS):
        await asyncio.sleep(REFRESH.total_seconds())


def test_a_server_reads_its_queues_after_changes_only(place: Place, proxy: Proxy) -> None:
    def reads() -> int:
        return sum(QUEUES in data for data in proxy.sent)

    def has_read(before: int) -> bool:
        return reads() > before

    async def play(other: Onefold) -> None:
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

    with place.open() as other:
        asyncio.run(play(other))
