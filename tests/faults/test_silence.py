"""A wire that swallows everything, without a word to either end."""

import asyncio
import os
import socket
from datetime import timedelta
from typing import Any

import pytest

from onefold import Onefold
from onefold.databases.postgres import notify
from onefold.databases.postgres.database import PostgresDatabase
from tests.faults.callers import Colour
from tests.faults.proxy import Proxy
from tests.faults.servers import reached, state_of

NEVER = timedelta(minutes=10)
"""Between two looks: what a worker takes before, it was told of."""


async def test_a_listener_that_hears_nothing_is_renewed(
    proxy: Proxy, postgres_url: str, migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "CHECK", 0.2)
    monkeypatch.setattr(notify, "ANSWER", 1.0)

    with Onefold(postgres_url, schema=migrated) as other:
        async with Onefold(proxy.url, schema=migrated) as onefold:

            @onefold.job
            def work() -> None: ...

            async with onefold.worker(poll=NEVER, chores=False):
                await reached(lambda: proxy.listeners)
                proxy.forget_listeners()
                await reached(lambda: proxy.listeners > 1)
                job = await asyncio.to_thread(other.enqueue, "work")
                await reached(lambda: state_of(other, job.id) == "completed")


async def test_a_worker_that_stops_leaves_no_question_to_a_silent_server(
    proxy: Proxy, migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "CHECK", 0.05)
    monkeypatch.setattr(notify, "ANSWER", 600.0)

    async with Onefold(proxy.url, schema=migrated) as onefold:
        async with onefold.worker(poll=NEVER, chores=False):
            await reached(lambda: proxy.listeners)
            proxy.forget_listeners()
            await reached(lambda: proxy.unheard)
        asked = [task for task in asyncio.all_tasks() if "execute" in str(task.get_coro())]
        assert asked == []


OPTIONS: dict[str, int] = {
    "keepalives_idle": getattr(socket, "TCP_KEEPIDLE", 4),
    "keepalives_interval": socket.TCP_KEEPINTVL,
    "keepalives_count": socket.TCP_KEEPCNT,
    "tcp_user_timeout": getattr(socket, "TCP_USER_TIMEOUT", 18),
}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, [15, 5, 3, 15_000]),
        ({"keepalives_idle": "77", "tcp_user_timeout": "9000"}, [77, 5, 3, 9000]),
    ],
    ids=["ours", "the application's"],
)
async def test_connections_know_how_long_to_wait_for_a_network(
    proxy: Proxy, migrated: str, colour: Colour, given: dict[str, str], found: list[int]
) -> None:
    settings = "".join(f"&{name}={value}" for name, value in given.items())

    async with Onefold(proxy.url + settings, schema=migrated) as onefold:
        database = onefold.context.database
        assert isinstance(database, PostgresDatabase)
        if colour == "async":
            pool, connection = await database.aget_connection()
            assert _options(connection) == found
            await pool.putconn(connection)
            async with await database._aconnect() as listener:
                assert _options(listener) == found
        else:
            threads, session = database.get_connection()
            assert _options(session) == found
            threads.putconn(session)


def _options(connection: Any) -> list[int]:
    with socket.socket(fileno=os.dup(connection.fileno())) as found:
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        return [found.getsockopt(socket.IPPROTO_TCP, option) for option in OPTIONS.values()]
